"""LeakyReLU: rectifiers that do not clip to zero."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Literal

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import Shapes
from .activation import FORMULAS
from .elementwise import Elementwise

_LAMBDA = 1.0507009873554804934193349852946  # G. Klambauer et al., 2017, "Self-normalizing neural networks"
_ALPHA = 1.6732632423543772848170429916717


class LeakyReLU(Elementwise):
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
    accepts = "float"
    backward_reads = ("d_out", "data", "gamma", "out")
    derivative = None
    gradients = ("data", "gamma")

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

    @classmethod
    def operand_shape(cls, a: Any, name: str, shape: Shape, whole: Shape) -> Shape:
        if name != "gamma":
            return shape
        slopes = slopes_shape(shape, whole)
        assert slopes is not None, (shape, whole)
        return slopes

    @staticmethod
    def compute(w: Any, a: Any, data: Any, gamma: Any = None) -> Mapping[str, Any]:
        if a.act_type == "gelu":
            return {"out": FORMULAS["gelu"].function(w, data)}
        if a.act_type in ("elu", "selu"):
            below = w("expm1", data)
            if a.act_type == "selu":
                return {"out": w("select", w("gt", data, 0.0), data, below * _ALPHA) * _LAMBDA}
            below = below * w.constant(a.slope)
        else:
            below = data * (w.constant(a.slope) if gamma is None else gamma)
        return {"out": w("select", w("gt", data, 0.0), data, below)}

    @classmethod
    def compute_gradient(
        cls, w: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        d = heads["out"]
        if a.act_type == "gelu":
            return {"d_data": d * FORMULAS["gelu"].slope(w, arrays["data"])}
        above: Any = 1.0
        if a.act_type == "prelu":
            below = arrays["gamma"]
        elif a.act_type == "selu":
            above, below = _LAMBDA, arrays["out"] + _LAMBDA * _ALPHA
        elif a.act_type == "elu":
            below = arrays["out"] + w.constant(a.slope)  # slope * exp(x)
        else:
            below = w.constant(a.slope)
        known = arrays["out" if "data" in cls.unneeded(a) else "data"]
        if a.act_type in ("elu", "selu"):
            slope = w("select", w("gt", known, 0.0), above, below)
        else:  # nan counts as above 0: its gradient is not lost if the slope is 0
            slope = w("select", w("le", known, 0.0), below, above)
        made = {"d_data": d * slope}
        if a.act_type == "prelu":
            made["d_gamma"] = d * w("min", arrays["data"], 0.0)
        return made


def slopes_shape(gamma: Shape, data: Shape) -> Shape | None:
    """The shape, of as many axes as `data`, in which prelu's slopes broadcast to it; None if they do not."""
    rest, found = list(gamma), [1] * len(data)
    for axis in range(min(2, len(data)) - 1, -1, -1):
        if rest and rest[-1] in (1, data[axis]):
            found[axis] = rest.pop()
    return None if rest else tuple(found)
