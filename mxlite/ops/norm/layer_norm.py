"""Normalization of each sample by itself along one axis: LayerNorm and RMSNorm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Entry, Shape
from ...graph.opdef import Shapes
from .normalize import Rule
from .self_norm import SelfNorm, SelfNormWithStatistics
from .views import along


class LayerNorm(SelfNormWithStatistics):
    """Normalize along one axis, ``out = (data - mean) / std * gamma + beta``, ``std = sqrt(var + eps)``.

    data: (..., K, ...) with K at `axis`;  gamma, beta: (K,)  ->  out: as data;  mean, std: as data, 1 at
    `axis`; they are outputs with `output_mean_var`.

    J. Ba, J. Kiros, G. Hinton, 2016, "Layer normalization". The variance is the biased one. The gradients
    of `mean` and `std` count as well (MXNet 1.9.1 drops them). gamma and beta are of data's dtype, or float32
    beside 16-bit data; mean and std are of gamma's.
    """

    @record
    class Attrs:
        axis: int = -1
        eps: float = 1e-5
        output_mean_var: bool = False

        def __post_init__(self) -> None:
            require_eps(self.eps)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        axis = require_axis(a.axis, data)
        folded = (*data[:axis], 1, *data[axis + 1 :])
        return (data, (data[axis],), (data[axis],)), (data, folded, folded)

    @classmethod
    def rule(cls, a: Any, data: Shape, gamma: Shape) -> Rule:
        return _rule(a, data)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> Mapping[str, Entry]:
        back = _ToLast(w, a.axis)
        data = back(ins["data"])
        mean = w.mean(data, axis=-1, keepdims=True)
        centred = w.broadcast_sub(data, mean)
        variance = w.mean(w.square(centred), axis=-1, keepdims=True)
        inverse = w.rsqrt(w._plus_scalar(variance, scalar=a.eps))
        scaled = w.broadcast_mul(centred, inverse)
        gradients: dict[str, Entry] = {}
        terms: list[Entry] = []
        if "out" in heads:
            d = back(heads["out"])
            gradients["gamma"] = w.sum(w.elemwise_mul(d, scaled), axis=-1, exclude=True)
            gradients["beta"] = w.sum(d, axis=-1, exclude=True)
            g = w.broadcast_mul(d, ins["gamma"])
            along_scaled = w.mean(w.elemwise_mul(g, scaled), axis=-1, keepdims=True)
            rest = w.broadcast_sub(g, w.mean(g, axis=-1, keepdims=True))
            terms.append(
                w.broadcast_mul(w.elemwise_sub(rest, w.broadcast_mul(scaled, along_scaled)), inverse)
            )
        # each element's share of a mean is the mean of as many copies
        if "mean" in heads:
            terms.append(_share(w, data, back(heads["mean"])))
        if "std" in heads:
            terms.append(w.elemwise_mul(scaled, _share(w, data, back(heads["std"]))))
        gradients["data"] = back(w.add_n(*terms) if len(terms) > 1 else terms[0])
        return gradients


class RMSNorm(SelfNorm):
    """Divide by the root mean square along one axis, ``out = data / sqrt(mean(data^2) + eps) * gamma``.

    data: (..., K, ...) with K at `axis`;  gamma: (K,)  ->  out: as data.

    B. Zhang, R. Sennrich, 2019, "Root mean square layer normalization". eps stands under the root, as in
    PyTorch and ONNX. gamma is of data's dtype, or float32 beside 16-bit data.
    """

    inputs = ("data", "gamma")
    inferred = ("gamma",)
    gradients = ("data", "gamma")
    flops_per_input = 4

    @record
    class Attrs:
        axis: int = -1
        eps: float = 1e-5

        def __post_init__(self) -> None:
            require_eps(self.eps)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        return (data, (data[require_axis(a.axis, data)],)), (data,)

    @classmethod
    def rule(cls, a: Any, data: Shape, gamma: Shape) -> Rule:
        return _rule(a, data, centre=False)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> Mapping[str, Entry]:
        back = _ToLast(w, a.axis)
        data, d = back(ins["data"]), back(heads["out"])
        square = w.mean(w.square(data), axis=-1, keepdims=True)
        inverse = w.rsqrt(w._plus_scalar(square, scalar=a.eps))
        scaled = w.broadcast_mul(data, inverse)
        g = w.broadcast_mul(d, ins["gamma"])
        along_scaled = w.mean(w.elemwise_mul(g, scaled), axis=-1, keepdims=True)
        inner = w.elemwise_sub(g, w.broadcast_mul(scaled, along_scaled))
        return {
            "data": back(w.broadcast_mul(inner, inverse)),
            "gamma": w.sum(w.elemwise_mul(d, scaled), axis=-1, exclude=True),
        }


def require_eps(eps: float) -> None:
    """Raise OpAttributeError unless eps is a number of at least 0."""
    if not eps >= 0:
        raise OpAttributeError(f"eps must be at least 0, got {eps}.")


def require_axis(axis: int, data: Shape) -> int:
    """`axis` counted from the front. Raises ShapeError if data has no such axis."""
    if not -len(data) <= axis < len(data):
        raise ShapeError(f"axis {axis} is not an axis of data {data}.")
    return axis % len(data)


def _rule(a: Any, shape: Shape, centre: bool = True) -> Rule:
    view = along(shape, a.axis)
    return Rule(view, a.eps, channels=view[2], centre=centre)


class _ToLast:
    """A view with an axis and the last one exchanged; twice gives the same array."""

    def __init__(self, w: Any, axis: int) -> None:
        self.w, self.axis = w, axis

    def __call__(self, x: Entry) -> Entry:
        return x if self.axis == -1 else self.w.SwapAxis(x, dim1=self.axis, dim2=-1)


def _share(w: Any, data: Entry, head: Entry) -> Entry:
    """head / K for each of K elements along the last axis, as an array of data's shape."""
    ones = w.ones_like(data)
    return w.broadcast_mul(w.broadcast_div(ones, w.sum(ones, axis=-1, keepdims=True)), head)
