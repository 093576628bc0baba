"""Batch normalization, a sum and a rectifier whose result need not be kept: it can be recomputed.

    x, addend -> _norm_act_line -> out            read in the forward pass
                                -> factor, shift  read, with x and addend, by recomputations of out

The addend may itself be an affine map of an array and a rectifier, so that a norm whose result is only added
needs no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ...core.record import record
from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes, Types
from ..scratch import accumulator, carve, Piece, scratch_bytes
from .norm import around_channels, BatchNorm, norm_gain
from .norm_act import NormAct
from .norm_arrays import NormAddend, NormGradients, NormMoments, NormResults, NormVectors

ADDENDS = ("", "array", "behind", "line", "relu")
"""Kinds of addends: none; the array; the array added after the rectifier (for `_norm_again` alone); an affine
map of it for each channel; a rectified affine map."""


def is_lined(addend: str) -> bool:
    """True if the addend has an affine map."""
    return addend in ("line", "relu")


def addend_names(cls: type[Op], a: Any) -> tuple[str, ...]:
    """The inputs in use; the last three are addend, addend_factor and addend_shift."""
    return cls.inputs[: len(cls.inputs) - (0 if is_lined(a.plus) else 2 if a.plus else 3)]


def addend_first(cls: type[Op], a: Any) -> Mapping[str, tuple[str, ...]]:
    """The inputs that `out` may overwrite."""
    return {"out": ("addend", "data") if a.plus else ("data",)}


@record
class NormActLineAttrs(BatchNorm.Attrs):
    """Parameters of BatchNorm; `relu` and `slope`: as in `_norm_act`; `plus`: see `ADDENDS`."""

    relu: bool = True
    plus: str = ""
    slope: float = 0.0


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
    Attrs = NormActLineAttrs  # type: ignore[assignment]

    input_names = classmethod(addend_names)
    in_place_options = classmethod(addend_first)

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

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return BatchNorm.flops(a, inputs, outputs) + line_terms(a) * prod(inputs[0])

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return BatchNorm.backward_flops(a, inputs, outputs) + (2 + line_terms(a)) * a.relu * prod(inputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(line_pieces(a, inputs[0], dtype)) + NormAct.workspace(a, inputs, outputs, dtype)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        own = scratch_bytes(line_pieces(a, inputs[0], dtype))
        return own + NormAct.backward_workspace(a, inputs, outputs, dtype)

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
        pieces = line_pieces(a, data.shape, data.dtype)
        added, _, columns = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        mean, var, factor, shift = (own if given is None else given for given, own in zip(made[1:], columns))
        plus = addend_of(xp, a, more.addend, more.addend_factor, more.addend_shift, added)
        NormAct.forward.kernel(
            xp, a, data, vectors, plus, out=made.out, mean=mean, var=var, work=rest, train=train
        )
        line_of_norm(xp, a, vectors.gamma, vectors.beta, mean, var, factor, shift)

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
        pieces = line_pieces(a, data.shape, data.dtype)
        added, out, columns = carve(work, pieces)
        if a.relu:
            factor, shift = columns[:2]
            line_of_norm(xp, a, gamma, beta, moments.mean, moments.var, factor, shift)
            plus = addend_of(xp, a, more.addend, more.addend_factor, more.addend_shift, added)
            line(xp, data, factor, shift, a.axis, out)
            if plus is not None:
                xp.add(out, plus, out=out)
        rest = work[scratch_bytes(pieces) :]
        NormAct.backward.kernel(
            xp, a, d_out, data, gamma, beta, moments, out, made=made, work=rest, train=train
        )


def line(xp: Any, x: Any, factor: Any, shift: Any, axis: int, out: Any) -> Any:
    """The affine map x * factor + shift by channels at `axis`, in `out`."""
    shape = [1] * x.ndim
    shape[axis] = -1
    xp.multiply(x, factor.reshape(shape), out=out)
    return xp.add(out, shift.reshape(shape), out=out)


def addend_of(xp: Any, a: Any, addend: Any, factor: Any, shift: Any, scratch: Any) -> Any:
    """The addend: None, the array, or its affine map in `scratch`."""
    if not is_lined(a.plus):
        return addend
    line(xp, addend, factor, shift, a.axis, scratch)
    return xp.maximum(scratch, 0, out=scratch) if a.plus == "relu" else scratch


def line_of_norm(
    xp: Any, a: Any, gamma: Any, beta: Any, mean: Any, var: Any, factor: Any, shift: Any
) -> None:
    norm_gain(xp, a, var, gamma, factor)
    xp.multiply(mean, factor, out=shift)
    xp.subtract(beta, shift, out=shift)


def line_terms(a: Any) -> int:
    """Operations on each number besides the norm."""
    return bool(a.plus) + a.relu + 2 * is_lined(a.plus) + (a.plus == "relu")


def line_pieces(a: Any, data: Shape, dtype: DType) -> list[Piece]:
    """Scratch: the addend; the sum; mean, var, factor and shift."""
    wide = accumulator(dtype)
    channels = around_channels(a, data)[1]
    return [(data if is_lined(a.plus) else (0,), wide), (data, wide), ((4, channels), wide)]
