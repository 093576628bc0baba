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
from ...te.expression import evaluate, Expression

BLOCK = 8192  # elements that the reference kernel works on at a time


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
        """Block by block, so that no temporary is large."""
        wide = np.float64 if any(x.dtype == np.float64 for x in args) else np.float32
        inputs = [np.broadcast_to(x.reshape(v), a.shape) for x, v in zip(args, a.views)]
        for index in _blocks(a.shape):
            made = evaluate(a.expression, a.constants, [x[index] for x in inputs], wide)
            for out, value in zip(outs, made):
                if out is not None:
                    with np.errstate(all="ignore"):
                        np.copyto(out[index], value, casting="unsafe")


def _blocks(shape: Shape) -> Any:
    """Indices that cut an array into parts of at most about BLOCK elements, in C order."""
    axis, size = len(shape), 1
    while axis and size * shape[axis - 1] <= BLOCK:
        axis -= 1
        size *= shape[axis]
    if axis == 0:
        yield ...
        return
    step = max(1, BLOCK // max(1, size))
    for outer in np.ndindex(*shape[: axis - 1]):
        for i in range(0, shape[axis - 1], step):
            yield (*outer, slice(i, i + step))


class FusedElementwiseGradient(FusedElementwise):
    """The same as a gradient operator: never recomputed."""

    op_name = "_fused_elementwise_gradient"
    recomputable = False
    cheap = False
