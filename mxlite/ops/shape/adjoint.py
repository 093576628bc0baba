"""Adjoints: the gradients of operators that only move elements, as separate operators.

Such an operator is linear in `data`, so its gradient kernel is a linear operator too, and the gradient of
that one is the operator itself. So both kernels are all that their `derivative` needs.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ...core.errors import DTypeError, ShapeError
from ...graph.opdef import Op


def adjoint_of(op: type[Op]) -> type[Op]:
    """The operator `_adjoint_<op>`; also sets `derivative` of `op` to it.

    data: an output of `op`;  like: an input of `op`, read for its shape only  ->  out: as `like`, the result
    of `op.backward` for `data`. `op` has one input, `data`, and one output; its backward reads only
    `d_out`.
    """
    assert op.backward is not None and op.signature.needs == ("data",), op
    name = f"_adjoint_{op.op_name}"
    forward, backward = op.forward, op.backward

    def infer_shape(a: Any, data: Any, like: Any) -> Any:
        shape = op.infer_shape(a, like)[1][0]
        if tuple(shape) != tuple(data):
            raise ShapeError(f"data must be {shape} for like {like}, got {data}.")
        return (data, like), (like,)

    def infer_type(cls: type[Op], a: Any, data: Any, like: Any) -> Any:
        if data is not None and like is not None and data != like:
            raise DTypeError(f"data and like must have one dtype, got {data} and {like}.")
        return (data or like, like or data), (data or like,)

    def run(xp: Any, a: Any, data: Any, like: Any, *, out: Any) -> None:
        backward(xp, a, data, d_data=out)

    def gradient(xp: Any, a: Any, d_out: Any, *, d_data: Any) -> None:
        forward(xp, a, d_out, out=d_data)

    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> Any:
        return {"data": getattr(w, op.op_name)(heads["out"], **given(a))}

    def derivative_of_op(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> Any:
        return {"data": getattr(w, name)(heads["out"], ins["data"], **given(a))}

    op.derivative = staticmethod(derivative_of_op)
    return type(
        name,
        (Op,),
        dict(
            op_name=name,
            inputs=("data", "like"),
            Attrs=op.Attrs,
            shape_only=("like",),
            cheap=True,
            infer_shape=staticmethod(infer_shape),
            infer_type=classmethod(infer_type),
            flops=staticmethod(lambda a, inputs, outputs: 0),
            forward=staticmethod(run),
            backward=staticmethod(gradient),
            derivative=staticmethod(derivative),
            __doc__=f"""The gradient of `{op.op_name}`, as an operator.

            data: an output of `{op.op_name}`;  like: its input, read for its shape only  ->  out: as `like`.
            """,
            __module__=op.__module__,
        ),
    )


def given(a: Any) -> dict[str, Any]:
    """Typed parameters as a user would give them."""
    return {f.name: getattr(a, f.name) for f in dataclasses.fields(a)}
