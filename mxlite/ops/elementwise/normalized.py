"""The result of a norm from its statistics, as an operator of each element."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import require_rank, Shapes
from .elementwise import Elementwise


@record
class NormalizedAttrs:
    """`axis`: that of the channels, counted from the front; `fix_gamma`: gamma counts as 1."""

    axis: int = 1
    fix_gamma: bool = False


class Normalized(Elementwise):
    """A norm's result by the statistics of its channels, ``out = (data - mean) * (gamma * var) + beta``.

    data: (N, C, ...) with C at `axis`;  gamma, beta, mean, var: (C,)  ->  out: as data. As in BatchNorm `var`
    is the inverse standard deviation.

    A pass puts it, with `_norm_statistics`, in the place of a norm whose readers are elementwise
    (`backends/passes/fusion/norm_chains.py`). The norm has the gradient; this has none.
    """

    op_name = "_normalized"
    inputs = ("data", "gamma", "beta", "mean", "var")
    inferred = inputs[1:]
    accepts = "float"
    in_place = {"out": "data"}
    Attrs = NormalizedAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        require_rank(data, a.axis + 1, "data")
        return (data, *(data[a.axis : a.axis + 1],) * 4), (data,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 4 * prod(inputs[0])

    @classmethod
    def operand_shape(cls, a: Any, name: str, shape: Shape, whole: Shape) -> Shape:
        if name not in cls.inputs[1:]:
            return shape
        return tuple(n if i == a.axis else 1 for i, n in enumerate(whole))

    @staticmethod
    def compute(w: Any, a: Any, data: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Mapping[str, Any]:
        return {"out": (data - mean) * (var if a.fix_gamma else gamma * var) + beta}
