"""Convolutions with a norm prologue: the array between a norm and a convolution never exists.

    x -> BatchNorm -> relu -> y -> Convolution            x -> _norm_line -> factor, shift
                                                          x, factor, shift -> _normed_convolution

Batch normalization is ``x * factor + shift`` with two numbers for each channel. A convolution that applies
them, and the rectifier, to each number it reads needs no y; nor does its gradient in the weight. Backends
have kernels for that; the reference kernels here compute y in scratch.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes, Types
from ..layout import first
from ..norm.norm import around_channels, BatchNorm
from ..norm.norm_act import addend_names, is_lined, line_of_norm, normalized
from ..norm.norm_arrays import NormAffine, NormOutputs, NormVectors, PrologueArrays
from ..scratch import accumulator, carve, in_accumulator, Piece, scratch_bytes
from .conv import backward_bytes, bias_bytes, bias_gradient, geometry, make_gradients
from .conv_channels_last import ChannelsLastAttrs, ConvolutionChannelsLast


@record
class NormedAttrs(ChannelsLastAttrs):
    """`relu`: True if negative results of the norm become 0."""

    relu: bool = True
    plus: ClassVar[str] = ""
    slope: ClassVar[float] = 0.0
    axis: ClassVar[int] = -1


@record
class NormedGradientAttrs(NormedAttrs):
    """`plus`: the addend between the norm and the rectifier; see `norm_act.ADDENDS`. `wide`: True if
    gradients of 16-bit data are float32.
    """

    plus: str = ""  # type: ignore[misc]
    wide: bool = False


class NormLine(Op):
    """Batch normalization as an affine map for each channel, ``normalized = data * factor + shift``.

    data: (N, C, ...) with C at `axis`;  gamma, beta, moving_mean, moving_var: (C,)
    ->  factor, shift, mean, var: (C,). As in BatchNorm `var` is the inverse standard deviation.

    ``factor = gamma * var``, ``shift = beta - mean * factor``. Attributes, statistics and moving averages are
    BatchNorm's, whose gradient reads `mean` and `var`.
    """

    op_name = "_norm_line"
    inputs = BatchNorm.inputs
    outputs = ("factor", "shift", "mean", "var")
    accepts = "float"
    aux = BatchNorm.aux
    inferred = BatchNorm.inferred
    initial = BatchNorm.initial
    Attrs = BatchNorm.Attrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        ins, (_, channel, _) = BatchNorm.infer_shape(a, *shapes)
        return ins, (channel,) * 4

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        ins, (_, wide, _) = BatchNorm.infer_type(a, *dtypes)
        return ins, (wide,) * 4

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return (1 if a.use_global_stats else 4) * prod(inputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_columns(a, inputs[0], dtype)) + BatchNorm.workspace(a, inputs, outputs, dtype)

    @staticmethod
    @grouped
    def forward(
        xp: Any,
        a: Any,
        data: Any,
        vectors: NormVectors,
        *,
        factor: Any,
        shift: Any,
        mean: Any,
        var: Any,
        work: Any,
        train: bool,
    ) -> None:
        pieces = _columns(a, data.shape, data.dtype)
        (columns,) = carve(work, pieces)
        factor, shift, mean, var = (
            own if given is None else given for given, own in zip((factor, shift, mean, var), columns)
        )
        rest, statistics = work[scratch_bytes(pieces) :], NormOutputs(None, mean, var)
        BatchNorm.forward.kernel(xp, a, data, vectors, made=statistics, work=rest, train=train)
        line_of_norm(xp, a, NormAffine(vectors.gamma, vectors.beta, mean, var), factor, shift)


class NormedConvolution(Op):
    """Convolution with a norm prologue, ``out = Convolution(relu(data * factor + shift))``, channels last.

    data: (N, *S, C);  weight: (F, C/G, *K);  bias: (F,);  factor, shift: (C,)  ->  out: (N, *OS, F).

    Padding is zeros beside the normalized data. For data of two bytes factor and shift are float32. The
    gradient in the normalized data is that of a plain convolution; see `_normed_convolution_d_weight`.
    """

    op_name = "_normed_convolution"
    inputs = ("data", "weight", "bias", "factor", "shift")
    inferred = ("weight", "bias", "factor", "shift")
    accepts = "float"
    Attrs = NormedAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return tuple(n for n in cls.inputs if n != "bias" or not a.no_bias)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        ins, outs = ConvolutionChannelsLast.infer_shape(a, *shapes[:-2])
        return (*ins, *(ins[0][-1:],) * 2), outs

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        ins, outs = super().infer_type(a, *dtypes[:-2])
        return (*ins, *_line_types(ins[0], *dtypes[-2:])), outs

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        own = ConvolutionChannelsLast.flops(a, inputs, outputs)
        return own + (2 + a.relu) * prod(inputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        own = ConvolutionChannelsLast.workspace(a, inputs, outputs, dtype)
        return scratch_bytes(_normalized(a, inputs[0], dtype)) + own

    @staticmethod
    def forward(
        xp: Any,
        a: Any,
        data: Any,
        weight: Any,
        bias: Any,
        factor: Any,
        shift: Any,
        *,
        out: Any,
        work: Any,
    ) -> None:
        if out is None:
            return
        normalized, rest = _normalize(xp, a, data, PrologueArrays(factor, shift), work)
        ConvolutionChannelsLast.forward(xp, a, normalized, weight, bias, out=out, work=rest)


class NormedConvolutionWeightGradient(Op):
    """Gradients of a convolution of ``relu(data * factor + shift + added)`` in its weight and its bias.

    grad: (N, *OS, F);  data, addend: (N, *S, C);  factor, shift, addend_factor, addend_shift: (C,)
    ->  d_weight: (F, C/G, *K);  d_bias: (F,).

    added: by the attribute `addend` nothing, the addend, its affine map, or that rectified, as in
    `_norm_act_line`.
    """

    op_name = "_normed_convolution_d_weight"
    inputs = ("grad", "data", "factor", "shift", "addend", "addend_factor", "addend_shift")
    outputs = ("d_weight", "d_bias")
    inferred = ("factor", "shift", "addend_factor", "addend_shift")
    accepts = "float"
    recomputable = False
    Attrs = NormedGradientAttrs

    input_names = classmethod(addend_names)

    @classmethod
    def output_names(cls, a: Any) -> tuple[str, ...]:
        return cls.outputs[:1] if a.no_bias else cls.outputs

    @staticmethod
    def infer_shape(a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        grad, data = shapes[:2]
        (_, weight), (out,) = ConvolutionChannelsLast.infer_shape(a, data, None)
        if grad != out:
            raise ShapeError(f"grad must be {out}, as the output for data {data}; got {grad}.")
        channel = data[-1:]
        ins = (grad, data, channel, channel, data, channel, channel)[: len(shapes)]
        return ins, (weight, *(() if a.no_bias else (out[-1:],)))

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        ins, outs = super().infer_type(a, *dtypes[:2], *dtypes[4:5])
        lines = _line_types(ins[0], *dtypes[2:4]), _line_types(ins[0], *dtypes[5:])
        if a.wide and ins[0] is not None:
            outs = (accumulator(ins[0]),) * len(outs)
        return (*ins[:2], *lines[0], *ins[2:], *lines[1][: len(dtypes[5:])]), outs

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return prod(inputs[0]) * 2 * prod(outputs[0][1:]) + (2 + a.relu) * prod(inputs[1])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        g = geometry(a, first(inputs[1]), dtype)
        bias = 0 if a.no_bias else bias_bytes(first(inputs[0]), dtype)
        return scratch_bytes(_gradient_pieces(a, inputs[0], inputs[1], dtype)) + max(backward_bytes(g), bias)

    @staticmethod
    @grouped
    def forward(
        xp: Any, a: Any, grad: Any, data: Any, given: PrologueArrays, *, d_weight: Any, d_bias: Any, work: Any
    ) -> None:
        pieces = _gradient_pieces(a, grad.shape, data.shape, data.dtype)
        dy, x, *_ = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        dy[...] = xp.moveaxis(grad, -1, 1)
        if d_weight is not None:
            own = work[scratch_bytes(pieces[:2]) :]
            normalized, _ = _normalize(xp, a, data, given, own)
            x[...] = xp.moveaxis(normalized, -1, 1)
            make_gradients(xp, geometry(a, x.shape, x.dtype), dy, x, None, None, d_weight, rest)
        bias_gradient(xp, dy, d_bias, rest)


def _line_types(data: DType | None, *line: DType | None) -> tuple[DType | None, DType | None]:
    """Types of factor and shift."""
    wide = in_accumulator(data, ("factor", "shift"), line)
    return wide, wide


def _columns(a: Any, data: Shape, dtype: DType) -> list[Piece]:
    """Scratch for outputs that are not read."""
    return [((4, around_channels(a, data)[1]), accumulator(dtype))]


def _normalized(a: Any, data: Shape, dtype: DType) -> list[Piece]:
    """The normalized data, and scratch for it: see `normalized`."""
    wide = accumulator(dtype)
    return [(data, dtype), (data if is_lined(a.plus) else (0,), wide), (data, wide), (data, np.dtype(bool))]


def _gradient_pieces(a: Any, grad: Shape, data: Shape, dtype: DType) -> list[Piece]:
    """The output's gradient and the data with their channels after the batch axis; the normalized data."""
    return [(first(grad), dtype), (first(data), dtype), *_normalized(a, data, dtype)]


def _normalize(xp: Any, a: Any, data: Any, given: PrologueArrays, work: Any) -> tuple[Any, Any]:
    """relu(data * factor + shift + added) in `work`, and the rest of `work`."""
    pieces = _normalized(a, data.shape, data.dtype)
    made, *scratch = carve(work, pieces)
    xp.copyto(made, normalized(xp, a, data, given, scratch), casting="unsafe")
    return made, work[scratch_bytes(pieces) :]
