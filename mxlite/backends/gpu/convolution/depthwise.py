"""Depthwise convolutions with channels last: no product, each channel on its own.

Data is read once for every tap, mostly from the first-level cache, and the output written once. The gradient
in the weight reads both arrays once for every tap; its sums over slices of positions are added up in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ....ops.nn.conv_kernels import Geometry
from ..compiler.kinds import wide
from ..compiler.source import assembled, KernelSource, NAMES, typedefs
from ..handwritten.each import launch
from ..runtime.device import Device, InOrder, Run
from .numbers import fits, Numbers, numbers, sides
from .tiles import MULTIPROCESSORS, THREADS
from .windowed import added, PACK

WEIGHTS = 4096  # numbers that a block keeps in shared memory, as in cuda/depthwise.cuh
LEAST_POSITIONS = 512  # of a slice
MOST_BLOCKS = 65535  # of the second and third axis of a grid


def source(dtype: str, pack: int) -> KernelSource:
    """The kernels "depthwise_gather" and "depthwise_correlate"."""
    bounds = f'extern "C" __global__ void __launch_bounds__({THREADS}, 4)'
    text = (
        f"{bounds} depthwise_gather(\n"
        f"    Convolution g, int lanes, const T *x, const T *w, const T *bias, const T *addend, T *y) {{\n"
        f"    depthwise_gathered<T, C, {pack}>(g, lanes, x, w, bias, addend, y);\n}}\n"
        f"{bounds} depthwise_correlate(Convolution g, int lanes, const T *x, const T *y, C *sums) {{\n"
        f"    depthwise_correlated<T, C, {pack}>(g, lanes, x, y, sums);\n}}\n"
    )
    head = typedefs(T=NAMES[dtype], C=wide(dtype))
    return assembled("types", "index", "convolution", "depthwise", head, text, contract=True)


@dataclass(frozen=True)
class Depthwise:
    """Output (`transposed`: gradient in data), or with `by_weight` the gradient in the weight."""

    device: Device
    g: Geometry
    transposed: bool = False
    by_weight: bool = False

    @property
    def name(self) -> str:
        return f"cuda depthwise {'correlation' if self.by_weight else 'convolution'}"

    @property
    def nbytes(self) -> int:
        g = self.g
        return self._slices() * g.f * g.taps * g.acc.itemsize if self.by_weight else 0

    @property
    def launches(self) -> int:
        return 2 if self.by_weight else 1

    def fits(self) -> bool:
        """True if it is such a convolution, small enough for counters and shared memory."""
        g = self.g
        return g.groups == g.c == g.f and fits(g) and g.taps * PACK <= WEIGHTS

    def connect(self, first: Any, second: Any, out: Any, work: Any, relu: bool = False, **tail: Any) -> Run:
        """The call; arrays as in Gather and Correlate."""
        bias, addend = tail.get("bias"), tail.get("addend")
        g, device = self.g, self.device
        data, made = sides(g, True)
        n = numbers(g, *((made, data) if self.transposed else (data, made)))
        n.transposed, n.relu = self.transposed, relu
        n.positions = g.n * prod(g.size if self.transposed else g.out)
        nbytes = PACK * g.dtype.itemsize
        arrays = (first, second) if self.by_weight else (first, out, addend)
        whole = all(x is None or device.address(x) % nbytes == 0 for x in arrays)
        pack = min(PACK if g.c % PACK == 0 and whole else 1, 16 // g.dtype.itemsize)
        if self.by_weight:
            return self._sums(n, pack, first, second, out, work)
        return self._output(n, pack, (first, second, bias, addend, out))

    def _output(self, n: Numbers, pack: int, arrays: tuple[Any, ...]) -> Run:
        lanes = self._lanes(pack)
        blocks = -(-self.g.c // (lanes * pack))
        rows = -(-n.positions // (THREADS // lanes))
        # Each block loads its weights once: eight blocks per multiprocessor go through all positions in turn.
        share = min(rows, MOST_BLOCKS, max(1, 8 * MULTIPROCESSORS // blocks))
        return self._launch("depthwise_gather", n, pack, arrays, (blocks, share))

    def _sums(self, n: Numbers, pack: int, x: Any, y: Any, out: Any, work: Any) -> Run:
        lanes, slices = self._lanes(pack), self._slices()
        n.slice = -(-n.positions // slices)
        grid = (-(-self.g.c // (lanes * pack)), self.g.taps, slices)
        run = self._launch("depthwise_correlate", n, pack, (x, y, work), grid)
        parts = self.device.address(work)
        return InOrder([run, added(self.device, str(self.g.dtype), parts, out, slices)])

    def _launch(
        self, name: str, n: Numbers, pack: int, arrays: tuple[Any, ...], grid: tuple[int, ...]
    ) -> Run:
        text = source(str(self.g.dtype), pack)
        return launch(self.device, text, name, grid, THREADS, n, self._lanes(pack), *arrays)

    def _lanes(self, pack: int) -> int:
        """Packs side by side: a warp's width, less if there are fewer or their weights would not fit."""
        lanes = 32
        while lanes > 1 and (lanes // 2 * pack >= self.g.c or lanes * pack * self.g.taps > WEIGHTS):
            lanes //= 2
        return lanes

    def _slices(self) -> int:
        g = self.g
        positions = g.n * prod(g.out)
        blocks = -(-g.c // (32 * PACK)) * g.taps
        fill = max(1, 4 * MULTIPROCESSORS // blocks)
        return max(1, min(fill, positions // LEAST_POSITIONS, MOST_BLOCKS))
