"""The three directions of a convolution on tensor cores, with windows read in place.

They serve two-byte floats, and float32 where it may be multiplied in 10 bits, with channels last, if the
channels of a group make whole packs of 16 bytes. Sums are float32. Tiles and slices follow from the shape
alone, like those of `windowed`: the same bits on every GPU. A weight whose taps are contiguous is packed
first, so that the summed axis is contiguous: that copy is the scratch of output and data gradient; that of
the weight gradient holds sums of slices.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, ClassVar

from ....ops.nn.conv_kernels import Geometry
from ..handwritten.each import launch
from ..runtime.device import Device, InOrder, pointer, Run
from . import tiles
from .windowed import Correlate, Gather

BYTES = 16  # of a pack


def can(g: Geometry, last: bool, tf32: bool) -> bool:
    """True if tensor cores support these types, and packs these channels."""
    known = g.dtype.name in ("float16", "bfloat16") or (tf32 and g.dtype.name == "float32")
    return known and last and not any(n % _pack(g) for n in (g.c // g.groups, g.f // g.groups))


def _pack(g: Geometry) -> int:
    return BYTES // int(g.dtype.itemsize)


@dataclass(frozen=True)
class TensorGather(Gather):
    """The output from data, or the data gradient from the output's."""

    tensor: ClassVar[bool] = True

    @property
    def nbytes(self) -> int:
        g = self.g
        return g.f * (g.c // g.groups) * g.taps * int(g.dtype.itemsize) if self._packs() else 0

    @property
    def launches(self) -> int:
        return 2 if self._packs() else 1

    @property
    def name(self) -> str:
        t = self.tile()
        return f"cuda tensor convolution {t.rows}x{t.columns}"

    def connect(self, x: Any, weight: Any, out: Any, work: Any, **tail: Any) -> Run:
        """As in Gather, which takes over if arrays are not aligned to packs."""
        g, at = self.g, self.device.address
        fed = at(work) if self._packs() else at(weight)
        if at(x) % BYTES or fed % BYTES:
            return Gather(self.device, g, self.last, self.transposed).connect(x, weight, out, work, **tail)
        n = self.numbers()
        n.w_made, n.w_summed, n.w_tap = g.taps * n.summed, 1, n.summed
        run = self.launched(n, _pack(g), at(x), fed, out, **tail)
        if not self._packs():
            return run
        size = g.f * (g.c // g.groups) * g.taps
        u = ctypes.c_uint32
        values = weight, pointer(fed), u(n.made), u(n.summed), u(g.taps), int(self.transposed)
        text, grid = tiles.packed_weight(str(g.dtype)), tiles.blocks(size)
        packs = launch(self.device, text, "packed_weight", grid, tiles.THREADS, *values, ctypes.c_int64(size))
        return InOrder([packs, run])

    def _packs(self) -> bool:
        """True if the summed axis is not contiguous in the weight."""
        return self.transposed or self.g.taps > 1


@dataclass(frozen=True)
class TensorCorrelate(Correlate):
    """The weight gradient from data and the output's gradient."""

    tensor: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return super().name.replace("cuda", "cuda tensor")

    @property
    def nbytes(self) -> int:
        return max(super().nbytes, self._plain().nbytes)

    def connect(self, data: Any, d_out: Any, out: Any, work: Any) -> Run:
        """As in Correlate, which takes over if arrays are not aligned to packs."""
        at = self.device.address
        if any(at(x) % BYTES for x in (data, d_out)):
            return self._plain().connect(data, d_out, out, work)
        return super().connect(data, d_out, out, work)

    def _plain(self) -> Correlate:
        return Correlate(self.device, self.g, self.last, self.limit)


def gather(device: Device, g: Geometry, last: bool, transposed: bool, tf32: bool) -> TensorGather | None:
    """Output, or data gradient; None if tensor cores cannot."""
    return TensorGather(device, g, last, transposed) if can(g, last, tf32) else None


def correlate(device: Device, g: Geometry, last: bool, limit: int, tf32: bool) -> TensorCorrelate | None:
    """The weight gradient; None if tensor cores cannot."""
    return TensorCorrelate(device, g, last, limit) if can(g, last, tf32) else None
