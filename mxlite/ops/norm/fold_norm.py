"""Batch normalization by the moving averages, folded into the convolution before it."""

from __future__ import annotations

from typing import Any

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes, Types
from ..scratch import accumulator, carve, Piece, scratch_bytes
from .norm_arrays import NormVectors


@record
class FoldNormAttrs:
    """`eps`, `fix_gamma`: of the norm; `no_bias`: True if the convolution has no bias."""

    eps: float = 1e-3
    fix_gamma: bool = True
    no_bias: bool = True


def _names(cls: type[Op], a: Any) -> tuple[str, ...]:
    """All inputs, without the bias if the convolution has none."""
    return cls.inputs[:-1] if a.no_bias else cls.inputs


def _workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
    """Scale and shift in full precision; their length is that of the first input's first axis."""
    return scratch_bytes(pieces(inputs[0], dtype))


class FoldNorm(Op):
    """Weight and bias of a convolution with a folded norm, ``out = weight * scale``, scale = gamma / std.

    weight: (F, ...);  gamma, beta, moving_mean, moving_var, bias: (F,)  ->  out: as weight;  shift: (F,).

    ``shift = (bias - moving_mean) * scale + beta``, std = sqrt(moving_var + eps). In float32 (float64 for
    that), rounded once.
    """

    op_name = "_fold_norm"
    inputs = ("weight", "gamma", "beta", "moving_mean", "moving_var", "bias")
    outputs = ("out", "shift")
    inferred = ("gamma", "beta", "moving_mean", "moving_var", "bias")
    accepts = "float"
    in_place = {"out": "weight"}
    Attrs = FoldNormAttrs

    input_names = classmethod(_names)
    flops_per_input = 1

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        weight = shapes[0]
        assert weight is not None
        if not weight:
            raise ShapeError("weight wants one axis or more, the first for what is normalized; got ().")
        vector = weight[:1]
        return (weight, *(vector for _ in shapes[1:])), (weight, vector)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        (weight, *_), _ = super().infer_type(a, dtypes[0], *dtypes[5:])
        wide = None if weight is None else accumulator(weight)
        (wide, *_), _ = super().infer_type(a, wide, *dtypes[1:5])
        return (weight, *(wide,) * 4, *(weight for _ in dtypes[5:])), (weight, weight)

    workspace = staticmethod(_workspace)

    @staticmethod
    @grouped
    def forward(
        xp: Any, a: Any, weight: Any, norm: NormVectors, bias: Any = None, *, out: Any, shift: Any, work: Any
    ) -> None:
        scale, offset = carve(work, pieces(weight.shape, weight.dtype))
        scale_of(xp, a, norm, scale)
        if shift is not None:
            shift_of(xp, scale, norm, bias, offset, shift)
        if out is not None:
            rows = (len(weight), -1) if weight.size else weight.shape
            xp.multiply(
                weight.reshape(rows),
                scale.reshape(-1, *(1,) * (len(rows) - 1)),
                out=out.reshape(rows),
                casting="unsafe",
            )


class NormFactors(Op):
    """Batch normalization by the moving averages as a factor and a shift for each channel, to be applied by
    the convolution before it, ``scale = gamma / std``.

    gamma, beta, moving_mean, moving_var, bias: (F,)  ->  scale, shift: (F,).

    ``shift = (bias - moving_mean) * scale + beta``, std = sqrt(moving_var + eps). In float32 (float64 for
    that), rounded once. The weights are unchanged: no second copy of them is needed.
    """

    op_name = "_norm_factors"
    inputs = FoldNorm.inputs[1:]
    outputs = ("scale", "shift")
    accepts = "float"
    Attrs = FoldNormAttrs

    input_names = classmethod(_names)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        vector = next((s for s in shapes if s is not None), None)
        assert vector is not None
        return (vector,) * len(shapes), (vector, vector)

    workspace = staticmethod(_workspace)

    @staticmethod
    @grouped
    def forward(
        xp: Any, a: Any, norm: NormVectors, bias: Any = None, *, scale: Any, shift: Any, work: Any
    ) -> None:
        factor, offset = carve(work, pieces(norm.gamma.shape, norm.gamma.dtype))
        scale_of(xp, a, norm, factor)
        if shift is not None:
            shift_of(xp, factor, norm, bias, offset, shift)
        if scale is not None:
            xp.copyto(scale, factor, casting="unsafe")


def pieces(weight: Shape, dtype: DType) -> list[Piece]:
    """Scratch: scale, and shift before it is rounded."""
    return [(weight[:1], accumulator(dtype)), (weight[:1], accumulator(dtype))]


def scale_of(xp: Any, a: Any, norm: NormVectors, out: Any) -> None:
    """out = gamma / sqrt(moving_var + eps), as BatchNorm computes it."""
    xp.add(norm.moving_var, a.eps, out=out)
    xp.sqrt(out, out=out)
    xp.divide(1.0, out, out=out)
    if not a.fix_gamma:
        xp.multiply(out, norm.gamma, out=out)


def shift_of(xp: Any, scale: Any, norm: NormVectors, bias: Any, work: Any, out: Any) -> None:
    """out = (bias - moving_mean) * scale + beta."""
    if bias is None:
        xp.negative(norm.moving_mean, out=work)
    else:
        xp.subtract(bias, norm.moving_mean, out=work)
    xp.multiply(work, scale, out=work)
    xp.add(work, norm.beta, out=work)
    xp.copyto(out, work, casting="unsafe")
