"""Batch normalization with a fused epilogue: the sum and the rectifier after it in a residual network.

A norm is an affine map of each channel, ``data * factor + shift``, ``factor = gamma * var``, ``shift = beta -
mean * factor``. The addend may be one itself, of an array and perhaps rectified: a norm whose result is only
added needs no result. The kernels here are the reference for those of backends, which alone are chosen for a
plan: they compute whole arrays in scratch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ...core.errors import OpAttributeError
from ...core.record import record
from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes, Types
from ..scratch import accumulator, carve, Piece, scratch_bytes
from .norm import around_channels, BatchNorm, norm_gain
from .norm_arrays import (
    NO_PROLOGUE,
    NormAffine,
    NormGradients,
    NormMoments,
    NormOutputs,
    NormResults,
    NormVectors,
    PrologueArrays,
)

ADDENDS = ("", "array", "behind", "line", "relu")
"""Kinds of addends: none; the array; the array added after the rectifier; an affine map of it for each
channel; a rectified affine map."""

_FLAG = np.dtype(bool)


@record
class NormActAttrs(BatchNorm.Attrs):
    """Parameters of BatchNorm; `plus`: the addend, one of `ADDENDS`; `relu`: True if negative results become
    0, or are multiplied by `slope`, a number of [0, 1).
    """

    relu: bool = True
    plus: str = ""
    slope: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.slope < 1:
            raise OpAttributeError(f"slope must be in [0, 1), got {self.slope}.")


class NormAct(BatchNorm):
    """Batch normalization, a sum and a rectifier, ``out = max(y, slope * y), y = BatchNorm(data) + addend``.

    data, addend: (N, C, ...) with C at `axis`;  gamma, beta, moving_mean, moving_var: (C,)
    ->  out: as data;  mean, var: (C,), both hidden.

    Attributes, statistics and moving averages are BatchNorm's; `plus` and `relu` say which of the two follow.
    With `plus` "behind" the sum comes last.
    A rectifier that is not leaky has the slope 0.
    Data of two bytes is computed in float32 throughout and rounded once.

    Backward keeps `data` and the statistics. It recomputes from them where the rectifier let through, so
    that `out` lives only as long as others need it; with an addend it reads that from `out`, which the next
    convolution keeps anyway, while the addend might not be kept. At 0 the gradient is the slope.
    """

    op_name = "_norm_act"
    inputs = (*BatchNorm.inputs, "addend")  # type: ignore[assignment]
    # d_addend first: while it takes the bytes of d_out, d_data can have those of data.
    backward_in_place = {"d_addend": "d_out", "d_data": ("d_out", "data")}
    Attrs = NormActAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return cls.inputs if a.plus else cls.inputs[:-1]

    @classmethod
    def num_visible_outputs(cls, a: Any) -> int:
        return 1

    @classmethod
    def in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        return addend_first(cls, a)

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        if not a.relu:
            return frozenset(("beta", "out"))
        return frozenset(("out",) if a.plus in ("", "behind") else ("beta",))

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        ins, outs = BatchNorm.infer_shape(a, *shapes[:5])
        return (*ins, *(outs[:1] if a.plus else ())), outs

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        data = next((d for d in (dtypes[0], *dtypes[5:]) if d is not None), None)
        ins, outs = super().infer_type(a, data, *dtypes[1:5])
        return (*ins, *(data for _ in dtypes[5:])), outs

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return BatchNorm.flops(a, inputs, outputs) + line_terms(a) * prod(inputs[0])

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return BatchNorm.backward_flops(a, inputs, outputs) + 2 * a.relu * prod(inputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        own = scratch_bytes(norm_pieces(a, inputs[0], dtype))
        return own + BatchNorm.workspace(a, inputs, outputs, dtype)

    backward_workspace = workspace

    @staticmethod
    @grouped
    def forward(
        xp: Any,
        a: Any,
        data: Any,
        vectors: NormVectors,
        addend: Any = None,
        *,
        made: NormOutputs,
        work: Any,
        train: bool,
    ) -> None:
        norm_forward(xp, a, data, vectors, PrologueArrays(addend=addend), NormResults(*made), work, train)

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
        out: Any,
        *,
        made: NormGradients,
        work: Any,
        train: bool,
    ) -> None:
        norm_backward(xp, a, d_out, data, gamma, beta, moments, out, NO_PROLOGUE, made, work, train)


def norm_forward(
    xp: Any,
    a: Any,
    data: Any,
    vectors: NormVectors,
    addend: PrologueArrays,
    made: NormResults,
    work: Any,
    train: bool,
) -> None:
    """Write what is wanted of `made`."""
    pieces = norm_pieces(a, data.shape, data.dtype)
    scratch, rest = carve(work, pieces), work[scratch_bytes(pieces) :]
    mean, var, factor, shift = (own if x is None else x for x, own in zip(made[1:], scratch[-1]))
    statistics = NormOutputs(None, mean, var)
    BatchNorm.forward.kernel(xp, a, data, vectors, made=statistics, work=rest, train=train)
    line_of_norm(xp, a, NormAffine(vectors.gamma, vectors.beta, mean, var), factor, shift)
    if made.out is not None:
        total = normalized(xp, a, data, addend._replace(factor=factor, shift=shift), scratch)
        xp.copyto(made.out, total, casting="unsafe")


def norm_backward(
    xp: Any,
    a: Any,
    d_out: Any,
    data: Any,
    gamma: Any,
    beta: Any,
    moments: NormMoments,
    out: Any,
    addend: PrologueArrays,
    made: NormGradients,
    work: Any,
    train: bool,
) -> None:
    """The gradient of a norm behind that of what follows it; without `out` it is recomputed."""
    pieces = norm_pieces(a, data.shape, data.dtype)
    scratch, rest = carve(work, pieces), work[scratch_bytes(pieces) :]
    _, total, below, columns = scratch
    if d_out is not None:
        if a.relu and out is None:
            factor, shift = columns[:2]
            line_of_norm(xp, a, NormAffine(gamma, beta, moments.mean, moments.var), factor, shift)
            out = normalized(xp, a, data, addend._replace(factor=factor, shift=shift), scratch)
        if a.relu:
            xp.less_equal(out, 0, out=below)  # False at nan, which must not be hidden
        xp.copyto(total, d_out)
        if made.d_addend is not None and a.plus == "behind":
            xp.copyto(made.d_addend, d_out)
        if a.relu:
            xp.multiply(total, a.slope, out=total, where=below)
        d_out = total
    if made.d_addend is not None and (d_out is None or a.plus != "behind"):
        xp.copyto(made.d_addend, 0 if d_out is None else d_out, casting="unsafe")
    wanted = dict(zip(("d_data", "d_gamma", "d_beta"), made))
    BatchNorm.backward.kernel(xp, a, d_out, data, gamma, moments, **wanted, work=rest, train=train)


def is_lined(addend: str) -> bool:
    """True if the addend has an affine map."""
    return addend in ("line", "relu")


def addend_names(cls: type[Op], a: Any) -> tuple[str, ...]:
    """The inputs in use; the last three are addend, addend_factor and addend_shift."""
    return cls.inputs[: len(cls.inputs) - (0 if is_lined(a.plus) else 2 if a.plus else 3)]


def addend_first(cls: type[Op], a: Any) -> Mapping[str, tuple[str, ...]]:
    """The inputs that `out` may overwrite."""
    return {"out": ("addend", "data") if a.plus else ("data",)}


def line_terms(a: Any) -> int:
    """Operations on each number besides the norm."""
    return bool(a.plus) + a.relu + 2 * is_lined(a.plus) + (a.plus == "relu")


def line_of_norm(xp: Any, a: Any, norm: NormAffine, factor: Any, shift: Any) -> None:
    """The affine map of a norm."""
    norm_gain(xp, a, norm.var, norm.gamma, factor)
    xp.multiply(norm.mean, factor, out=shift)
    xp.subtract(norm.beta, shift, out=shift)


def norm_pieces(a: Any, data: Shape, dtype: DType) -> list[Piece]:
    """Scratch: the addend's affine map; the sum; where it is negative; mean, var, factor and shift."""
    wide = accumulator(dtype)
    channels = around_channels(a, data)[1]
    return [(data if is_lined(a.plus) else (0,), wide), (data, wide), (data, _FLAG), ((4, channels), wide)]


def normalized(xp: Any, a: Any, data: Any, given: PrologueArrays, scratch: Sequence[Any]) -> Any:
    """The result of a norm and its epilogue, in the second array of `scratch`; see `norm_pieces`. An
    addend behind the rectifier may be None.
    """
    added, total, below, *_ = scratch
    _line(xp, a, data, given.factor, given.shift, total)
    addend = given.addend
    if is_lined(a.plus):
        addend = _line(xp, a, addend, given.addend_factor, given.addend_shift, added)
    if a.plus == "relu":
        xp.maximum(addend, 0, out=addend)
    if a.plus and a.plus != "behind":
        xp.add(total, addend, out=total)
    if a.relu and a.slope:
        xp.less(total, 0, out=below)
        xp.multiply(total, a.slope, out=total, where=below)
    elif a.relu:
        xp.maximum(total, 0, out=total)
    if a.plus == "behind" and addend is not None:
        xp.add(total, addend, out=total)
    return total


def _line(xp: Any, a: Any, x: Any, factor: Any, shift: Any, out: Any) -> Any:
    """The affine map x * factor + shift by channels, in `out`."""
    shape = [1] * x.ndim
    shape[a.axis] = -1
    xp.multiply(x, factor.reshape(shape), out=out)
    return xp.add(out, shift.reshape(shape), out=out)
