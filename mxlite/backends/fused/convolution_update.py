"""Operator that updates a convolution's weight with a gradient computed some filters at a time.

As in `product_update.py`, the gradient, as large as the weight, is never stored as a whole.

    for filters [a, b)    gradient = of the convolution of data with those, from d_out[..., a:b]
                          weight[a:b], states[a:b] = step(weight[a:b], gradient, states[a:b])

The pass `passes/updates/convolution_updates.py` inserts the operator into a step; no user and no file ever
sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...graph.opdef import DType, Op, Shapes
from ...ops.nn.normed_convolution import NormedConvolutionWeightGradient
from ...ops.scratch import carve, Piece, scratch_bytes
from .product_update import JoinedUpdate, step_bytes

_byte = np.dtype("uint8")


@dataclass(frozen=True)
class ConvolutionUpdateAttrs:
    """`op` is the fused form of an elementwise step, `attrs` its parameters. `maker` is
    the convolution, or `_normed_convolution_d_weight`, and `of_maker` are its parameters.
    """

    op: type[Op]
    attrs: Any
    maker: type[Op]
    of_maker: Any

    @property
    def is_normed(self) -> bool:
        """True if data are normalized first."""
        return self.maker is NormedConvolutionWeightGradient

    @property
    def made_of(self) -> tuple[str, ...]:
        """The names of the gradient's inputs, the output's gradient first."""
        return self.maker.input_names(self.of_maker) if self.is_normed else ("grad", "data")


class ConvolutionUpdate(JoinedUpdate):
    """An optimizer's step of the weight of a convolution without bias, channels last.

    grad: (N, *OS, F), data: (N, *S, C) and further inputs of the gradient;  weight, states: (F, C, *K);
    then `hyper`, as in the step. Weight and states are updated.
    """

    op_name = "_convolution_update"
    Attrs = ConvolutionUpdateAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        weight, _, *others = a.op.input_names(a.attrs)
        return (*a.made_of, weight, *others)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        weight, *others = inputs[len(a.made_of) :]
        step: int = a.op.flops(a.attrs, (weight, weight, *others), ())
        return 2 * prod(inputs[0]) * prod(weight[1:]) + step

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(a, inputs, dtype))

    @staticmethod
    def forward(xp: Any, a: Any, *args: Any, work: Any) -> None:
        count = len(a.made_of)
        made_of, (weight, *states, hyper) = args[:count], args[count:]
        gradient, rest = carve(work, _pieces(a, tuple(x.shape for x in args), made_of[0].dtype))
        wanted = {"d_weight": gradient, "d_bias": None, "work": rest}
        if a.is_normed:
            a.maker.forward(xp, a.of_maker, *made_of, **wanted)
        else:
            shapes = ((made_of[1].shape, weight.shape), (made_of[0].shape,))
            a.maker.backward(xp, a.of_maker, *made_of, None, d_data=None, **wanted, shapes=shapes)
        a.op.forward(xp, a.attrs, weight, gradient, *states, hyper, work=rest)


def _pieces(a: Any, inputs: Shapes, dtype: DType) -> list[Piece]:
    """Scratch: the gradient, and scratch of its computation and of the step."""
    count = len(a.made_of)
    weight = inputs[count]
    if a.is_normed:
        maker = a.maker.workspace(a.of_maker, inputs[:count], (weight,), dtype)
    else:
        maker = a.maker.backward_workspace(a.of_maker, (inputs[1], weight), inputs[:1], dtype)
    return [(weight, dtype), ((max(maker, step_bytes(a, weight, dtype)),), _byte)]
