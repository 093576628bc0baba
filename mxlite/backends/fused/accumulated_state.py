"""Operators of an optimizer's step that adds up a gradient in its state, part by part.

A weight's gradient that is a sum over tiles of rows need not be there as a whole where the step does nothing
with it but add it to a state, as with momentum (see `Update.growth`):

    for rows [a, b)    state = keeps * state + lr * grows * (d_out[a:b].T @ data[a:b])
    weight += state, and the like

`keeps` is 1 behind the first tile. `StateTerm` makes a term, which its tile call adds to the state, and
`RestOfUpdate` is the second line. See `passes/tiling/chunked_cross_entropy.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...ops.linalg.product import product, product_bytes
from ...ops.optim.recording import Rates
from ...ops.optim.update import rest_of
from ...ops.scratch import accumulator


@dataclass(frozen=True)
class AccumulatedStateAttrs:
    """`op` is the fused form of a step that adds up the gradient in its one state, `attrs` its parameters."""

    op: type[Op]
    attrs: Any

    @property
    def growth(self) -> tuple[float, float]:
        """Factors of the accumulation; see `Update`."""
        found: tuple[float, float] = self.op.step_of.growth(self.attrs)  # type: ignore[attr-defined]
        return found


class _StepPart(Op):
    """Base: an operator that is a part of an optimizer's step."""

    abstract = True
    recomputable = False
    Attrs = AccumulatedStateAttrs

    @classmethod
    def timed_as(cls, a: Any) -> Any:
        return replace(a, attrs=a.op.timed_as(a.attrs))


class StateTerm(_StepPart):
    """The term of a dense layer's gradient in the state, ``term = lr * grows * d_out.T @ data``.

    d_out: (N, M);  data: (N, K);  hyper: as in the step  ->  term: (M, K), float32 for those of 16 bits.
    """

    op_name = "_state_term"
    inputs = ("d_out", "data", "hyper")
    outputs = ("term",)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Any, Any]:
        d_out, data, _ = shapes
        assert d_out is not None and data is not None
        return shapes, ((d_out[1], data[1]),)

    @staticmethod
    def infer_type(a: Any, *dtypes: DType | None) -> Any:
        return dtypes, (None if dtypes[0] is None else accumulator(dtypes[0]),)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * prod(inputs[0]) * inputs[1][1]

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        (rows, classes), (_, width) = inputs[:2]
        return product_bytes(classes, rows, width, dtype)

    @staticmethod
    def forward(xp: Any, a: Any, d_out: Any, data: Any, hyper: Any, *, term: Any, work: Any) -> None:
        product(xp, d_out.T, data, term, work)
        xp.multiply(term, factor_of(a, hyper, term.dtype), out=term)


class RestOfUpdate(_StepPart):
    """The rest of a step whose gradient is in the state: the weight is updated.

    weight, state: (...);  hyper: as in the step.
    """

    op_name = "_rest_of_update"
    inputs = ("weight", "state", "hyper")
    outputs = ()
    mutates = ("weight",)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Any, Any]:
        return shapes, ()

    @staticmethod
    def infer_type(a: Any, *dtypes: DType | None) -> Any:
        return dtypes, ()

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        weight, state, hyper = inputs
        return int(a.op.flops(a.attrs, (weight, weight, state, hyper), ()))

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return int(a.op.workspace(a.attrs, inputs[:1], (), dtype))

    @staticmethod
    def forward(xp: Any, a: Any, weight: Any, state: Any, hyper: Any, *, work: Any) -> None:
        rest_of(a.op.step_of, xp, a.attrs, Rates(*hyper[a.attrs.row]), weight, state, work)


def factor_of(a: AccumulatedStateAttrs, hyper: Any, dtype: DType) -> Any:
    """The factor of a gradient in the state."""
    return dtype.type(hyper[a.attrs.row, 0] * a.growth[1])
