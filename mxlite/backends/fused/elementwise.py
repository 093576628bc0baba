"""Operators that replace several elementwise ones: an expression on arrays that broadcast.

Passes insert them into a step, after differentiation; no user and no file ever sees them. So they
have no gradient, and live here rather than among `mxlite.ops`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...te.expression import evaluate_into, Expression


@dataclass(frozen=True)
class FusedAttrs:
    """`views`: the shapes under which inputs broadcast to `shape`. `dtypes` and `names` are the outputs'."""

    expression: Expression
    constants: tuple[float, ...]
    views: tuple[Shape, ...]
    shape: Shape
    dtypes: tuple[DType, ...]

    def from_others(self, which: int) -> tuple[FusedAttrs, tuple[int, ...]]:
        """See `Expression.from_others`."""
        expression, places = self.expression.from_others(which)
        views = tuple(self.views[i] if i < len(self.views) else self.shape for i in places)
        return replace(self, expression=expression, views=views, dtypes=(self.dtypes[which],)), places


class FusedElementwise(Op):
    """Several elementwise operators in one pass over memory.

    args: arrays that broadcast, reshaped to `views`, to `shape`  ->  output0, ...: `shape`, of `dtypes`.
    Computed in float32 whatever the types of the arrays (float64 if there is such an input); only stored
    results are rounded.
    """

    op_name = "_fused_elementwise"
    variadic = "args"
    variadic_outputs = "outs"
    cheap = True
    Attrs = FusedAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return tuple(f"arg{i}" for i in range(a.expression.num_inputs))

    @classmethod
    def num_outputs_of(cls, a: Any) -> int:
        return len(a.expression.outputs)

    @classmethod
    def in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        # All inputs are read, vector by vector, before an output is written.
        whole = tuple(f"arg{i}" for i, v in enumerate(a.views) if v == a.shape)
        return dict.fromkeys(cls.output_names(a), whole)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        return shapes, (a.shape,) * len(a.expression.outputs)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return dtypes, a.dtypes

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        steps = sum(s[0] != "number" for s in a.expression.steps)
        return steps * int(np.prod(outputs[0], dtype=np.int64))

    @staticmethod
    def forward(xp: Any, a: Any, *args: Any, outs: Any) -> None:
        inputs = [np.broadcast_to(x.reshape(v), a.shape) for x, v in zip(args, a.views)]
        evaluate_into(a.expression, a.constants, inputs, outs)


class FusedElementwiseGradient(FusedElementwise):
    """The same as a gradient operator: never recomputed."""

    op_name = "_fused_elementwise_gradient"
    recomputable = False
    cheap = False
