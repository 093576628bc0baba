"""Operator that accumulates a gradient into another one (beta = 1).

    d_data = of a product, from d_out and weight       out = addend + d_data
    d_weight = of a product, from d_out and data       out = addend + d_weight

A kernel adds as it writes: the separate gradient is never stored, and if the kernel allows it `out`
overwrites `addend`. The pass `passes/fusion/accumulate_gradients.py` inserts the operator into a step; only
plans and profiles show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ...graph.opdef import DType, Op, Shapes
from ..call import flops_of


@dataclass(frozen=True)
class AccumulatedGradientAttrs:
    """`op`: the differentiated operator, `attrs` its parameters; `of`: one of its two factors, which are its
    first inputs.
    """

    op: type[Op]
    attrs: Any
    of: str

    @property
    def gradient(self) -> type[Op]:
        """The operator that computes all gradients."""
        made = self.op.grad_op
        assert made is not None
        return made

    @property
    def factor(self) -> str:
        """The factor of the gradient besides d_out."""
        first, second = self.op.inputs[:2]
        return second if self.of == first else first

    @property
    def has_bias(self) -> bool:
        """True if the gradient of a bias is computed with it."""
        return self.of != self.op.inputs[0] and "bias" in self.op.input_names(self.attrs)

    def forward(self, inputs: Shapes) -> tuple[Shapes, Shapes]:
        """The shapes of the call whose gradient it is."""
        d_out, factor, addend = inputs
        factors = (addend, factor) if self.of == self.op.inputs[0] else (factor, addend)
        bias = ((factors[1][0],),) if self.has_bias else ()
        return (*factors, *bias), (d_out,)


class AccumulatedGradient(Op):
    """``out = addend + gradient``, for an operator that is linear in each of its first two inputs.

    d_out: as the operator's output;  factor: the other of the two;  addend, out: as the input whose gradient
    it is;  d_bias: the gradient of a bias, which is not accumulated. Cost: that of the gradient, and a sum.
    """

    op_name = "_accumulated_gradient"
    inputs = ("d_out", "factor", "addend")
    outputs = ("out", "d_bias")
    Attrs = AccumulatedGradientAttrs

    @classmethod
    def output_names(cls, a: Any) -> tuple[str, ...]:
        return cls.outputs if a.has_bias else cls.outputs[:1]

    @staticmethod
    def infer_shape(a: Any, *shapes: Any) -> tuple[Any, Shapes]:
        return shapes, (shapes[2], *a.forward(shapes)[0][2:])

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return int(flops_of(a.gradient, a.attrs, a.forward(inputs), (f"d_{a.of}",))) + prod(inputs[2])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        nbytes: int = a.op.backward_workspace(a.attrs, *a.forward(inputs), dtype)
        return nbytes

    @staticmethod
    def forward(
        xp: Any, a: Any, d_out: Any, factor: Any, addend: Any, *, out: Any, d_bias: Any, work: Any
    ) -> None:
        signature = a.gradient.signature
        have: Mapping[str, Any] = {"d_out": d_out, a.factor: factor}
        arrays = {f"d_{a.of}": out, "d_bias": d_bias}
        made = {n: arrays.get(n) for n in signature.makes}
        shapes = a.forward((d_out.shape, factor.shape, addend.shape))
        offered = {"work": work, "shapes": shapes}
        services = {n: x for n, x in offered.items() if n in signature.services}
        a.gradient.forward(xp, a.attrs, *(have.get(n) for n in signature.needs), **made, **services)
        xp.add(out, addend, out=out)
