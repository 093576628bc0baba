"""Batch normalization (S. Ioffe, C. Szegedy, 2015, "Batch normalization: accelerating deep network
training")."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_kind, Shapes, Types
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
from ..scratch import accumulator, carve, in_accumulator, Piece, scratch_bytes
from .norm_arrays import NormMoments, NormOutputs, NormVectors


class BatchNorm(Op):
    """Normalize each channel over the batch, ``out = (data - mean) / sqrt(var + eps) * gamma + beta``.

    data: (N, C, ...) with C at `axis`;  gamma, beta, moving_mean, moving_var: (C,)
    ->  out: as data;  mean, var: (C,). As in MXNet the output named `var` is the inverse standard deviation.

    Training takes the biased variance of the batch. **Forward never touches the moving averages; backward
    moves them**, ``moving = moving * momentum + batch * (1 - momentum)``, once for each call, so a recomputed
    forward changes nothing. `use_global_stats`, and inference, normalize by the moving averages instead,
    which then are constants to the gradient and stay as they are. (MXNet 1.9.1 mixes both formulas in a
    backward that follows an inference forward; here it is the gradient of what ran.)

    `fix_gamma` (the default!) counts gamma as 1 and gives it the gradient 0; the array itself is not
    overwritten. Statistics are float32 for two-byte data. `cudnn_off` has no effect.

    The variance is that of centred data, in two passes, not E[x^2] - E[x]^2, which loses all digits if the
    mean is large.
    """

    inputs = ("data", "gamma", "beta", "moving_mean", "moving_var")
    outputs = ("out", "mean", "var")
    hidden = 2
    accepts = "float"
    typed_by_data = True
    aux = ("moving_mean", "moving_var")
    inferred = ("gamma", "beta", "moving_mean", "moving_var")
    initial = {"moving_mean": '["zero", {}]', "moving_var": '["one", {}]'}
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}
    backward_mutates = ("moving_mean", "moving_var")
    cheap = True

    @record
    class Attrs:
        eps: float = 1e-3
        momentum: float = 0.9
        fix_gamma: bool = True
        use_global_stats: bool = False
        output_mean_var: bool = False
        axis: int = 1
        cudnn_off: bool = False
        min_calib_range: float | None = None
        max_calib_range: float | None = None

        def __post_init__(self) -> None:
            if not self.eps > 0:
                raise OpAttributeError(f"eps must be above 0, got {self.eps}.")

    @classmethod
    def num_visible_outputs(cls, a: Any) -> int:
        return 3 if a.output_mean_var else 1

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        if not -len(data) <= a.axis < len(data):
            raise ShapeError(f"axis {a.axis} is not an axis of data {data}.")
        channel = (data[a.axis],)
        return (data, *(channel,) * 4), (data, channel, channel)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        data = dtypes[0]
        require_kind(cls, data)
        acc = in_accumulator(data, cls.inputs[1:], dtypes[1:])
        if data is None:
            return dtypes, (None,) * 3
        return (data, *(acc,) * 4), (data, acc, acc)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return (2 if a.use_global_stats else 6) * prod(inputs[0])

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 7 * prod(inputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(around_channels(a, inputs[0]), dtype))

    backward_workspace = workspace

    @staticmethod
    @grouped
    def forward(
        xp: Any, a: Any, data: Any, vectors: NormVectors, *, made: NormOutputs, work: Any, train: bool
    ) -> None:
        gamma, beta, moving_mean, moving_var = vectors
        out, mean, var = made
        shape = around_channels(a, data.shape)
        x = data.reshape(shape)
        s = _Scratch(work, shape, x.dtype)
        spread_out = s.columns[0]
        mean = s.columns[1] if mean is None else mean
        if train and not a.use_global_stats:
            _mean_and_square(xp, x, s, mean, spread_out)
            xp.multiply(spread_out, 1.0 / _channel_size(shape), out=spread_out)
        else:
            xp.copyto(mean, moving_mean)
            xp.copyto(spread_out, moving_var)
        xp.add(spread_out, a.eps, out=spread_out)
        xp.sqrt(spread_out, out=spread_out)
        if var is None:
            var = spread_out
        xp.divide(1.0, spread_out, out=var)
        if out is None:
            return
        factor, offset = s.columns[2], s.columns[3]
        norm_gain(xp, a, var, gamma, factor)
        xp.multiply(mean, factor, out=offset)
        xp.subtract(beta, offset, out=offset)
        scale, shift = spread(xp, factor, s.wide[0]), spread(xp, offset, s.wide[1])
        y = out.reshape(shape)
        for where in blocks(*shape):
            target = y[where] if s.dtype == y.dtype else s.box_like(y[where])
            xp.multiply(x[where], _spread_at(scale, where), out=target)
            xp.add(target, _spread_at(shift, where), out=target)
            if s.dtype != y.dtype:
                xp.copyto(y[where], target, casting="unsafe")

    @staticmethod
    @grouped
    def backward(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        gamma: Any,
        moments: NormMoments,
        *,
        d_data: Any,
        d_gamma: Any,
        d_beta: Any,
        work: Any,
        train: bool,
    ) -> None:
        mean, var, moving_mean, moving_var = moments
        moves = train and not a.use_global_stats
        shape = around_channels(a, data.shape)
        x = data.reshape(shape)
        s = _Scratch(work, shape, x.dtype)
        if d_out is None:  # a gradient arrives for a statistic alone; MXNet gives it no effect
            for grad in (d_data, d_gamma, d_beta):
                if grad is not None:
                    grad.fill(0)
        else:
            d = d_out.reshape(shape)
            d_sum, xd_sum = s.columns[0], s.columns[1]
            if moves or d_gamma is not None or d_beta is not None:
                _gradient_sums(xp, d, x, s, mean, var, d_sum, xd_sum)
            if d_gamma is not None:
                d_gamma.fill(0) if a.fix_gamma else xp.copyto(d_gamma, xd_sum)
            if d_beta is not None:
                xp.copyto(d_beta, d_sum)
            if d_data is not None:
                factor = s.columns[2]
                norm_gain(xp, a, var, gamma, factor)
                if moves:
                    _d_data(xp, d, x, s, mean, var, d_data.reshape(shape))
                else:
                    scale = spread(xp, factor, s.wide[0])
                    result = d_data.reshape(shape)
                    for where in blocks(*shape):
                        xp.multiply(d[where], _spread_at(scale, where), out=result[where], casting="unsafe")
        if moves:
            step, batch = s.columns[0], s.columns[1]
            _move_average(xp, moving_mean, mean, a.momentum, step)
            _variance(xp, a, var, batch)
            _move_average(xp, moving_var, batch, a.momentum, step)


class BatchNorm_v1(BatchNorm):
    """Batch normalization as old files name it: BatchNorm with the channels on axis 1.

    data: (N, C, ...);  gamma, beta, moving_mean, moving_var: (C,)  ->  out: as data;  mean, var: (C,).
    """

    @record
    class Attrs:
        eps: float = 1e-3
        momentum: float = 0.9
        fix_gamma: bool = True
        use_global_stats: bool = False
        output_mean_var: bool = False
        axis: ClassVar[int] = 1


class ContribSyncBatchNorm(BatchNorm):
    """Batch normalization over the batches of all ranks of a job: BatchNorm with the channels on axis 1.

    data: (N, C, ...);  gamma, beta, moving_mean, moving_var: (C,)  ->  out: as data;  mean, var: (C,). As in
    MXNet `var`, if it is an output, is the variance itself, not BatchNorm's inverse deviation. `ndev` and
    `key` have no effect: a step that is planned for several ranks has the nodes of `norm_over_ranks.py`
    instead of this one, and anything else one batch.
    """

    op_name = "_contrib_SyncBatchNorm"

    @record
    class Attrs:
        key: str
        eps: float = 1e-3
        momentum: float = 0.9
        fix_gamma: bool = True
        use_global_stats: bool = False
        output_mean_var: bool = False
        ndev: int = 1
        axis: ClassVar[int] = 1

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        nbytes = BatchNorm.backward_workspace(a, inputs, outputs, dtype)
        return nbytes + inputs[0][1] * accumulator(dtype).itemsize if a.output_mean_var else nbytes

    @staticmethod
    @grouped
    def forward(
        xp: Any, a: Any, data: Any, vectors: NormVectors, *, made: NormOutputs, work: Any, train: bool
    ) -> None:
        BatchNorm.forward.kernel(xp, a, data, vectors, made=made, work=work, train=train)
        if a.output_mean_var and made.var is not None:
            _variance(xp, a, made.var, made.var)

    @staticmethod
    @grouped
    def backward(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        gamma: Any,
        moments: NormMoments,
        *,
        d_data: Any,
        d_gamma: Any,
        d_beta: Any,
        work: Any,
        train: bool,
    ) -> None:
        if a.output_mean_var:
            var = moments.var
            begin = BatchNorm.backward_workspace(a, (data.shape,), (), data.dtype)
            factor = work[begin : begin + var.nbytes].view(var.dtype)
            xp.add(var, a.eps, out=factor)
            xp.sqrt(factor, out=factor)
            xp.divide(1.0, factor, out=factor)
            moments = moments._replace(var=factor)
        outs = {"d_data": d_data, "d_gamma": d_gamma, "d_beta": d_beta}
        BatchNorm.backward.kernel(xp, a, d_out, data, gamma, moments, **outs, work=work, train=train)


def _variance(xp: Any, a: Any, factor: Any, out: Any) -> None:
    """out = the variance whose 1 / sqrt(var + eps) is `factor`."""
    xp.multiply(factor, factor, out=out)
    xp.divide(1.0, out, out=out)
    xp.subtract(out, a.eps, out=out)


def around_channels(a: Any, shape: Shape) -> tuple[int, int, int]:
    """(N, C, P): elements before, at and after the channel axis."""
    axis = a.axis % len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def _channel_size(shape: tuple[int, int, int]) -> int:
    """Numbers of one channel, at least 1: the mean of none is taken as 0."""
    return max(1, shape[0] * shape[2])


def _pieces(shape: tuple[int, int, int], dtype: DType) -> list[Piece]:
    """A box of data; another for two-byte data; partial sums; three vectors spread out; six columns."""
    n, c, p = shape
    acc = accumulator(dtype)
    size = prod(block_shape(n, c, p))
    return [
        ((size,), acc),
        ((size if acc != dtype else 0,), acc),
        sum_piece(n, c, p, acc),
        ((3, *spread_shape(c, p)), acc),
        ((6, c), acc),
    ]


class _Scratch:
    """The pieces of `work` by name."""

    __slots__ = ("box", "columns", "dtype", "other", "part", "wide")

    def __init__(self, work: Any, shape: tuple[int, int, int], dtype: DType) -> None:
        self.box, self.other, self.part, self.wide, self.columns = carve(work, _pieces(shape, dtype))
        self.dtype = self.box.dtype

    def box_like(self, x: Any) -> Any:
        """The first part of the box, in the shape of x."""
        return self.box[: x.size].reshape(x.shape)


def _spread_at(wide: Any, where: Block) -> Any:
    """The part of a spread vector that belongs to a box."""
    return wide[where[1:]] if wide.shape[1] > 1 else wide[where[1]]


def norm_gain(xp: Any, a: Any, var: Any, gamma: Any, out: Any) -> None:
    """out = gamma / std."""
    if a.fix_gamma:
        xp.copyto(out, var)
    else:
        xp.multiply(var, gamma, out=out)


def _move_average(xp: Any, moving: Any, batch: Any, momentum: float, step: Any) -> None:
    xp.multiply(batch, 1.0 - momentum, out=step)
    xp.multiply(moving, momentum, out=moving)
    xp.add(moving, step, out=moving)


def _mean_and_square(xp: Any, x: Any, s: _Scratch, mean: Any, square: Any) -> None:
    """mean[c] of x, and square[c], the sum of (x - mean)^2."""
    n, c, p = x.shape
    channel_sum(xp, x, s.part, mean)
    xp.multiply(mean, 1.0 / _channel_size(x.shape), out=mean)
    wide = spread(xp, mean, s.wide[0])
    square.fill(0)
    for where in blocks(n, c, p):
        centred = s.box_like(x[where])
        xp.subtract(x[where], _spread_at(wide, where), out=centred)
        some = s.columns[5][where[1]]
        channel_dot(xp, centred, centred, s.part, some)
        xp.add(square[where[1]], some, out=square[where[1]])


def _gradient_sums(
    xp: Any, d: Any, x: Any, s: _Scratch, mean: Any, var: Any, d_sum: Any, xd_sum: Any
) -> None:
    """d_sum[c] of d, and xd_sum[c] of d * (x - mean) / std, which also is gamma's gradient."""
    channel_sum(xp, d, s.part, d_sum)
    some = s.columns[5]
    if s.dtype == x.dtype:
        channel_dot(xp, d, x, s.part, xd_sum)
    else:
        xd_sum.fill(0)
        for where in blocks(*x.shape):
            left = s.box_like(x[where])
            right = s.other[: left.size].reshape(left.shape)
            xp.copyto(left, x[where])
            xp.copyto(right, d[where])
            channel_dot(xp, left, right, s.part, some[where[1]])
            xp.add(xd_sum[where[1]], some[where[1]], out=xd_sum[where[1]])
    xp.multiply(mean, d_sum, out=some)
    xp.subtract(xd_sum, some, out=xd_sum)
    xp.multiply(xd_sum, var, out=xd_sum)


def _gradient_line(xp: Any, columns: Any, mean: Any, var: Any, count: int) -> tuple[Any, Any, Any]:
    """factor, slope and offset of `_d_data`, the last two made of the sums in `columns`; var is 1 / std."""
    d_sum, xd_sum, factor, slope, offset, some = columns
    xp.multiply(xd_sum, var, out=slope)
    xp.multiply(slope, factor, out=slope)
    xp.multiply(slope, -1.0 / count, out=slope)
    xp.multiply(d_sum, factor, out=offset)
    xp.multiply(offset, -1.0 / count, out=offset)
    xp.multiply(slope, mean, out=some)
    xp.subtract(offset, some, out=offset)
    return factor, slope, offset


def _d_data(xp: Any, d: Any, x: Any, s: _Scratch, mean: Any, var: Any, result: Any) -> None:
    """Gradient through the statistics as well: one pass of factor * d + slope * x + offset.

    d_data = factor * (d - d_sum / M - (x - mean) / std * xd_sum / M),   M = N * P
    """
    n, c, p = x.shape
    factor, slope, offset = _gradient_line(xp, s.columns, mean, var, _channel_size(x.shape))
    scale, tilt, shift = (spread(xp, v, w) for v, w in zip((factor, slope, offset), s.wide))
    for where in blocks(n, c, p):
        line = s.box_like(x[where])
        xp.multiply(x[where], _spread_at(tilt, where), out=line)
        xp.add(line, _spread_at(shift, where), out=line)
        here = result[where]
        if s.dtype == x.dtype:
            xp.multiply(d[where], _spread_at(scale, where), out=here)
            xp.add(here, line, out=here)
        else:
            scaled = s.other[: line.size].reshape(line.shape)
            xp.multiply(d[where], _spread_at(scale, where), out=scaled)
            xp.add(scaled, line, out=scaled)
            xp.copyto(here, scaled, casting="unsafe")
