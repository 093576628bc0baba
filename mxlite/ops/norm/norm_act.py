"""Batch normalization with a fused epilogue: the sum and the rectifier after it in a residual network."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ...core.errors import OpAttributeError
from ...core.record import record
from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Shapes, Types
from ..reduce.channels import (
    Block,
    block_shape,
    blocks,
    channel_dot,
    channel_sum,
    spread,
    spread_shape,
    sum_piece,
)
from ..scratch import accumulator, carve, Piece, scratch_bytes
from .norm import around_channels, BatchNorm, channel_size, gradient_line, move_average, norm_gain, spread_at
from .norm_arrays import NormGradients, NormMoments, NormOutputs, NormVectors


@record
class NormActAttrs(BatchNorm.Attrs):
    """Parameters of BatchNorm; `add`: True if an array is added to the result; `relu`: True if negative
    results become 0, or are multiplied by `slope`, a number of [0, 1).
    """

    relu: bool = True
    add: bool = False
    slope: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.slope < 1:
            raise OpAttributeError(f"slope must be in [0, 1), got {self.slope}.")


class NormAct(BatchNorm):
    """Batch normalization, a sum and a rectifier, ``out = max(y, slope * y), y = BatchNorm(data) + addend``.

    data, addend: (N, C, ...) with C at `axis`;  gamma, beta, moving_mean, moving_var: (C,)
    ->  out: as data;  mean, var: (C,), both hidden.

    Attributes, statistics and moving averages are BatchNorm's; `add` and `relu` say which of the two follow.
    A rectifier that is not leaky has the slope 0.
    Data of two bytes is computed in float32 throughout and rounded once.

    Backward keeps `data` and the statistics. It recomputes from them where the rectifier let through, so
    that `out` lives only as long as others need it; with an addend it reads that from `out`, which the next
    convolution keeps anyway, while the addend might not be kept. At 0 the gradient is the slope.
    """

    op_name = "_norm_act"
    inputs = (*BatchNorm.inputs, "addend")  # type: ignore[assignment]
    # d_addend first: while it takes the bytes of d_out, d_data can have those of data.
    backward_in_place = {"d_addend": "d_out", "d_data": ("d_out", "data")}
    Attrs = NormActAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return cls.inputs if a.add else cls.inputs[:-1]

    @classmethod
    def num_visible_outputs(cls, a: Any) -> int:
        return 1

    @classmethod
    def in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        return {"out": ("addend", "data") if a.add else ("data",)}

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        if not a.relu:
            return frozenset(("beta", "out"))
        return frozenset(("beta",) if a.add else ("out",))

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        ins, outs = BatchNorm.infer_shape(a, *shapes[:5])
        return (*ins, *(outs[:1] if a.add else ())), outs

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        data = next((d for d in (dtypes[0], *dtypes[5:]) if d is not None), None)
        ins, outs = super().infer_type(a, data, *dtypes[1:5])
        return (*ins, *(data for _ in dtypes[5:])), outs

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return BatchNorm.flops(a, inputs, outputs) + (a.add + a.relu) * prod(inputs[0])

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return BatchNorm.backward_flops(a, inputs, outputs) + 2 * a.relu * prod(inputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        own = scratch_bytes(_forward_pieces(a, around_channels(a, inputs[0]), dtype))
        return own + BatchNorm.workspace(a, inputs, outputs, dtype)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_backward_pieces(around_channels(a, inputs[0]), dtype))

    @staticmethod
    @grouped
    def forward(
        xp: Any,
        a: Any,
        data: Any,
        vectors: NormVectors,
        addend: Any = None,
        *,
        out: Any,
        mean: Any,
        var: Any,
        work: Any,
        train: bool,
    ) -> None:
        shape = around_channels(a, data.shape)
        pieces = _forward_pieces(a, shape, data.dtype)
        box, columns, wide, below = carve(work, pieces)
        mean = columns[0] if mean is None else mean
        var = columns[1] if var is None else var
        rest, statistics = work[scratch_bytes(pieces) :], NormOutputs(None, mean, var)
        BatchNorm.forward.kernel(xp, a, data, vectors, made=statistics, work=rest, train=train)
        if out is None:
            return
        scale, shift = _line(xp, a, vectors.gamma, vectors.beta, mean, var, columns[2:], wide)
        x, y = data.reshape(shape), out.reshape(shape)
        plus = None if addend is None else addend.reshape(shape)
        for where in blocks(*shape):
            line = _times_plus(xp, x[where], spread_at(scale, where), spread_at(shift, where), box)
            if plus is not None:
                xp.add(line, plus[where], out=line)
            rectify(xp, a, line, below)
            xp.copyto(y[where], line, casting="unsafe")

    @staticmethod
    @grouped
    def backward(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        gamma: Any,
        beta: Any,
        moments: NormMoments,
        out: Any,
        *,
        made: NormGradients,
        work: Any,
        train: bool,
    ) -> None:
        mean, var, moving_mean, moving_var = moments
        d_data, d_gamma, d_beta, d_addend = made
        moves = train and not a.use_global_stats
        shape = around_channels(a, data.shape)
        s = _Scratch(work, shape, data.dtype)
        if d_out is None:
            for grad in made:
                if grad is not None:
                    grad.fill(0)
        else:
            x = data.reshape(shape)
            head = _Head(xp, a, d_out, x, out, (gamma, beta, mean, var), s)
            if d_addend is not None:
                head.settle(d_addend.reshape(shape))
            d_sum, xd_sum, factor = s.columns[:3]
            if moves or d_gamma is not None or d_beta is not None:
                _sums(xp, head, x, s, mean, var, d_sum, xd_sum)
            if d_gamma is not None:
                d_gamma.fill(0) if a.fix_gamma else xp.copyto(d_gamma, xd_sum)
            if d_beta is not None:
                xp.copyto(d_beta, d_sum)
            if d_data is not None:
                norm_gain(xp, a, var, gamma, factor)
                _d_data(xp, head, x, s, mean, var, d_data.reshape(shape), moves)
        if moves:
            step, batch = s.columns[0], s.columns[1]
            move_average(xp, moving_mean, mean, a.momentum, step)
            xp.multiply(var, var, out=batch)  # recompute the batch's variance from 1 / sqrt(var + eps)
            xp.divide(1.0, batch, out=batch)
            xp.subtract(batch, a.eps, out=batch)
            move_average(xp, moving_var, batch, a.momentum, step)


class _Head:
    """The gradient that reaches the sum, a box at a time: d_out where the rectifier let through, else 0."""

    def __init__(self, xp: Any, a: Any, d_out: Any, x: Any, out: Any, stats: Any, s: _Scratch) -> None:
        self.xp, self.d, self.x, self.s = xp, d_out.reshape(x.shape), x, s
        self.masked, self.slope = a.relu, a.slope
        self.out = None if out is None or not a.relu else out.reshape(x.shape)
        if a.relu and self.out is None:
            gamma, beta, mean, var = stats
            self.scale, self.shift = _line(xp, a, gamma, beta, mean, var, s.columns, s.wide[3:])

    def settle(self, target: Any) -> None:
        """Write all of it to `target`, to be read from there."""
        for where in blocks(*self.x.shape):
            here = self[where]
            if not self.xp.may_share_memory(here, target[where]):
                self.xp.copyto(target[where], here, casting="unsafe")
        self.d, self.masked = target, False

    def __getitem__(self, where: Block) -> Any:
        """A box of it, for reading, in the type of sums; it may lie in the scratch `head`."""
        xp, d = self.xp, self.d[where]
        box = self.s.head[: d.size].reshape(d.shape)
        if self.masked:
            positive = self.s.positive[: d.size].reshape(d.shape)
            if self.out is not None:
                xp.less_equal(self.out[where], 0, out=positive)
            else:
                scale, shift = spread_at(self.scale, where), spread_at(self.shift, where)
                xp.less_equal(_times_plus(xp, self.x[where], scale, shift, self.s.head), 0, out=positive)
            xp.logical_not(positive, out=positive)  # also True at nan, which must not be hidden
            if not self.slope:
                return xp.multiply(d, positive, out=box)
            xp.copyto(box, d)
            xp.logical_not(positive, out=positive)
            return xp.multiply(box, self.slope, out=box, where=positive)
        if d.dtype == box.dtype:
            return d
        xp.copyto(box, d)
        return box


class _Scratch:
    """The pieces of backward's `work` by name."""

    __slots__ = ("columns", "head", "line", "part", "positive", "wide")

    def __init__(self, work: Any, shape: tuple[int, int, int], dtype: DType) -> None:
        pieces = carve(work, _backward_pieces(shape, dtype))
        self.head, self.line, self.positive, self.part, self.wide, self.columns = pieces


def rectify(xp: Any, a: Any, y: Any, below: Any) -> None:
    """Apply the rectifier of `relu` and `slope` in place; `below`: scratch of that size if it is leaky."""
    if a.relu and a.slope:
        leaked = xp.multiply(y, a.slope, out=below[: y.size].reshape(y.shape))
        xp.maximum(y, leaked, out=y)
    elif a.relu:
        xp.maximum(y, 0, out=y)


def _forward_pieces(a: Any, shape: tuple[int, int, int], dtype: DType) -> list[Piece]:
    """A box of data; mean, var, scale and shift; the last two spread out; another box if it is leaky."""
    acc = accumulator(dtype)
    _, c, p = shape
    box = _box(shape)
    return [((box,), acc), ((4, c), acc), ((2, *spread_shape(c, p)), acc), ((box * bool(a.slope),), acc)]


def _backward_pieces(shape: tuple[int, int, int], dtype: DType) -> list[Piece]:
    """Boxes of the head gradient, of data and of flags; partial sums; five spread vectors; six columns."""
    n, c, p = shape
    acc, flag = accumulator(dtype), np.dtype(bool)
    size = _box(shape)
    return [
        ((size,), acc),
        ((size,), acc),
        ((size,), flag),
        sum_piece(n, c, p, acc),
        ((5, *spread_shape(c, p)), acc),
        ((6, c), acc),
    ]


def _box(shape: tuple[int, int, int]) -> int:
    return prod(block_shape(*shape))


def _line(
    xp: Any, a: Any, gamma: Any, beta: Any, mean: Any, var: Any, columns: Any, wide: Any
) -> tuple[Any, Any]:
    """Scale and shift of the norm's affine map of the data, spread out; the same bits at each call."""
    factor, offset = columns[0], columns[1]
    norm_gain(xp, a, var, gamma, factor)
    xp.multiply(mean, factor, out=offset)
    xp.subtract(beta, offset, out=offset)
    return spread(xp, factor, wide[0]), spread(xp, offset, wide[1])


def _times_plus(xp: Any, x: Any, scale: Any, shift: Any, box: Any) -> Any:
    """x * scale + shift, at the start of `box`."""
    line = box[: x.size].reshape(x.shape)
    xp.multiply(x, scale, out=line)
    return xp.add(line, shift, out=line)


def _sums(xp: Any, head: _Head, x: Any, s: _Scratch, mean: Any, var: Any, d_sum: Any, xd_sum: Any) -> None:
    """d_sum[c] of the head gradient, and xd_sum[c] of it times (x - mean) / std."""
    d_sum.fill(0)
    xd_sum.fill(0)
    some = s.columns[5]
    for where in blocks(*x.shape):
        d, here = head[where], x[where]
        if here.dtype != s.line.dtype:
            here = s.line[: here.size].reshape(here.shape)
            xp.copyto(here, x[where])
        channel_sum(xp, d, s.part, some[where[1]])
        xp.add(d_sum[where[1]], some[where[1]], out=d_sum[where[1]])
        channel_dot(xp, d, here, s.part, some[where[1]])
        xp.add(xd_sum[where[1]], some[where[1]], out=xd_sum[where[1]])
    xp.multiply(mean, d_sum, out=some)
    xp.subtract(xd_sum, some, out=xd_sum)
    xp.multiply(xd_sum, var, out=xd_sum)


def _d_data(xp: Any, head: _Head, x: Any, s: _Scratch, mean: Any, var: Any, result: Any, moves: bool) -> None:
    """factor * d, plus the terms through the statistics if they are the batch's: slope * x + offset.

    d_data = factor * (d - d_sum / M - (x - mean) / std * xd_sum / M),   M = N * P
    """
    scale = spread(xp, s.columns[2], s.wide[0])
    if moves:
        _, slope, offset = gradient_line(xp, s.columns, mean, var, channel_size(x.shape))
        tilt, shift = spread(xp, slope, s.wide[1]), spread(xp, offset, s.wide[2])
    for where in blocks(*x.shape):
        d = head[where]
        scaled = xp.multiply(d, spread_at(scale, where), out=s.head[: d.size].reshape(d.shape))
        if moves:
            line = _times_plus(xp, x[where], spread_at(tilt, where), spread_at(shift, where), s.line)
            xp.add(scaled, line, out=scaled)
        xp.copyto(result[where], scaled, casting="unsafe")
