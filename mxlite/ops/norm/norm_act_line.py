"""Batch normalization, a sum and a rectifier whose result need not be kept: it can be recomputed.

x, addend -> _norm_act_line -> out            read in the forward pass
                            -> factor, shift  read, with x and addend, by recomputations of out
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Shapes, Types
from .norm import BatchNorm
from .norm_act import addend_names, line_terms, norm_backward, norm_forward, NormAct
from .norm_arrays import NormAddend, NormGradients, NormMoments, NormResults, NormVectors, PrologueArrays


class NormActLine(NormAct):
    """`_norm_act` whose result can be recomputed, ``out = max(data * factor + shift + added, 0)``.

    data, addend: (N, C, ...) with C at `axis`;  gamma, beta, moving_mean, moving_var, addend_factor,
    addend_shift: (C,)  ->  out: as data;  mean, var, factor, shift: (C,), hidden.

    added: the addend or, by the attribute `addend`, its affine map ``addend * addend_factor + addend_shift``,
    rectified if that is "relu". ``factor = gamma * var``, ``shift = beta - mean * factor``. Backward
    recomputes from data and addend what the rectifier let through, and keeps no `out`; **d_addend is the
    gradient in `added`**: the affine map and the rectifier before it have their own gradients.
    """

    op_name = "_norm_act_line"
    inputs = (*NormAct.inputs, "addend_factor", "addend_shift")  # type: ignore[assignment]
    outputs = (*NormAct.outputs, "factor", "shift")  # type: ignore[assignment]
    inferred = (*NormAct.inferred, "addend_factor", "addend_shift")  # type: ignore[assignment]

    input_names = classmethod(addend_names)

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        return frozenset() if a.relu else frozenset(("beta", *cls.inputs[5:]))

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        ins, outs = BatchNorm.infer_shape(a, *shapes[:5])
        more = (outs[0], *outs[1:2] * 2)[: len(shapes) - 5]
        return (*ins, *more), (*outs, *outs[1:2] * 2)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        ins, outs = super().infer_type(a, *dtypes[:6])
        return (*ins, *outs[1:2] * len(dtypes[6:])), (*outs, *outs[1:2] * 2)

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return BatchNorm.backward_flops(a, inputs, outputs) + (2 + line_terms(a)) * a.relu * prod(inputs[0])

    @staticmethod
    @grouped
    def forward(
        xp: Any,
        a: Any,
        data: Any,
        vectors: NormVectors,
        more: NormAddend,
        *,
        made: NormResults,
        work: Any,
        train: bool,
    ) -> None:
        norm_forward(xp, a, data, vectors, PrologueArrays(None, None, *more), made, work, train)

    @staticmethod
    @grouped
    def backward(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        gamma: Any,
        beta: Any,
        moments: NormMoments,
        more: NormAddend,
        *,
        made: NormGradients,
        work: Any,
        train: bool,
    ) -> None:
        addend = PrologueArrays(None, None, *more)
        norm_backward(xp, a, d_out, data, gamma, beta, moments, None, addend, made, work, train)
