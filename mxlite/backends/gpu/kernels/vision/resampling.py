"""Interpolation and adaptive pooling, and their gradients: weighted sums along axes, two axes at a time.

A thread computes one element, forward from what it reads, backward from what has read it: no atomic
operations. The ranges that a gradient looks at are computed first, by a small launch. Images are read and
written once; with more than two axes there are several passes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

from .....ops.vision.resample import Axis, Resampling
from .....ops.vision.resize import (
    AdaptiveAvgPooling2D,
    AdaptiveAvgPooling2DDataGradient,
    BilinearResize2D,
    BilinearResize2DDataGradient,
    resize,
    ResizeDataGradient,
)
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating
from ...compiler.source import kernel, KernelSource, structure
from ...handwritten.each import each, THREADS, typed
from ...handwritten.layout import MOST
from ...rows import answer, table
from ...runtime.device import Device, InOrder, Run
from ...runtime.scratch import padded

KINDS = ("nearest", "linear", "cubic", "mean")
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


_Axis: Any = structure("resample", "Axis")


def _axis(x: Axis) -> Any:
    kinds = KINDS.index(x.kind), ROUNDINGS.index(x.rounding)
    return _Axis(x.ratio, x.shift, x.cubic, x.size, x.out, *kinds, x.exclude)


_ONE = Axis(1, 1, "mean")  # an axis that changes nothing


@functools.cache
def source(dtype: str) -> KernelSource:
    """The kernels of resample.cuh, by what they read and write: t the type of arrays, a that of scratch."""
    text = ""
    for x in "ta":
        for y in "ta":
            head = ["int64 n", f"const {x.upper()} *x", f"{y.upper()} *y"]
            ranges = ["const int *first", "const int *end"]
            tail = ["Axis a", "Axis b", "int inner"]
            body = ["resampled(n, x, y, a, b, inner);"]
            text += kernel(f"resample_{x}{y}", head + tail, body, THREADS)
            body = ["gathered(n, x, y, first, end, a, b, inner);"]
            text += kernel(f"gather_{x}{y}", head + ranges + tail, body, THREADS)
    return typed(dtype, "resample", text)


class Passes:
    """The launches of a map of rows; the last two axes that change come first, as in the reference."""

    def __init__(self, device: Device, m: Resampling, dtype: str, back: bool) -> None:
        self.device, self.m, self.dtype, self.back = device, m, dtype, back
        changed = [i for i in reversed(range(len(m.axes))) if not m.axes[i].same]
        pairs: list[tuple[int, ...]] = []
        while changed:
            several = len(changed) > 1 and changed[0] == changed[1] + 1
            pairs.append((changed[1], changed[0]) if several else (changed[0],))
            changed = changed[len(pairs[-1]) :]
        self.pairs = (pairs[::-1] if back else pairs) or [()]
        shape = [x.out if back else x.size for x in m.axes]
        self.stages: list[tuple[Axis, Axis, int, int]] = []  # axes, inner, elements that are written
        for pair in self.pairs:
            for i in pair:
                shape[i] = m.axes[i].size if back else m.axes[i].out
            a, b = ([_ONE, _ONE] + [m.axes[i] for i in pair])[-2:]
            inner = prod(shape[pair[-1] + 1 :]) if pair else 1
            self.stages.append((a, b, inner, m.rows * prod(shape)))
        self.acc = 8 if dtype == "float64" else 4
        self.between = max((n for *_, n in self.stages[:-1]), default=0)
        self.ranges = max((a.size + b.size for a, b, *_ in self.stages), default=0) if back else 0

    @property
    def fits(self) -> bool:
        sizes = [n for *_, n in self.stages] + [self.m.rows * prod(x.size for x in self.m.axes)]
        return bool(self.stages) and all(n <= MOST for n in sizes)

    @property
    def nbytes(self) -> int:
        return 2 * padded(self.between * self.acc) + 2 * 4 * self.ranges

    def connect(self, x: Any, y: Any, work: Any) -> Run:
        text, device, runs = source(self.dtype), self.device, []
        step = padded(self.between * self.acc)
        boxes = [work[i * step : (i + 1) * step] for i in range(2)]
        table = work[2 * step : 2 * step + 8 * self.ranges]
        given: Any = x
        for k, (a, b, inner, n) in enumerate(self.stages):
            last = k == len(self.stages) - 1
            made = y if last else boxes[k % 2]
            kinds = ("t" if k == 0 else "a") + ("t" if last else "a")
            axes = _axis(a), _axis(b)
            ranges: Sequence[Any] = ()
            if self.back:
                ranges = table[: 4 * self.ranges], table[4 * self.ranges :]
                runs.append(each(device, text, "resample_ranges", a.size + b.size, *ranges, *axes))
            name = ("gather_" if self.back else "resample_") + kinds
            runs.append(each(device, text, name, n, given, made, *ranges, *axes, inner))
            given = made
        return InOrder(runs)


def _row(device: Device, r: Request, of: Any, transposed: bool, back: bool) -> ChosenKernel | None:
    """`of` is the map, `transposed`: the operator is its gradient, `back`: it is run backward."""
    dtype = r.dtypes[0]
    if not floating(dtype):
        return None
    data, out = (r.inputs[1], r.inputs[0]) if transposed else (r.inputs[0], r.outputs[0])
    passes = Passes(device, of.resampling(r.attrs, data, out), str(dtype), back)
    if not passes.fits:
        return None
    (made,) = r.op.output_names(r.attrs)

    def connect(a: Any, x: Any, *shapes_only: Any, work: Any, **rest: Any) -> Run:
        return passes.connect(x, rest[made], work)

    return answer(r, connect, passes.nbytes, "cuda resampling")


def _directions(of: Any, transposed: bool) -> list[Any]:
    return [
        functools.partial(_row, of=of, transposed=transposed, back=b) for b in (transposed, not transposed)
    ]


rows = table(
    *(
        (op, *_directions(of, op is not of))
        for of, gradient in (
            (resize, ResizeDataGradient),
            (BilinearResize2D, BilinearResize2DDataGradient),
            (AdaptiveAvgPooling2D, AdaptiveAvgPooling2DDataGradient),
        )
        for op in (of, gradient)
    )
)
