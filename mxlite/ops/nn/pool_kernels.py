"""Reference kernels of pooling, for any position of the channel axis.

Arrays are read as (rows, *S, channels): plain ones have each channel of each sample as a row and 1 channel,
channels-last ones have each sample as a row. They are processed in parts that stay in the cache:
some rows, or if a row is too large, some of its positions along the first spatial axis. A part is a small
pooling by itself; positions beyond its edges are padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

from ...core.cached import cached_property
from ...core.dtype import as_dtype
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType
from ..scratch import accumulator, BLOCK, carve, Piece, scratch_bytes
from .windows import output_size, per_axis, Slices, window_slices


def index_type(a: Any) -> DType:
    """The smallest type for the numbers of a window's elements, with one more number for "none"."""
    return as_dtype("uint8") if not a.global_pool and prod(a.kernel) < 255 else as_dtype("int32")


@record
class PoolPart:
    """Some rows, and of the first spatial axis the inputs [begin, end) and outputs [first, stop)."""

    rows: slice
    inputs: slice
    outputs: slice


@record
class Windows:
    """The windows of one call, all defaults filled in."""

    rows: int
    size: Shape
    channels: int
    kernel: Shape
    stride: Shape
    pad: Shape
    out: Shape

    @property
    def shape_in(self) -> Shape:
        return self.rows, *self.size, self.channels

    @property
    def shape_out(self) -> Shape:
        return self.rows, *self.out, self.channels

    @cached_property
    def _step(self) -> tuple[int, int]:
        """Rows of a part, and positions along the first spatial axis of the inputs."""
        each_in, each_out = prod(self.shape_in[1:]), prod(self.shape_out[1:])
        most = max(1, each_in, each_out)
        if most <= BLOCK:
            return max(1, min(self.rows, BLOCK // most)), max(1, self.size[0])
        return 1, max(self.stride[0], BLOCK * self.size[0] // most)

    @property
    def first_rows(self) -> Windows:
        """The windows of the first rows that are processed together: later parts are no larger."""
        return replace(self, rows=min(self.rows, self._step[0]))

    @cached_property
    def forward_parts(self) -> list[PoolPart]:
        """Parts that cover each output once."""
        rows, at_a_time = self._step
        n, o, k, s, p = (v[0] for v in (self.size, self.out, self.kernel, self.stride, self.pad))
        step = o if at_a_time >= n else max(1, at_a_time // s)
        parts = []
        for i in range(0, self.rows, rows):
            for first in range(0, o, max(1, step)):
                stop = min(o, first + step)
                begin = min(n, max(0, first * s - p))
                end = max(begin, min(n, (stop - 1) * s - p + k))
                parts.append(
                    PoolPart(slice(i, min(self.rows, i + rows)), slice(begin, end), slice(first, stop))
                )
        return parts

    @cached_property
    def backward_parts(self) -> list[PoolPart]:
        """Parts that cover each input once."""
        rows, at_a_time = self._step
        n, o, k, s, p = (v[0] for v in (self.size, self.out, self.kernel, self.stride, self.pad))
        parts = []
        for i in range(0, self.rows, rows):
            for begin in range(0, n, at_a_time):
                end = min(n, begin + at_a_time)
                first = min(o, max(0, -((k - 1 - p - begin) // s)))
                stop = max(first, min(o, (end - 1 + p) // s + 1))
                parts.append(
                    PoolPart(slice(i, min(self.rows, i + rows)), slice(begin, end), slice(first, stop))
                )
        return parts

    def slices(self, part: PoolPart) -> Iterator[tuple[int, Slices, Slices]]:
        """For each window element: its number, the part's inputs it reads, and the outputs it belongs to."""
        begin, first = part.inputs.start, part.outputs.start
        return window_slices(
            (part.inputs.stop - begin, *self.size[1:]),
            self.kernel,
            self.stride,
            (1,) * len(self.size),
            (self.pad[0] + begin - first * self.stride[0], *self.pad[1:]),
            (part.outputs.stop - first, *self.out[1:]),
        )

    def largest(self, parts: list[PoolPart]) -> tuple[int, int]:
        """Elements of the largest inputs and the largest outputs of a part."""
        ins = prod(self.shape_in[2:]) * max((_length(p.rows) * _length(p.inputs) for p in parts), default=0)
        outs = prod(self.shape_out[2:]) * max(
            (_length(p.rows) * _length(p.outputs) for p in parts), default=0
        )
        return ins, outs

    def of_inputs(self, x: Any, part: PoolPart) -> Any:
        return x.reshape(self.shape_in)[part.rows, part.inputs]

    def of_outputs(self, x: Any, part: PoolPart) -> Any:
        return x.reshape(self.shape_out)[part.rows, part.outputs]


def _length(x: slice) -> int:
    return int(x.stop - x.start)


@lru_cache(maxsize=4096)
def windows(a: Any, data: Shape, last: bool = False) -> Windows:
    """The windows of a call on `data`: (N, C, *S), or with `last` (N, *S, C). Raises ShapeError."""
    size = data[1:-1] if last else data[2:]
    rows, channels = (data[0], data[-1]) if last else (prod(data[:2]), 1)
    rank = len(size)
    kernel = size if a.global_pool else a.kernel
    stride = (1,) * rank if a.global_pool else per_axis("stride", a.stride, rank, 1)
    same = a.pooling_convention == "same" and not a.global_pool
    pad = (0,) * rank if a.global_pool or same else per_axis("pad", a.pad, rank, 0)
    if same:
        out = tuple(-(-n // s) for n, s in zip(size, stride))
    else:
        out = output_size(size, kernel, stride, (1,) * rank, pad, a.pooling_convention == "full")
    return Windows(rows, size, channels, kernel, stride, pad, out)


def forward_pieces(w: Windows, dtype: DType) -> list[Piece]:
    """Three arrays, each large enough for the outputs of a part."""
    return [((w.largest(w.first_rows.forward_parts)[1],), accumulator(dtype))] * 3


def backward_pieces(w: Windows, dtype: DType) -> list[Piece]:
    """One array for the inputs of a part, two for its outputs."""
    ins, outs = w.largest(w.first_rows.backward_parts)
    acc = accumulator(dtype)
    return [((ins,), acc), ((outs,), acc), ((outs,), acc)]


def forward_bytes(w: Windows, dtype: DType) -> int:
    """Scratch of `pool`."""
    return scratch_bytes(forward_pieces(w, dtype))


def backward_bytes(w: Windows, dtype: DType) -> int:
    """Scratch of `spread`."""
    return scratch_bytes(backward_pieces(w, dtype))


def pool(xp: Any, a: Any, w: Windows, data: Any, out: Any, index: Any, work: Any) -> None:
    """out: the result for each window; index: the number of each maximum. Either may be None."""
    scratch = carve(work, forward_pieces(w, data.dtype))
    for part in w.forward_parts:
        x = w.of_inputs(data, part)
        y = None if out is None else w.of_outputs(out, part)
        if a.pool_type == "max":
            _max(xp, w, part, x, y, None if index is None else w.of_outputs(index, part), *scratch)
        elif y is not None:
            _sum(xp, a, w, part, x, y, *scratch[:2])


def spread(
    xp: Any, a: Any, w: Windows, d_out: Any, data: Any, out: Any, index: Any, d_data: Any, work: Any
) -> None:
    """d_data: the gradient of `pool` in its data. Only lp reads `data` and `out`, only max `index`."""
    first, second, third = carve(work, backward_pieces(w, d_data.dtype))
    for part in w.backward_parts:
        d, result = w.of_outputs(d_out, part), w.of_inputs(d_data, part)
        each = flat_like(second, d)
        if a.pool_type != "max":
            xp.copyto(each, d)
        if a.pool_type == "avg":
            _divide(xp, a, w, part, each)
        elif a.pool_type == "lp":
            _divide_by_power(xp, a, each, w.of_outputs(out, part), third)
        grad = flat_like(first, result)
        grad.fill(0)
        for k, inside, outputs in w.slices(part):
            place, term = grad[:, *inside], each[:, *outputs]
            if a.pool_type == "max":
                chosen = flat_like(third.view("bool"), term)
                xp.equal(w.of_outputs(index, part)[:, *outputs], k, out=chosen)
                term = flat_like(second, term)
                term.fill(0)
                xp.copyto(term, d[:, *outputs], where=chosen)
            elif a.pool_type == "lp" and a.p_value > 1:
                x = w.of_inputs(data, part)[:, *inside]
                for _ in range(a.p_value - 1):
                    xp.multiply(x, term, out=flat_like(third, term))
                    term = flat_like(third, term)
            xp.add(place, term, out=place)
        xp.copyto(result, grad, casting="unsafe")


def choose(xp: Any, w: Windows, data: Any, index: Any, out: Any, work: Any) -> None:
    """out: the element that `index` selects in each window; 0 if it selects none."""
    first = carve(work, forward_pieces(w, data.dtype))[0]
    for part in w.forward_parts:
        x, y, which = w.of_inputs(data, part), w.of_outputs(out, part), w.of_outputs(index, part)
        y.fill(0)
        for k, inside, outputs in w.slices(part):
            chosen = flat_like(first.view("bool"), which[:, *outputs])
            xp.equal(which[:, *outputs], k, out=chosen)
            xp.copyto(y[:, *outputs], x[:, *inside], where=chosen)


def flat_like(scratch: Any, x: Any) -> Any:
    """The first part of flat scratch, in the shape of x."""
    return scratch[: x.size].reshape(x.shape)


def _max(
    xp: Any, w: Windows, part: PoolPart, x: Any, y: Any, index: Any, first: Any, second: Any, third: Any
) -> None:
    """y: the maxima; index: the first window element that equals its maximum, or is nan. Either may be
    None.
    """
    best = flat_like(first, y if y is not None else index)
    best.fill(-xp.inf)
    for _, inside, outputs in w.slices(part):
        place = best[:, *outputs]
        xp.maximum(place, x[:, *inside], out=place)
    if y is not None:
        xp.copyto(y, best, casting="unsafe")
    if index is None:
        return
    # An element k that equals the maximum gets count - k; the largest of these belongs to the first one.
    count = prod(w.kernel)
    index.fill(0)
    for k, inside, outputs in w.slices(part):
        place = index[:, *outputs]
        equal, term = flat_like(second.view("bool"), place), flat_like(third.view(index.dtype), place)
        nan = flat_like(third.view("bool"), place)  # a nan is the maximum of its windows
        xp.not_equal(x[:, *inside], x[:, *inside], out=nan)
        xp.equal(x[:, *inside], best[:, *outputs], out=equal)
        xp.logical_or(equal, nan, out=equal)
        xp.multiply(equal, index.dtype.type(count - k), out=term)
        xp.maximum(place, term, out=place)
    xp.subtract(index.dtype.type(count), index, out=index)


def _sum(xp: Any, a: Any, w: Windows, part: PoolPart, x: Any, y: Any, first: Any, second: Any) -> None:
    """y: the sums, means or p-norms."""
    total = flat_like(first, y)
    total.fill(0)
    for _, inside, outputs in w.slices(part):
        place, term = total[:, *outputs], x[:, *inside]
        if a.pool_type == "lp":
            power = flat_like(second, term)
            xp.copyto(power, term)
            for _ in range(a.p_value - 1):
                xp.multiply(power, term, out=power)
            term = power
        xp.add(place, term, out=place)
    if a.pool_type == "avg":
        _divide(xp, a, w, part, total)
    elif a.pool_type == "lp" and a.p_value > 1:
        (xp.sqrt if a.p_value == 2 else xp.cbrt)(total, out=total)
    xp.copyto(y, total, casting="unsafe")


def counts(a: Any, w: Windows) -> list[list[int]]:
    """For each axis and each output along it: the number of its window's positions that count, at least 1."""
    padded = a.count_include_pad is not False
    per_axis = []
    for n, k, s, p, o in zip(w.size, w.kernel, w.stride, w.pad, w.out):
        starts = [i * s - p for i in range(o)]
        ends = [min(start + k, n + p) for start in starts]
        if not padded:
            starts, ends = [max(0, i) for i in starts], [min(n, i) for i in ends]
        per_axis.append([max(1, e - b) for b, e in zip(starts, ends)])
    return per_axis


def _divide(xp: Any, a: Any, w: Windows, part: PoolPart, x: Any) -> None:
    """Divide by the number of elements that count in each window."""
    for axis, all_counts in enumerate(counts(a, w)):
        here = xp.array(all_counts[part.outputs] if axis == 0 else all_counts, dtype=x.dtype)
        xp.divide(x, here.reshape(-1, *(1,) * (len(w.size) - axis)), out=x)


def _divide_by_power(xp: Any, a: Any, x: Any, out: Any, scratch: Any) -> None:
    """Divide by out^(p - 1), the norm's factor in its slope. If out is 0 all of its window is: then divide by
    1."""
    for _ in range(a.p_value - 1):
        divisor = flat_like(scratch, out)
        xp.equal(out, 0, out=divisor, casting="unsafe")
        xp.add(out, divisor, out=divisor)
        xp.divide(x, divisor, out=x)
