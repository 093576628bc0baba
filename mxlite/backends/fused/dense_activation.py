"""Operators that fuse a dense layer with a neighbouring activation, forward and backward.

Passes insert them into a step, after differentiation; no user and no file ever sees them. So they
have no gradient, and live here rather than among `mxlite.ops`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from ...graph.ir import Shape
from ...graph.opdef import DType, NoAttrs, Op, Shapes
from ...ops.elementwise.activation import gelu, relu
from ...ops.linalg.product import product, product_bytes
from ...ops.nn.dense import FullyConnected

Name = Literal["relu", "gelu", "gelu_tanh"]

ACTIVATIONS: Mapping[str, tuple[type[Op], Any]] = {
    "relu": (relu, NoAttrs()),
    "gelu": (gelu, gelu.Attrs()),
    "gelu_tanh": (gelu, gelu.Attrs("tanh")),
}
"""Operator and attributes of each activation."""


@dataclass(frozen=True)
class DenseActivationAttrs(FullyConnected.Attrs):
    """Attributes of FullyConnected, and `activation`, the function applied to the result."""

    activation: Name = "relu"


class DenseActivation(FullyConnected):
    """A dense layer and its activation, ``out = activation(data @ weight.T + bias)``.

    Shapes and attributes are FullyConnected's. The activation's input is not stored.
    """

    op_name = "_dense_activation"
    Attrs = DenseActivationAttrs
    backward = None  # type: ignore[assignment]
    derivative = None  # type: ignore[assignment]

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        op, attrs = ACTIVATIONS[a.activation]
        return FullyConnected.flops(a, inputs, outputs) + op.flops(attrs, outputs, outputs)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        op, attrs = ACTIVATIONS[a.activation]
        own = FullyConnected.workspace(a, inputs, outputs, dtype)
        return max(own, op.workspace(attrs, outputs, outputs, dtype))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any) -> None:
        if out is None:
            return
        op, attrs = ACTIVATIONS[a.activation]
        FullyConnected.forward(xp, a, data, weight, bias, out=out, work=work)
        op.forward(xp, attrs, out, out=out, work=work, shapes=((out.shape,), (out.shape,)))


@dataclass(frozen=True)
class DenseSlopeAttrs:
    """`activation`: the activation whose gradient it is."""

    activation: Name = "relu"


class DenseSlope(Op):
    """The gradient through a dense layer and the activation before it: (d_out @ weight) * slope(known).

    d_out: (..., M);  weight: (M, K);  known: N * K numbers where d_out has N * M  ->  out: as known.
    `known` is the rectifier's output, or another activation's input. Cost: 2 * N * M * K flops.
    """

    op_name = "_dense_slope"
    inputs = ("d_out", "weight", "known")
    accepts = "float"
    recomputable = False
    Attrs = DenseSlopeAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        d_out, weight, known = shapes
        assert d_out is not None and weight is not None and known is not None
        return (d_out, weight, known), (known,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        op, attrs = ACTIVATIONS[a.activation]
        return 2 * prod(inputs[0]) * inputs[1][1] + op.backward_flops(attrs, outputs, outputs)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        op, attrs = ACTIVATIONS[a.activation]
        d_out, (m, k), _ = inputs
        own = product_bytes(prod(d_out[:-1]), m, k, dtype)
        return max(own, op.backward_workspace(attrs, outputs, outputs, dtype))

    @staticmethod
    def forward(xp: Any, a: Any, d_out: Any, weight: Any, known: Any, *, out: Any, work: Any) -> None:
        if out is None:
            return
        op, attrs = ACTIVATIONS[a.activation]
        assert op.backward is not None
        (m, k), n = weight.shape, prod(d_out.shape[:-1])
        product(xp, d_out.reshape(n, m), weight, out.reshape(n, k), work)
        shapes = (known.shape,), (known.shape,)
        op.backward(xp, attrs, out, known, d_data=out, work=work, shapes=shapes)
