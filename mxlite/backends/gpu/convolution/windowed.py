"""The three directions of a convolution by kernels that read windows in place, without a column matrix.

Output and data gradient need no scratch. The weight gradient is a sum over all positions; these are
cut into slices, whose sums (float32, float64 for that) lie in scratch until they are added up in their order.

Each operand is read once for every tile of the other; the blocks of one row of tiles run side by
side, so most of that comes from the second-level cache. The result and the slices' sums are written once.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from ....ops.nn.conv_kernels import Geometry
from ..handwritten.each import launch
from ..handwritten.layout import divisor
from ..runtime.device import Device, InOrder, pointer, Run
from . import tiles
from .numbers import fits, MOST, Numbers, numbers, Side, sides

PACK = 4
LIMIT = 32 << 20  # bytes of slices' sums, unless one slice alone takes more
LEAST_POSITIONS, MOST_POSITIONS = 256, 16384  # of a slice: fewer cost launches, more cost accuracy


@dataclass(frozen=True)
class Gather:
    """The output from data (`transposed` False), or the data gradient from the output's."""

    device: Device
    g: Geometry
    last: bool
    transposed: bool

    tensor: ClassVar[bool] = False

    @property
    def nbytes(self) -> int:
        """Bytes of scratch."""
        return 0

    @property
    def launches(self) -> int:
        """Number of kernels of a call."""
        return 1

    @property
    def name(self) -> str:
        t = self.tile()
        return f"cuda convolution {t.rows}x{t.columns}"

    def connect(self, x: Any, weight: Any, out: Any, work: Any, **tail: Any) -> Run:
        """The call: out = x convolved (or transposed) with weight; `tail`: see `launched`."""
        g, at = self.g, self.device.address
        n = self.numbers()
        c, taps = g.c // g.groups, g.taps
        n.w_made, n.w_summed = (taps, c * taps) if self.transposed else (c * taps, taps)
        n.by_k = n.w_summed <= n.w_made
        pack = PACK if self.last and n.summed % PACK == 0 and at(x) % (PACK * g.dtype.itemsize) == 0 else 1
        return self.launched(n, pack, at(x), at(weight), out, **tail)

    def numbers(self) -> Numbers:
        """Arguments of the kernel, without the layout of the weight."""
        g, tile = self.g, self.tile()
        n = numbers(g, *self._sides())
        n.transposed = self.transposed
        n.phases = prod(g.stride) if self.transposed else 1
        n.row_tiles = -(-self._rows() // tile.rows)
        n.column_tiles = -(-n.made // tile.columns)
        return n

    def launched(
        self,
        n: Numbers,
        pack: int,
        x: int,
        weight: int,
        out: Any,
        bias: Any = None,
        addend: Any = None,
        relu: bool = False,
    ) -> Run:
        """The call of the kernel; `x` and `weight` are addresses. Its epilogue is + bias, + addend,
        rectified.
        """
        n.relu = relu
        g, device, at = self.g, self.device, self.device.address
        addresses = [at(a) for a in (out, addend) if a is not None]
        whole = all(a % (PACK * g.dtype.itemsize) == 0 for a in addresses)
        n.wide = self._sides()[1].last and n.made % PACK == 0 and whole
        text = tiles.gather(str(g.dtype), self.tile(), self.last, pack)
        blocks = n.row_tiles * n.column_tiles * n.phases * g.groups
        values = n, pointer(x), pointer(weight), bias, addend, out
        return launch(device, text, "gather", blocks, tiles.THREADS, *values)

    def fits(self) -> bool:
        """True if the kernel can count its blocks and rows."""
        phases = prod(self.g.stride) if self.transposed else 1
        tile = self.tile()
        blocks = tile.blocks(self._rows(), self._sides()[1].channels // self.g.groups)
        return fits(self.g) and blocks * phases * self.g.groups <= MOST

    def _sides(self) -> tuple[Side, Side]:
        data, out = sides(self.g, self.last)
        return (out, data) if self.transposed else (data, out)

    def _rows(self) -> int:
        """Number of windows in one phase; if transposed, positions of a phase are `stride` apart."""
        g = self.g
        if not self.transposed:
            return g.n * prod(g.out)
        return g.n * prod(-(-n // s) for n, s in zip(g.size, g.stride))

    def tile(self) -> tiles.Tile:
        """The tile of a block."""
        g = self.g
        columns = (g.c if self.transposed else g.f) // g.groups
        times = (prod(g.stride) if self.transposed else 1) * g.groups
        return tiles.chosen(str(g.dtype), self._rows(), columns, times, self.tensor)


@dataclass(frozen=True)
class Correlate:
    """The weight gradient from data and the output's gradient."""

    device: Device
    g: Geometry
    last: bool
    limit: int

    tensor: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"cuda correlation of {self._slices()} parts"

    @property
    def nbytes(self) -> int:
        return self._slices() * self._part() if self._in_parts() else 0

    @property
    def launches(self) -> int:
        return 2 if self._in_parts() else 1

    def connect(self, data: Any, d_out: Any, out: Any, work: Any) -> Run:
        """The call: out = d_weight."""
        g, device = self.g, self.device
        read, made = sides(g, self.last)
        n, tile, slices = numbers(g, read, made), self._tile(), self._slices()
        n.positions = self._positions()
        n.slice = -(-n.positions // slices)
        n.by_k = not self.last
        n.row_tiles = -(-n.summed * g.taps // tile.rows)
        n.column_tiles = -(-n.made // tile.columns)
        at, nbytes = device.address, PACK * g.dtype.itemsize
        whole = self.last and n.summed % PACK == 0 and at(data) % nbytes == 0
        whole = whole and n.made % PACK == 0 and at(d_out) % nbytes == 0
        pack = PACK if whole else 1
        text = tiles.correlate(str(g.dtype), tile, not self.last, pack, pack)
        parts = at(work) if self._in_parts() else at(out)
        blocks = n.row_tiles * n.column_tiles * g.groups * slices
        run = launch(device, text, "correlate", blocks, tiles.THREADS, n, data, d_out, pointer(parts))
        if not self._in_parts():
            return run
        return InOrder([run, added(device, str(g.dtype), parts, out, slices)])

    def fits(self) -> bool:
        """True if the kernel can count its blocks."""
        tile = self._tile()
        return fits(self.g) and self._tiles(tile) * self._slices() <= MOST

    def _in_parts(self) -> bool:
        return self._slices() > 1 or self.g.dtype.itemsize == 2

    def _part(self) -> int:
        g = self.g
        return g.f * (g.c // g.groups) * g.taps * g.acc.itemsize

    def _positions(self) -> int:
        return self.g.n * prod(self.g.out)

    def _tile(self) -> tiles.Tile:
        g = self.g
        rows, columns = g.c // g.groups * g.taps, g.f // g.groups
        # Slices fill the GPU: the work of a block matters, not the number of blocks.
        return tiles.chosen(str(g.dtype), rows, columns, g.groups * self._wanted(), self.tensor)

    def _wanted(self) -> int:
        return max(1, min(64, self._positions() // (4 * LEAST_POSITIONS)))

    def _tiles(self, tile: tiles.Tile) -> int:
        g = self.g
        return g.groups * tile.blocks(g.c // g.groups * g.taps, g.f // g.groups)

    def _slices(self) -> int:
        """Enough to give every multiprocessor two blocks, and none so long that its sum loses accuracy."""
        positions = self._positions()
        fill = -(-2 * tiles.MULTIPROCESSORS // max(1, self._tiles(self._tile())))
        wanted = max(min(fill, positions // LEAST_POSITIONS), -(-positions // MOST_POSITIONS), 1)
        room = max(1, self.limit // max(1, self._part()))
        slices = min(wanted, room)
        # The number of slices when each has the same number of positions.
        return -(-positions // -(-positions // slices)) if positions else 1


@dataclass(frozen=True)
class ChannelSums:
    """The bias gradient: the sum of the output's over all axes but the channel's."""

    device: Device
    side: Side
    samples: int
    dtype: Any
    acc: Any

    name = "cuda channel sums"
    launches = 2

    def fits(self) -> bool:
        """True if the kernel can count positions."""
        return self._positions() <= MOST

    @property
    def nbytes(self) -> int:
        return self._slices() * self.side.channels * self.acc.itemsize

    def connect(self, y: Any, out: Any, work: Any) -> Run:
        """The call: out[c] = sum of y at channel c."""
        device, s = self.device, self.side
        positions, slices, lanes = self._positions(), self._slices(), self._lanes()
        plane = max(1, prod(s.size))
        strides = map(ctypes.c_int64, (s.sample, s.channel, s.position))
        share = ctypes.c_int64(positions), ctypes.c_int64(-(-positions // slices))
        division = map(ctypes.c_uint32, (plane, *divisor(plane)))
        values = y, work, *strides, s.channels, *share, lanes, *division
        text, grid = tiles.sums(str(self.dtype)), (-(-s.channels // lanes), slices)
        run = launch(device, text, "channel_parts", grid, tiles.THREADS, *values)
        return InOrder([run, added(device, str(self.dtype), device.address(work), out, slices)])

    def _positions(self) -> int:
        return self.samples * prod(self.side.size)

    def _lanes(self) -> int:
        """Threads side by side on channels: memory is read in runs of 32 elements either way."""
        return 32 if self.side.last else 1

    def _slices(self) -> int:
        blocks = -(-self.side.channels // self._lanes())
        positions = self._positions() // (8 * tiles.THREADS // self._lanes())
        return max(1, min(positions, 4 * tiles.MULTIPROCESSORS // blocks, 4096))


def added(device: Device, dtype: str, parts: int, out: Any, slices: int) -> Run:
    """The call: out = the sum of `slices` arrays like it, contiguous at address `parts`."""
    values = pointer(parts), out, ctypes.c_int64(out.size), slices
    return launch(device, tiles.sums(dtype), "added_sums", tiles.blocks(out.size), tiles.THREADS, *values)
