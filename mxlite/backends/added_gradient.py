"""The operator that makes a gradient in data and adds it to one that has arrived before.

    d_data = of a product, from d_out and weight       out = addend + d_data

A kernel adds as it writes: d_data as such is never there, and where the kernel says so `out` lies where
`addend` lay. The operator comes in where a step is combined (`passes/added_gradients.py`); no user and no
file ever sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ..graph.opdef import DType, Op, Shapes
from .facts import flops_of


@dataclass(frozen=True)
class AddedGradientAttrs:
    """`op`: whose gradient in data it is, `attrs` its parameters."""

    op: type[Op]
    attrs: Any

    @property
    def gradient(self) -> type[Op]:
        """The operator that makes all gradients."""
        made = self.op.grad_op
        assert made is not None
        return made


class _added_gradient(Op):
    """``out = addend + d_data``, of an operator of data and weight that is linear in both.

    d_out: as the operator's output;  weight;  addend, out: as its data. Cost: that of d_data, and a sum.
    """

    inputs = ("d_out", "weight", "addend")
    Attrs = AddedGradientAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Any) -> tuple[Any, Shapes]:
        return shapes, shapes[2:]

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return int(flops_of(a.gradient, a.attrs, _forward(inputs), ("d_data",))) + prod(inputs[2])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        nbytes: int = a.op.backward_workspace(a.attrs, *_forward(inputs), dtype)
        return nbytes

    @staticmethod
    def forward(xp: Any, a: Any, d_out: Any, weight: Any, addend: Any, *, out: Any, work: Any) -> None:
        signature = a.gradient.signature
        have = {"d_out": d_out, "weight": weight}
        made = {n: out if n == "d_data" else None for n in signature.makes}
        offered = {"work": work, "shapes": _forward((d_out.shape, weight.shape, addend.shape))}
        services = {n: x for n, x in offered.items() if n in signature.services}
        a.gradient.forward(xp, a.attrs, *(have.get(n) for n in signature.needs), **made, **services)
        xp.add(out, addend, out=out)


def _forward(inputs: Shapes) -> tuple[Shapes, Shapes]:
    """The shapes of the call whose gradient it is, without a bias."""
    d_out, weight, data = inputs
    return (data, weight), (d_out,)
