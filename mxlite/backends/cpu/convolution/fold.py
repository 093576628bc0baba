"""Columns of windows folded back: each element of data is the sum of its taps (col2im), as generated code.

Along an axis, the taps of an element lie a stride apart, in windows side by side:

    v = position + pad,   q = v // stride,   r = v % stride
    taps r, r + stride, r + 2 stride, ...     of windows q, q - 1, q - 2, ...

So an element is written once, and threads share them. The order of a sum is that of the windows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import product
from math import ceil, prod
from typing import Any, NamedTuple

from ....graph.ir import Shape
from ....te.computation import Computation, Tensor
from ...nests.build import nests_of
from ...nests.nest import Nests
from ..compiled.nests import Computed
from ..onednn import Run

MOST_TAPS = 16  # of one element, in all windows
SHORT = 8
"""Elements of a run, below which numpy takes longer to begin to add it than to add it: neighbours along the
last axis in one window, all taps of a stride or of an only window."""
MOST_PLACES = 1 << 21
"""Most elements of the columns, and positions along an axis: quotients of float32 numbers are exact then."""


class Windows(NamedTuple):
    """Windows of `samples`: for each axis how many, the size of the data, kernel, stride and pad.

    Columns are (samples, *out, *kernel, channels), or have their channels before the kernel (`by_channel`).
    `adds`: what is there already is added.
    """

    samples: int
    channels: int
    out: Shape
    size: Shape
    kernel: Shape
    stride: Shape
    pad: Shape
    by_channel: bool
    adds: bool


class Fold(Computed):
    """data[s, position, c] = sum over windows of columns[s, window, tap, c].

    Raises LookupError where there is no code, or where adding tap by tap is as good.
    """

    def __init__(self, windows: Windows) -> None:
        w = windows
        elements = w.samples * prod(w.out) * prod(w.kernel) * w.channels
        places = [n + p for n, p in zip(w.size, w.pad)]
        if max(elements, places[-1] * w.channels, *places) > MOST_PLACES or not elements:
            raise LookupError
        run = min(w.kernel[-1], w.stride[-1]) if w.out[-1] > 1 else w.kernel[-1]
        if run * w.channels >= SHORT:
            raise LookupError
        if prod(min(o, ceil(k / s)) for o, k, s in zip(w.out, w.kernel, w.stride)) > MOST_TAPS:
            raise LookupError
        super().__init__(lambda: _nests(windows))

    def connect(self, columns: Any, data: Any) -> Run:
        """The call; `data` is contiguous. It takes no scratch."""
        return self.run_of(None, columns=columns, before=data, out=data)


@functools.lru_cache(maxsize=256)
def _nests(w: Windows) -> Nests:
    t = Computation()
    rank = len(w.size)
    # An axis of length 1 is behind all, that of the index. Vectors go along the last positions and channels.
    shape = (w.samples, *w.size[:-1], w.size[-1] * w.channels, 1)
    before = t.input("before", shape)
    columns = t.input("columns", (*(1,) * (rank + 1), w.samples * prod(w.out) * prod(w.kernel) * w.channels))
    *positions, last = (t.index(before, 1 + i) for i in range(rank))
    x = _quotient(t, last, w.channels)
    channel = last - x * t.constant(w.channels)
    axes = [
        list(_taps(t, v, *axis))
        for v, *axis in zip((*positions, x), w.out, w.kernel, w.stride, w.pad, strict=True)
    ]
    across, apart = (prod(w.kernel), 1) if w.by_channel else (1, w.channels)
    total = None
    for taps in product(*axes):
        window, tap, inside = t.index(before, 0), t.number(0.0), None
        for (o, k, there), count, width in zip(taps, w.out, w.kernel):
            window = window * t.constant(count) + o
            tap = tap * t.constant(width) + k
            inside = there if inside is None else t("min", inside, there)
        at = (window * t.constant(prod(w.kernel) * w.channels) + tap * t.constant(apart)) + (
            channel * t.constant(across)
        )
        term = t.where("ge", inside, 0.0, t.pick(columns, at, -1), 0.0)
        total = term if total is None else total + term
    assert total is not None
    dtypes = {"columns": "float32", "before": "float32", "out": "float32"}
    if w.adds:
        total = before + total
    found = nests_of(t, {"out": total}, {"out": shape}, dtypes, {"out": frozenset({"before"})})
    assert found is not None
    return found


def _taps(
    t: Computation, position: Tensor, out: int, kernel: int, stride: int, pad: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """(window, tap, a number that is negative where there is none) of each tap of a position of an axis."""
    v = position + t.constant(pad)
    if ceil(kernel / stride) > out:
        each = [(t.constant(o), v - t.constant(o * stride)) for o in range(out)]
    else:
        q = _quotient(t, v, stride)
        r = v - q * t.constant(stride)
        each = [(q - t.constant(j), r + t.constant(j * stride)) for j in range(ceil(kernel / stride))]
    for window, tap in each:
        inside = t("min", window, t.constant(out - 1) - window)
        yield window, tap, t("min", inside, t("min", tap, t.constant(kernel - 1) - tap))


def _quotient(t: Computation, x: Tensor, by: int) -> Tensor:
    """x // by, for whole numbers up to MOST_PLACES."""
    return x if by == 1 else t.floor((x + t.constant(0.5)) * t.constant(1 / by))
