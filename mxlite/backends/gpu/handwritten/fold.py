"""Reductions over axes, as runs of the kernels of cuda/fold.cuh.

An array is read once, in packs of 16 bytes. With few results and much to read, segments of a
length that follows from the shapes are reduced separately, their results go to scratch, and a second kernel
reduces those: the order of a sum is the same on every device, wherever arrays lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ....core.dtype import as_dtype
from ....graph.ir import Shape
from ....graph.opdef import DType
from ...base import ChosenKernel, Request
from ..compiler.kinds import computed_in, floating, kind, known
from ..compiler.source import assembled, KernelSource, NAMES, structure, typedefs
from ..rows import answer
from ..runtime.device import Device, InOrder, nothing, Run
from .each import launch
from .layout import collapsed, COLUMN_THREADS, Divisor, Layout, MOST, power_of_two, rows

SAME, SQUARE, SIZE, KNOWN_OR_0, KNOWN_OR_1, TRUTH, ABOVE, POWER, SPREAD, PRODUCT = range(10)
"""Operands of a reduction: an array, an array and a number for each result, two arrays."""

ADD, MULTIPLY, LARGEST, SMALLEST = range(4)
"""Combining functions."""

PLAIN, DIVIDED, ROOT, LOGARITHM, NEGATED, TRUE_OR_NOT, FINITE = range(7)
"""Finishing functions applied to a result: none, division by the number, ..."""

MOST_AXES = 3
LINE_THREADS = 256
HELD = 8  # packs that a thread reads, about
BLOCKS = 1024  # enough work for any device
LEAST_STRETCH = 1024  # packs of a segment


Operand: Any = structure("fold", "Operand")
Parameters: Any = structure("fold", "Fold", Divisor=Divisor, Operand=Operand)


def source(dtype: DType, *made: DType) -> KernelSource:
    """The kernels for arrays of one dtype, whose results are of that or of `made`."""
    types = (
        typedefs(T=NAMES[str(dtype)], C=computed_in(dtype, *made))
        + f"enum {{ WIDTH = {width_of(dtype)} }};\n"
    )
    whole = "" if floating(dtype) else "#define WHOLE\n"
    return assembled("types", types, whole, "math", "index", "whole", "group", "fold")


def width_of(dtype: DType) -> int:
    """Elements of one vector load: 16 bytes, at most 8."""
    return min(8, 16 // dtype.itemsize)


def sum_type(*dtypes: DType) -> DType:
    """The accumulator dtype for arrays of these types and their sums."""
    return as_dtype({"float": "float32", "double": "float64"}.get(computed_in(*dtypes), "int64"))


class Fold:
    """Reduction of an array of `shape` over the axes along which `target`, of as many axes, is 1 long.

    `others` is the shape of one more array, if any, which broadcasts to `shape`. `shifted`: there is a number
    for each result. `made`: the type of results, if it may be another. `workspace` is in bytes.
    """

    def __init__(
        self, device: Device, dtype: DType, shape: Shape, target: Shape, map: int = SAME, combine: int = ADD,
        finish: int = PLAIN, number: float = 0.0, others: Sequence[Shape] = (), shifted: bool = False,
        split: bool = True, made: DType | None = None,
    ) -> None:  # fmt: skip
        self.device, self.dtype, self.shifted = device, dtype, shifted
        self.types = (dtype,) if made is None else (dtype, made)
        self.outputs = prod(target)
        self.fits = known(dtype)
        self.second: Fold | None = None
        self.splits = 1
        self.workspace = 0
        self.made = Parameters(number=number, map=map, combine=combine, finish=finish)
        if not self.outputs or not self.fits:
            return
        if prod(shape):
            self._lay(*collapsed(shape, [target, *others]))
        else:
            self._lay((self.outputs, 0), [(1, 0), *[(0, 0) for _ in others]])
        if split and self.fits:
            self._split()

    def _lay(self, lengths: Shape, strides: Sequence[Shape]) -> None:
        """Lay out axes, packs and threads."""
        kept = [i for i, s in enumerate(strides[0]) if s]
        folded = [i for i, s in enumerate(strides[0]) if not s]
        self.fits = len(kept) <= MOST_AXES and len(folded) <= MOST_AXES
        if not self.fits:
            return
        self.lines = not kept or (bool(folded) and folded[-1] > kept[-1])
        width = width_of(self.dtype)
        self.pack = width if lengths[-1] % width == 0 and not (self.shifted and not self.lines) else 1
        packed = [*lengths[:-1], lengths[-1] // self.pack]
        own, step = [0] * len(lengths), 1
        for axis in reversed(range(len(lengths))):
            own[axis], step = step, step * lengths[axis]
        made = self.made
        for operand, s in zip((made.x, made.y), (own, *strides[1:])):
            for axes, into in ((kept, operand.kept), (folded, operand.folded)):
                for at, axis in enumerate(axes, 3 - len(axes)):
                    into[at] = s[axis]
        for name, axes in (("kept", kept), ("folded", folded)):
            n = [1, 1, 1, *(packed[i] for i in axes)][-2:]
            for i in (0, 1):
                setattr(made, f"{name}{i + 1}", Divisor(max(1, n[i])))
        self.results = self.outputs if self.lines else self.outputs // self.pack
        self.length = prod(packed[i] for i in folded)
        self.fits = self.results <= MOST and self.length <= MOST and self.outputs <= MOST
        made.simple = len(strides) == 1 and len(folded) <= 1
        made.outputs, made.length = self.outputs, self.length
        self._threads(self.length)

    def _threads(self, stretch: int) -> None:
        self.made.stretch = stretch
        if self.lines:
            self.layout = rows(self.results, max(1, stretch), HELD, LINE_THREADS)
            self.made.group = self.layout.group
        else:
            x = min(32, power_of_two(self.results))
            y = min(COLUMN_THREADS // x, power_of_two(max(1, stretch)))
            self.layout = Layout((-(-self.results // x), 1, 1), (x, y, 1), 0)

    def _split(self) -> None:
        blocks = self.layout.grid[0]
        least = LEAST_STRETCH if self.lines else 8 * self.layout.block[1]
        if blocks >= BLOCKS // 2 or self.length <= 2 * least:
            return
        stretch = max(least, -(-self.length * blocks // BLOCKS))
        self.splits = -(-self.length // stretch)
        self._threads(stretch)
        made, kind_of_sum = self.made, sum_type(*self.types)
        shape = (self.splits, self.outputs)
        how = SAME, made.combine, made.finish, made.number, (), self.shifted, False
        self.second = Fold(self.device, kind_of_sum, shape, (1, self.outputs), *how)
        made.finish = PLAIN
        self.workspace = prod(shape) * kind_of_sum.itemsize

    def call(self, x: Any, out: Any, work: Any, others: Sequence[Any] = (), shift: Any = None) -> Run:
        """The run for these arrays. `shift`, of `sum_type`."""
        if not self.outputs:
            return nothing
        device, made = self.device, Parameters.from_buffer_copy(self.made)
        item = self.dtype.itemsize
        for operand, array in zip((made.x, made.y), (x, *others)):
            operand.at = device.address(array)
        made.shift = None if shift is None else device.address(shift)
        places = [o.at for o in (made.x, made.y) if o.at]
        made.vector = all(a % (item * self.pack) == 0 for a in places)
        second: list[Run] = []
        if self.second is None:
            made.out, made.kind = device.address(out), kind(out.dtype)
        else:
            kind_of_sum = sum_type(*self.types)
            part = work[: self.workspace].view(kind_of_sum).reshape(self.splits, self.outputs)
            made.out, made.kind = device.address(part), kind(kind_of_sum)
            second = [self.second.call(part, out, work, shift=shift)]
        name = f"fold_{'lines' if self.lines else 'columns'}_{'wide' if self.pack > 1 else 'single'}"
        grid = self.layout.grid[0], self.splits
        first = launch(device, source(*self.types), name, grid, self.layout.block, made)
        return InOrder([first, *second]) if second else first


def folded(r: Request, fold: Fold, name: str) -> ChosenKernel | None:
    """The kernel that reduces the first input to the one output; None if `fold` has none."""

    def connect(a: Any, data: Any, *rest: Any, work: Any = None, **outputs: Any) -> Run:
        (out,) = outputs.values()
        return fold.call(data, out, work)

    return answer(r, connect, fold.workspace, name) if fold.fits else None
