"""Batch normalization by the statistics of all ranks' batches, in steps that a plan can place.

    mean, squares   = _channel_moments(data)                     of this rank's batch
    rows            = _moments_by_rank(mean, squares)            in the row of this rank, zeros in the others
    every           = _sum_over_ranks(rows)                      a message: all rows on all ranks
    factor, shift   = _line_of_moments(gamma, beta, every)       the same bits on all ranks
    out             = _channel_line(data, factor, shift)

Moments of batches are joined as T. F. Chan, G. H. Golub and R. J. LeVeque 1979, "Updating formulae and a
pairwise algorithm for computing sample variances", do it: no digits are lost where the mean is large.
Gradients go the same way back, with one message for the gradient of `rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from ...comm import current
from ...core.errors import OpAttributeError, ShapeError, StateError
from ...core.record import record
from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_kind, require_rank, Shapes, Types
from ..declared import Declared
from ..scratch import accumulator
from .norm_arrays import NormVectors


class ChannelMoments(Declared):
    """Mean of each channel, and the sum of squares of what differs from it.

    data: (N, C, ...)  ->  mean, squares: (C,), float32 for two-byte data; 0 for a channel without elements.
    """

    op_name = "_channel_moments"
    inputs = ("data",)
    outputs = ("mean", "squares")
    accepts = "float"
    cheap = True
    flops_per_input = 4
    backward_reads = ("d_mean", "d_squares", "data")

    @staticmethod
    def compute(t: Any, a: Any, data: Any) -> Mapping[str, Any]:
        mean, apart = _centred(t, data)
        return {"mean": mean, "squares": t.sum(apart * apart, (0, 2))}

    @staticmethod
    def compute_gradient(
        t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        view = _view(arrays["data"].shape)
        _, apart = _centred(t, arrays["data"])
        total = t.broadcast(0.0, view)
        if "mean" in heads:
            total = total + t.view(heads["mean"], (1, view[1], 1)) / t.constant(max(1, view[0] * view[2]))
        if "squares" in heads:
            total = total + apart * (2.0 * t.view(heads["squares"], (1, view[1], 1)))
        return {"d_data": total}

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        require_rank(data, 2, "data")
        return (data,), ((data[1],),) * 2

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        require_kind(cls, dtypes[0])
        return dtypes, (None if dtypes[0] is None else accumulator(dtypes[0]),) * 2


def _view(shape: Shape) -> tuple[int, int, int]:
    """(N, C, P) of data (N, C, ...)."""
    return shape[0], shape[1], prod(shape[2:])


def _centred(t: Any, data: Any) -> tuple[Any, Any]:
    """The mean of each channel, (1, C, 1), and what differs from it, (N, C, P)."""
    n, c, p = _view(data.shape)
    x = t.view(data, (n, c, p))
    mean = t.sum(x, (0, 2)) / t.constant(max(1, n * p))
    return mean, x - mean


class MomentsByRank(Op):
    """The moments of this rank's batch in its row; zeros in those of other ranks.

    mean, squares: (C,)  ->  rows: (R, 1 + 2 C) with R = `ranks`; a row has how many numbers a channel has,
    `count`, then `mean` and `squares`. Raises StateError where the job has another number of ranks.
    """

    op_name = "_moments_by_rank"
    inputs = ("mean", "squares")
    outputs = ("rows",)
    accepts = "float"

    @record
    class Attrs:
        count: int
        ranks: int

        def __post_init__(self) -> None:
            if self.count < 0 or self.ranks < 1:
                raise OpAttributeError(
                    f"count must be at least 0 and ranks 1, got {self.count}, {self.ranks}."
                )

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        mean = shapes[0] if shapes[0] is not None else shapes[1]
        assert mean is not None
        require_rank(mean, 1, "mean")
        return (mean, mean), ((a.ranks, 1 + 2 * mean[0]),)

    @staticmethod
    def forward(xp: Any, a: Any, mean: Any, squares: Any, *, rows: Any) -> None:
        rows.fill(0)
        own = rows[_own_row(a)]
        own[0], own[1 : 1 + mean.size], own[1 + mean.size :] = a.count, mean, squares

    @staticmethod
    def backward(xp: Any, a: Any, d_rows: Any, *, d_mean: Any, d_squares: Any) -> None:
        own = d_rows[_own_row(a)]
        middle = 1 + own.size // 2
        for d, part in ((d_mean, own[1:middle]), (d_squares, own[middle:])):
            if d is not None:
                xp.copyto(d, part)


def _own_row(a: Any) -> int:
    if current().size != a.ranks:
        raise StateError(f"This step was planned for {a.ranks} ranks, but the job has {current().size}.")
    return current().rank


class _Joined(NamedTuple):
    """Moments of all batches as one: the numbers of a channel, its mean and variance, inverse deviation."""

    count: Any
    mean: Any
    var: Any
    inverse: Any


def _join(xp: Any, a: Any, rows: Any) -> _Joined:
    """The rows in the order of the ranks. Two vectors of a channel each are all that it allocates."""
    counts, c = rows[:, :1], (rows.shape[1] - 1) // 2
    means, squares = rows[:, 1 : 1 + c], rows[:, 1 + c :]
    count = xp.maximum(counts.sum(), 1)
    mean, var = xp.zeros(c, rows.dtype), xp.zeros(c, rows.dtype)
    for n, m in zip(counts, means):
        mean += (n / count) * m
    for n, m, s in zip(counts, means, squares):
        var += (s + n * (m - mean) ** 2) / count
    return _Joined(count, mean, var, 1 / xp.sqrt(var + a.eps))


class LineOfMoments(Op):
    """The affine map of each channel that normalizes it by the moments of all batches.

    gamma, beta, moving_mean, moving_var: (C,);  rows: (R, 1 + 2 C)  ->  factor = gamma / sqrt(var + eps),
    shift = beta - mean factor, mean, var: (C,).

    Backward moves the moving averages, as BatchNorm does, once for each call; no gradient comes from `mean`
    and `var`, as in MXNet. `fix_gamma` counts gamma as 1 and gives it the gradient 0. Raises StateError where
    ranks have batches of other sizes: their plans may send messages in other orders.
    """

    op_name = "_line_of_moments"
    inputs = ("gamma", "beta", "moving_mean", "moving_var", "rows")
    outputs = ("factor", "shift", "mean", "var")
    accepts = "float"
    aux = ("moving_mean", "moving_var")
    backward_mutates = ("moving_mean", "moving_var")

    @record
    class Attrs:
        eps: float = 1e-3
        momentum: float = 0.9
        fix_gamma: bool = True

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        *vectors, rows = shapes
        channel = next(s for s in vectors if s is not None)
        if rows is None or len(rows) != 2 or rows[1] != 1 + 2 * channel[0]:
            raise ShapeError(f"rows must be (ranks, 1 + 2 * {channel[0]}), got {rows}.")
        return ((channel,) * 4 + (rows,)), (channel,) * 4

    @staticmethod
    @grouped
    def forward(
        xp: Any, a: Any, vectors: NormVectors, rows: Any, *, factor: Any, shift: Any, mean: Any, var: Any
    ) -> None:
        if (rows[:, 0] != rows[0, 0]).any():
            raise StateError(
                f"SyncBatchNorm needs batches of one size on all ranks, but these have {rows[:, 0].tolist()} "
                f"numbers of a channel. Let iterators pad or discard the last batch."
            )
        found = _join(xp, a, rows)
        gain = found.inverse if a.fix_gamma else found.inverse * vectors.gamma
        for out, value in (
            (factor, gain),
            (shift, vectors.beta - found.mean * gain),
            (mean, found.mean),
            (var, found.var),
        ):
            if out is not None:
                xp.copyto(out, value)

    @staticmethod
    def backward(
        xp: Any,
        a: Any,
        d_factor: Any,
        d_shift: Any,
        gamma: Any,
        rows: Any,
        moving_mean: Any,
        moving_var: Any,
        *,
        d_gamma: Any,
        d_beta: Any,
        d_rows: Any,
        train: bool,
    ) -> None:
        found = _join(xp, a, rows)
        c = found.mean.size
        zero = xp.zeros(c, rows.dtype)
        d_factor = zero if d_factor is None else d_factor
        d_shift = zero if d_shift is None else d_shift
        gain = found.inverse if a.fix_gamma else found.inverse * gamma
        d_gain = d_factor - d_shift * found.mean
        if d_gamma is not None:
            xp.copyto(d_gamma, zero if a.fix_gamma else d_gain * found.inverse)
        if d_beta is not None:
            xp.copyto(d_beta, d_shift)
        if d_rows is not None:
            d_mean = -d_shift * gain
            d_var = -0.5 * d_gain * gain * found.inverse**2
            d_rows[:, 0] = 0
            d_means = d_rows[:, 1 : 1 + c]
            xp.subtract(rows[:, 1 : 1 + c], found.mean, out=d_means)
            d_means *= 2 * d_var
            d_means += d_mean
            d_means *= rows[:, :1]
            d_means /= found.count
            d_rows[:, 1 + c :] = d_var / found.count
        if train:
            for moving, batch in ((moving_mean, found.mean), (moving_var, found.var)):
                moving *= a.momentum
                moving += (1.0 - a.momentum) * batch


class ChannelLine(Declared):
    """An affine map of each channel, ``out = data * factor + shift``.

    data: (N, C, ...);  factor, shift: (C,), float32 for two-byte data  ->  out: as data.
    """

    op_name = "_channel_line"
    inputs = ("data", "factor", "shift")
    accepts = "float"
    typed_by_data = True
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}
    cheap = True
    flops_per_input = 2
    backward_reads = ("d_out", "data", "factor")
    gradients = ("data", "factor", "shift")

    @staticmethod
    def compute(t: Any, a: Any, data: Any, factor: Any, shift: Any) -> Mapping[str, Any]:
        n, c, p = _view(data.shape)
        own = (1, c, 1)
        return {"out": t.view(data, (n, c, p)) * t.view(factor, own) + t.view(shift, own)}

    @staticmethod
    def compute_gradient(
        t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        n, c, p = _view(arrays["data"].shape)
        x, d = t.view(arrays["data"], (n, c, p)), t.view(heads["out"], (n, c, p))
        return {
            "d_data": d * t.view(arrays["factor"], (1, c, 1)),
            "d_factor": t.sum(d * x, (0, 2)),
            "d_shift": t.sum(d, (0, 2)),
        }

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        require_rank(data, 2, "data")
        return (data, (data[1],), (data[1],)), (data,)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        data = dtypes[0]
        require_kind(cls, data)
        acc = None if data is None else accumulator(data)
        return (data, acc, acc), (data,)
