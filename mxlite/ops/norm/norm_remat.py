"""Recomputation of a norm's result from its statistics, in one pass."""

from __future__ import annotations

from math import prod
from typing import Any

from ...core.errors import DTypeError
from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes, Types
from ..scratch import carve, in_accumulator, scratch_bytes
from .norm import BatchNorm
from .norm_act import (
    addend_first,
    addend_names,
    line_of_norm,
    line_terms,
    norm_pieces,
    NormActAttrs,
    normalized,
)
from .norm_arrays import NormAddend, NormAffine, PrologueArrays


class NormRemat(Op):
    """The result of `_norm_act` or of its variants, recomputed bit for bit from its statistics.

    data, addend: (N, C, ...) with C at `axis`;  gamma, beta, mean, var, addend_factor, addend_shift: (C,)
    ->  out: as data, ``data * factor + shift + added``, rectified. As in BatchNorm `var` is the inverse
    standard deviation; attributes are those of `_norm_act`, addends also those of `_norm_act_line`. There is
    no gradient.
    """

    op_name = "_norm_again"
    inputs = ("data", "gamma", "beta", "mean", "var", "addend", "addend_factor", "addend_shift")
    accepts = "float"
    cheap = True
    Attrs = NormActAttrs

    input_names = classmethod(addend_names)
    in_place_options = classmethod(addend_first)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        (data, *channels), _ = BatchNorm.infer_shape(a, *shapes[:5])
        return (data, *channels, data, *channels[:2])[: len(shapes)], (data,)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        (data, *columns), _ = BatchNorm.infer_type(a, *dtypes[:5])
        wide = in_accumulator(data, cls.inputs[6:], dtypes[6:])
        for addend in dtypes[5:6]:
            if None not in (data, addend) and addend != data:
                raise DTypeError(f"addend must be {data} for data of {data}, got {addend}.")
        return (data, *columns, data, wide, wide)[: len(dtypes)], (data,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return (2 + line_terms(a)) * prod(inputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(norm_pieces(a, inputs[0], dtype))

    @staticmethod
    @grouped
    def forward(
        xp: Any, a: Any, data: Any, norm: NormAffine, more: NormAddend, *, out: Any, work: Any
    ) -> None:
        scratch = carve(work, norm_pieces(a, data.shape, data.dtype))
        factor, shift = scratch[-1][:2]
        line_of_norm(xp, a, norm, factor, shift)
        total = normalized(xp, a, data, PrologueArrays(factor, shift, *more), scratch)
        xp.copyto(out, total, casting="unsafe")
