"""Batch normalization by the moving averages, folded into the convolution before it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes, Types
from ..declared import Declared
from ..scratch import accumulator


@record
class FoldNormAttrs:
    """`eps`, `fix_gamma`: of the norm; `no_bias`: True if the convolution has no bias."""

    eps: float = 1e-3
    fix_gamma: bool = True
    no_bias: bool = True


def _names(cls: type[Op], a: Any) -> tuple[str, ...]:
    """All inputs, without the bias if the convolution has none."""
    return cls.inputs[:-1] if a.no_bias else cls.inputs


class FoldNorm(Declared):
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

    @staticmethod
    def compute(t: Any, a: Any, weight: Any, **vectors: Any) -> Mapping[str, Any]:
        rows, *each = weight.shape
        scale, shift = _line(t, a, **{n: t.view(x, (rows, 1)) for n, x in vectors.items()})
        return {"out": t.view(weight, (rows, prod(each))) * scale, "shift": shift}


class NormFactors(Declared):
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

    @staticmethod
    def compute(t: Any, a: Any, **vectors: Any) -> Mapping[str, Any]:
        scale, shift = _line(t, a, **vectors)
        return {"scale": scale, "shift": shift}


def _line(
    t: Any, a: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any, bias: Any = None
) -> tuple[Any, Any]:
    """Factor and shift of the norm of what a convolution makes without its bias."""
    scale = 1.0 / t.sqrt(moving_var + t.constant(a.eps))
    if not a.fix_gamma:
        scale = scale * gamma
    return scale, (-moving_mean if bias is None else bias - moving_mean) * scale + beta
