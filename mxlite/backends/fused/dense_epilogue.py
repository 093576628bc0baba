"""Operators that fuse a dense layer, or its gradient in data, with the elementwise work behind it.

Passes insert them into a step, after differentiation; no user and no file ever sees them. So they
have no gradient, and live here rather than among `mxlite.ops`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...ops.linalg.product import product, product_bytes
from ...ops.nn.dense import FullyConnected
from ...te.epilogue import Epilogue


@dataclass(frozen=True)
class DenseEpilogueAttrs(FullyConnected.Attrs):
    """Attributes of FullyConnected, and what is done to its result."""

    epilogue: Epilogue = None  # type: ignore[assignment]  # behind attributes that have defaults


class DenseEpilogue(FullyConnected):
    """A dense layer and its epilogue, ``out = epilogue(data @ weight.T + bias)``.

    Shapes and attributes are FullyConnected's. The epilogue's input is not stored.
    """

    op_name = "_dense_epilogue"
    Attrs = DenseEpilogueAttrs
    backward = None  # type: ignore[assignment]
    derivative = None  # type: ignore[assignment]

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return FullyConnected.flops(a, inputs, outputs) + a.epilogue.flops * prod(outputs[0])

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any) -> None:
        if out is not None:
            FullyConnected.forward(xp, a, data, weight, bias, out=out, work=work)
            a.epilogue.apply(out)


@dataclass(frozen=True)
class DenseSlopeAttrs:
    """`epilogue`: the gradient of an activation, of the gradient behind it and of what is known of it."""

    epilogue: Epilogue


class DenseSlope(Op):
    """The gradient through a dense layer and the activation before it: epilogue(d_out @ weight, known).

    d_out: (..., M);  weight: (M, K);  known: N * K numbers where d_out has N * M  ->  out: as known.
    `known` is the activation's output or its input. Cost: 2 * N * M * K flops.
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
        return 2 * prod(inputs[0]) * inputs[1][1] + a.epilogue.flops * prod(outputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        d_out, (m, k), _ = inputs
        return product_bytes(prod(d_out[:-1]), m, k, dtype)

    @staticmethod
    def forward(xp: Any, a: Any, d_out: Any, weight: Any, known: Any, *, out: Any, work: Any) -> None:
        if out is not None:
            (m, k), n = weight.shape, prod(d_out.shape[:-1])
            product(xp, d_out.reshape(n, m), weight, out.reshape(n, k), work)
            a.epilogue.apply(out, known)
