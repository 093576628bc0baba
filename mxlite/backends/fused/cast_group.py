"""Operator that casts several arrays in one call.

A pass inserts it into a step; no user and no file ever sees it, so it lives here rather than among
`mxlite.ops`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.dtype import as_dtype
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes


@dataclass(frozen=True)
class CastGroupAttrs:
    """Cast of `count` arrays to `dtype`."""

    dtype: str
    count: int


class FusedCasts(Op):
    """Casts of several arrays to another dtype.

    args: (...) of any shapes  ->  output0, ...: each as its input, of `dtype`.
    """

    op_name = "_fused_casts"
    variadic = "args"
    variadic_outputs = "outs"
    cheap = True
    Attrs = CastGroupAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return tuple(f"arg{i}" for i in range(a.count))

    @classmethod
    def num_outputs_of(cls, a: Any) -> int:
        return int(a.count)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Any, Any]:
        return shapes, shapes

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return dtypes, (as_dtype(a.dtype),) * a.count

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 0

    @staticmethod
    def forward(xp: Any, a: Any, *args: Any, outs: Any) -> None:
        for arg, out in zip(args, outs):
            if out is not None:
                xp.copyto(out, arg, casting="unsafe")
