"""Operator for the updates of several parameters of one kind in one call.

A pass inserts it into a step; no user and no file ever sees it, so it lives here rather than among
`mxlite.ops`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes


@dataclass(frozen=True)
class GroupAttrs:
    """`op` is the fused form of a step, `attrs` its parameters, `rows` the weights' rows of `hyper`."""

    op: type[Op]
    attrs: Any
    rows: tuple[int, ...]

    @property
    def each(self) -> int:
        """Number of arrays of one weight."""
        return len(self.op.inputs) - 1


class FusedUpdates(Op):
    """Updates of several weights, in any order.

    args: for each weight in turn weight, gradient, states (and the copy), and at the end `hyper`; weights and
    states are updated.
    """

    op_name = "_fused_updates"
    variadic = "args"
    outputs = ()
    recomputable = False
    Attrs = GroupAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return tuple(f"arg{i}" for i in range(a.each * len(a.rows) + 1))

    @classmethod
    def mutated(cls, a: Any) -> tuple[str, ...]:
        return tuple(f"arg{i}" for i in range(a.each * len(a.rows)) if i % a.each != 1)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        return shapes, ()

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return dtypes, ()

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return sum(a.op.flops(a.attrs, own, ()) for own in _each(a, inputs))

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return max(a.op.workspace(a.attrs, own, (), dtype) for own in _each(a, inputs))

    @staticmethod
    def forward(xp: Any, a: Any, *args: Any, work: Any) -> None:
        for row, own in zip(a.rows, _each(a, args)):
            a.op.forward(xp, replace(a.attrs, row=row), *own, args[-1], work=work)


def _each(a: Any, arrays: Any) -> Any:
    """The arrays of every weight."""
    return [arrays[i * a.each : (i + 1) * a.each] for i in range(len(a.rows))]
