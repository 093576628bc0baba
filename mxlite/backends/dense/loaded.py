"""Dense layers with an elementwise prologue: the array between the two is never stored.

    h -> gelu -> g -> FullyConnected -> out           h -> _loaded_dense -> out
    d_out, g -> gradient in the weight                d_out, weight, h -> _loaded_dense_gradient
    d_out, weight -> d_g;  d_g, h -> d_h                  -> d_h, gradient in the weight

A training step keeps h for the gradient of the function. The weight gradient needs g, which is recomputed
from h a band of columns at a time, in scratch, together with the slope at h. The references compute g in
scratch as a whole.

An optimizer's step that is elementwise follows in the same bands, so that the weight gradient
is never stored as a whole: `_loaded_dense_update`. In mixed precision it reads the float32 weight and
rounds it to the type of the data, and accumulates the weight gradient in float32.

The pass `passes/loaded_dense.py` inserts them into a step; no user and no file ever sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...ops.elementwise.activation import relu
from ...ops.linalg.product import product, product_bytes
from ...ops.nn.dense import FullyConnected
from ...ops.scratch import accumulator, carve, Piece, scratch_bytes
from ..product_update import JoinedUpdate, step_bytes

_byte = np.dtype("uint8")


@dataclass(frozen=True)
class LoadedAttrs(FullyConnected.Attrs):
    """Attributes of FullyConnected, and `function`, the elementwise operator from `data` to `out`, with
    `given` its attributes.
    """

    function: type[Op] = relu
    given: Any = None


class _loaded_dense(FullyConnected):
    """A dense layer of a function's result, ``out = function(data) @ weight.T + bias``.

    Shapes and attributes are FullyConnected's.
    """

    Attrs = LoadedAttrs
    backward = None  # type: ignore[assignment]
    derivative = None  # type: ignore[assignment]

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        own: int = a.function.flops(a.given, inputs[:1], inputs[:1])
        return FullyConnected.flops(a, inputs, outputs) + own

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(a, inputs, outputs, dtype))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any) -> None:
        if out is None:
            return
        shapes = (data.shape, weight.shape), (out.shape,)
        made, rest = carve(work, _pieces(a, *shapes, data.dtype))
        _apply(xp, a, data, made, rest)
        FullyConnected.forward(xp, a, made, weight, bias, out=out, work=rest)


class _loaded_dense_gradient(Op):
    """Gradients of a `_loaded_dense` in its data and its weight.

    d_out: as out of FullyConnected, N * M numbers;  weight: (M, K);  data: N * K numbers
    ->  d_data: as data;  d_weight: (M, K). Cost: 4 * N * M * K flops. `d_data` may lie over `data`.
    """

    inputs = ("d_out", "weight", "data")
    outputs = ("d_data", "d_weight")
    accepts = "float"
    recomputable = False
    in_place = {"d_data": "data"}
    Attrs = LoadedAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        d_out, weight, data = shapes
        assert d_out is not None and weight is not None and data is not None
        return (d_out, weight, data), (data, weight)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        d_out, (_, columns), data = inputs
        own: int = a.function.flops(a.given, (data,), (data,))
        slope: int = a.function.backward_flops(a.given, (data,), (data,))
        return 4 * prod(d_out) * columns + own + slope

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        d_out, weight, data = inputs
        return scratch_bytes(_gradient_pieces(a, d_out, weight, data, dtype))

    @staticmethod
    def forward(
        xp: Any, a: Any, d_out: Any, weight: Any, data: Any, *, d_data: Any, d_weight: Any, work: Any
    ) -> None:
        (m, k), n = weight.shape, d_out.size // weight.shape[0]
        made, slope, rest = carve(
            work, _gradient_pieces(a, d_out.shape, weight.shape, data.shape, data.dtype)
        )
        d = d_out.reshape(n, m)
        _apply(xp, a, data, made, rest)
        if d_weight is not None:
            product(xp, d.T, made.reshape(n, k), d_weight, rest)
        if d_data is None:
            return
        product(xp, d, weight, slope.reshape(n, k), rest)
        op = a.function
        known = {"d_out": slope, "data": data, "out": made}
        services = {"work": rest} if "work" in op.grad_op.signature.services else {}
        given = op.grad_op.input_names(a.given)
        needs = (known[n] if n in given else None for n in op.grad_op.signature.needs)
        makes = dict.fromkeys(op.grad_op.signature.makes) | {"d_data": slope}
        op.backward(xp, a.given, *needs, **makes, **services)
        xp.copyto(d_data, slope)


@dataclass(frozen=True)
class LoadedUpdateAttrs:
    """`layer` are the attributes of the dense layer; `op` is the fused form of an elementwise step,
    `attrs` its parameters.
    """

    layer: LoadedAttrs
    op: type[Op]
    attrs: Any


class _loaded_dense_update(JoinedUpdate):
    """A `_loaded_dense_gradient` and the optimizer's step on its weight.

    d_out, data: as there;  weight, states: (M, K);  then `hyper`, as in the step  ->  d_data: as data, and
    may overwrite it. Weight and states are updated. A float32 weight of 16-bit data is read as rounded.
    """

    makers = ("d_out", "data")
    outputs = ("d_data",)
    Attrs = LoadedUpdateAttrs

    @classmethod
    def in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        return {"d_data": ("data",)}

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        assert shapes[1] is not None
        return shapes, (shapes[1],)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return dtypes, dtypes[1:2]

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        d_out, data, weight, *others = inputs
        step: int = a.op.flops(a.attrs, (weight, weight, *others), ())
        own = _loaded_dense_gradient.flops(a.layer, (d_out, weight, data), (data, weight))
        return own + step

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_update_pieces(a, inputs, dtype))

    @staticmethod
    def forward(xp: Any, a: Any, *args: Any, d_data: Any, work: Any) -> None:
        d_out, data, weight, *states, hyper = args
        gradient, rounded, rest = carve(work, _update_pieces(a, tuple(x.shape for x in args), data.dtype))
        xp.copyto(rounded, weight, casting="same_kind")
        _loaded_dense_gradient.forward(
            xp, a.layer, d_out, rounded, data, d_data=d_data, d_weight=gradient, work=rest
        )
        a.op.forward(xp, a.attrs, weight, gradient, *states, hyper, work=rest)


def loadable(op: type[Op] | None, attrs: Any) -> bool:
    """True if `op` can be the prologue of a dense layer: one array in, one out, and a gradient computed from
    `data` that may overwrite the incoming gradient.
    """
    if op is None or op.grad_op is None or op.input_names(attrs) != ("data",):
        return False
    if op.output_names(attrs) != ("out",) or op.random or not op.recomputable:
        return False
    grad = op.grad_op
    return "data" in grad.input_names(attrs) and "d_out" in grad.in_place_options(attrs).get("d_data", ())


def _apply(xp: Any, a: Any, data: Any, out: Any, work: Any) -> None:
    services = {"work": work} if "work" in a.function.signature.services else {}
    a.function.forward(xp, a.given, data, out=out, **services)


def _pieces(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> list[Piece]:
    """Scratch: the function's result, and scratch of the function and of the product."""
    own = a.function.workspace(a.given, inputs[:1], inputs[:1], dtype)
    return [
        (inputs[0], dtype),
        ((max(own, FullyConnected.workspace(a, inputs, outputs, dtype)),), _byte),
    ]


def _update_pieces(a: Any, inputs: Shapes, dtype: DType) -> list[Piece]:
    """Scratch: the weight gradient, the weight in data's type, and scratch of the gradient
    and of the step.
    """
    d_out, data, weight = inputs[:3]
    own = _loaded_dense_gradient.workspace(a.layer, (d_out, weight, data), (data, weight), dtype)
    nbytes = max(own, step_bytes(a, weight, dtype))
    return [(weight, accumulator(dtype)), (weight, dtype), ((nbytes,), _byte)]


def _gradient_pieces(a: Any, d_out: Shape, weight: Shape, data: Shape, dtype: DType) -> list[Piece]:
    """Scratch: the function's result, its gradient, and scratch of all parts."""
    op, (m, k), n = a.function, weight, prod(d_out) // weight[0]
    nbytes = max(
        op.workspace(a.given, (data,), (data,), dtype),
        op.backward_workspace(a.given, (data,), (data,), dtype),
        product_bytes(m, n, k, dtype),
        product_bytes(n, m, k, dtype),
    )
    return [(data, dtype), (data, dtype), ((nbytes,), _byte)]
