"""LeakyReLU: rectifiers that do not clip to zero."""

from __future__ import annotations

import math
from math import prod
from typing import Any, Literal

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...te.error_function import normal_values
from ..reduce.channels import Block, blocks
from ..scratch import accumulator, BLOCK, carve, Piece, scratch_bytes
from .error_function import SMALL

_LAMBDA = 1.0507009873554804934193349852946  # G. Klambauer et al., 2017, "Self-normalizing neural networks"
_ALPHA = 1.6732632423543772848170429916717


class LeakyReLU(Op):
    """A rectifier, ``out = max(data, 0) + f(min(data, 0))``.

    data: (N, C, ...);  gamma, for prelu alone: (C,), (1,), (N, C), (N, 1), ...  ->  out: (N, C, ...).

        leaky  f(x) = slope * x             prelu  f(x) = gamma * x, with a slope that is learnt
        elu    f(x) = slope * (exp(x) - 1)  selu   elu of slope 1.673, all of it times 1.0507
        gelu   out = data * Phi(data), with Phi the normal distribution function

    prelu has one slope for all, or one for each channel, sample, or channel of a sample: the axes of `gamma`
    are matched with the first two of `data`, the last ones first. If gamma's shape is not known, it is (C,).

    selu's gradient below zero is 1.758 * exp(x); MXNet 1.9.1 gives 1.0507 * (1.673 + out), which is not that.
    leaky, elu and selu take the gradient from `out` when slope > 0: its sign is data's. At 0 the gradient
    is the slope. A result that is zero is 0.0 or -0.0. rrelu is not supported (MXNet 1.9.1 has it on GPUs
    only).
    """

    inputs = ("data", "gamma")
    inferred = ("gamma",)
    initial = {"gamma": '["Constant", {"value": 0.25}]'}
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}
    cheap = True
    accepts = "float"

    @record
    class Attrs:
        act_type: Literal["leaky", "prelu", "elu", "selu", "gelu", "rrelu"] = "leaky"
        slope: float = 0.25
        lower_bound: float = 0.125
        upper_bound: float = 0.334

        def __post_init__(self) -> None:
            if self.act_type == "rrelu":
                raise OpAttributeError("act_type 'rrelu' is not supported; use 'leaky' or 'prelu'.")

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return cls.inputs if a.act_type == "prelu" else cls.inputs[:1]

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        if a.act_type in ("gelu", "prelu"):
            return frozenset(["out"])
        if a.act_type == "selu" or a.slope > 0:
            return frozenset(["data"])
        return frozenset(["out"]) if a.act_type == "leaky" else frozenset()

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        if a.act_type != "prelu":
            return (data,), (data,)
        gamma = shapes[1]
        if gamma is None:
            if len(data) < 2:
                raise ShapeError(f"prelu needs data (N, C, ...) with at least 2 axes, got {data}.")
            gamma = data[1:2]
        elif slopes_shape(gamma, data) is None:
            raise ShapeError(
                f"gamma of shape {gamma} fits no data of shape {data}: prelu has one slope, or one for each "
                f"channel, sample, or channel of a sample."
            )
        return (data, gamma), (data,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return (10 if a.act_type == "gelu" else 4) * prod(inputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(inputs[0], dtype, 0))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(inputs[0], dtype, prod(inputs[1]) if a.act_type == "prelu" else 0))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, gamma: Any = None, *, out: Any, work: Any) -> None:
        if out is None:
            return
        if not data.size:
            return
        shape = _split(data.shape, gamma)
        x, y = data.reshape(shape), out.reshape(shape)
        box, *_ = carve(work, _pieces(data.shape, data.dtype, 0))
        for where in blocks(*shape):
            part, below = x[where], _like(box, x[where])
            if a.act_type == "gelu":
                _phi(xp, part, below)
                xp.multiply(part, below, out=y[where])
                continue
            xp.minimum(part, 0, out=below)
            if a.act_type in ("elu", "selu"):
                xp.expm1(below, out=below)
            _scale(xp, a, below, gamma, where)
            xp.maximum(part, 0, out=y[where])
            if a.act_type == "selu":
                xp.multiply(y[where], _LAMBDA, out=y[where])
            xp.add(y[where], below, out=y[where])

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, data: Any, gamma: Any, out: Any, *, d_data: Any, d_gamma: Any, work: Any
    ) -> None:
        known = out if data is None else data
        if not known.size:
            if d_gamma is not None:
                d_gamma.fill(0)
            return
        shape = _split(known.shape, gamma)
        d = d_out.reshape(shape)
        channels = 0 if gamma is None else gamma.size
        box, above, some, total = carve(work, _pieces(known.shape, known.dtype, channels))
        if d_gamma is not None:
            total.fill(0)
        for where in blocks(*shape):
            slope = _like(box, d[where])
            if d_gamma is not None:
                xp.minimum(data.reshape(shape)[where], 0, out=slope)
                xp.multiply(slope, d[where], out=slope)
                xp.add.reduce(slope, axis=(0, 2), dtype=some.dtype, out=some[where[1]])
                xp.add(total[where[1]], some[where[1]], out=total[where[1]])
            if d_data is None:
                continue
            source = known.reshape(shape)[where]
            if a.act_type == "gelu":
                _gelu_slope(xp, source, slope, _like(above.view(slope.dtype), slope))
            else:
                if a.act_type in ("elu", "selu"):
                    # slope * exp(x) = f(x) + slope
                    add = _LAMBDA * _ALPHA if a.act_type == "selu" else a.slope
                    xp.add(out.reshape(shape)[where], add, out=slope)
                else:
                    slope.fill(1)
                    _scale(xp, a, slope, gamma, where)
                positive = _like(above.view("bool"), slope)
                if a.act_type in ("elu", "selu"):
                    xp.greater(source, 0, out=positive)
                else:  # nan counts as above 0: its gradient is not lost if the slope is 0
                    xp.less_equal(source, 0, out=positive)
                    xp.logical_not(positive, out=positive)
                xp.copyto(slope, _LAMBDA if a.act_type == "selu" else 1, where=positive, casting="unsafe")
            xp.multiply(d[where], slope, out=d_data.reshape(shape)[where])
        if d_gamma is not None:
            xp.copyto(d_gamma.reshape(-1), total, casting="unsafe")


def slopes_shape(gamma: Shape, data: Shape) -> Shape | None:
    """The shape, of as many axes as `data`, in which prelu's slopes broadcast to it; None if they do not."""
    rest, found = list(gamma), [1] * len(data)
    for axis in range(min(2, len(data)) - 1, -1, -1):
        if rest and rest[-1] in (1, data[axis]):
            found[axis] = rest.pop()
    return None if rest else tuple(found)


def _split(shape: Shape, gamma: Any) -> tuple[int, int, int]:
    """Samples, channels and positions, as which `shape` is read so that each channel has its own slope."""
    slopes = 1 if gamma is None else gamma.size
    by_channel = slopes > 1 and slopes_shape(gamma.shape, shape)[0] == 1  # type: ignore[index]  # they fit
    samples = shape[0] if by_channel else 1
    return samples, slopes, prod(shape) // (samples * slopes)


def _pieces(shape: Shape, dtype: DType, channels: int) -> list[Piece]:
    size = min(BLOCK, prod(shape))
    wide = accumulator(dtype)
    return [((size,), dtype), ((size,), dtype), ((channels,), wide), ((channels,), wide)]


def _like(box: Any, x: Any) -> Any:
    return box[: x.size].reshape(x.shape)


def _scale(xp: Any, a: Any, x: Any, gamma: Any, where: Block) -> None:
    """x *= the slope below zero."""
    if a.act_type == "prelu":
        xp.multiply(x, gamma.reshape(-1)[where[1], None], out=x)
    else:
        xp.multiply(x, _LAMBDA * _ALPHA if a.act_type == "selu" else a.slope, out=x)


def _phi(xp: Any, x: Any, out: Any) -> None:
    """The normal distribution function of contiguous x."""
    source, target = x.reshape(-1), out.reshape(-1)
    for i in range(0, source.size, SMALL):
        part = source[i : i + SMALL]
        target[i : i + SMALL] = normal_values(xp, part.astype("float64"), part.dtype.itemsize)


def _gelu_slope(xp: Any, x: Any, out: Any, density: Any) -> None:
    """Phi(x) + x * phi(x)."""
    _phi(xp, x, out)
    xp.multiply(x, x, out=density)
    xp.multiply(density, -0.5, out=density)
    xp.exp(density, out=density)
    xp.multiply(density, 1 / math.sqrt(2 * math.pi), out=density)
    xp.multiply(density, x, out=density)
    xp.add(out, density, out=out)
