"""Convolution of channels-last arrays."""

from __future__ import annotations

from math import prod
from typing import Any

from ...core.errors import OpAttributeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..layout import first, last
from ..scratch import carve, Piece, scratch_bytes
from .conv import (
    backward_bytes,
    bias_bytes,
    bias_gradient,
    ConvAttrs,
    Convolution,
    forward_bytes,
    geometry,
    make_gradients,
    make_out,
)


@record
class ChannelsLastAttrs(ConvAttrs):
    """Parameters of Convolution, and its layout."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout is not None:
            raise OpAttributeError(f"layout is fixed: channels last, got {self.layout!r}.")


@record
class EpilogueAttrs(ChannelsLastAttrs):
    """`scale`: True if each channel has a factor; `add`: if an array like the output is added to it;
    `relu`: if negative results become 0.
    """

    scale: bool = False
    add: bool = False
    relu: bool = False


class ConvolutionChannelsLast(Op):
    """Convolution between channels-last arrays; see Convolution.

    data: (N, *S, C);  weight: (F, C/G, *K);  bias: (F,)  ->  out: (N, *OS, F).

    The reference kernel transposes copies: the operator exists for the backends' kernels.
    """

    op_name = "_convolution_channels_last"
    inputs = ("data", "weight", "bias")
    optional = {"bias": "no_bias"}
    inferred = ("weight", "bias")
    accepts = "float"
    Attrs = ChannelsLastAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        wanted, (out,) = Convolution.infer_shape(a, first(data), *shapes[1:])
        return (data, *wanted[1:]), (last(out),)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return prod(outputs[0]) * (2 * prod(inputs[1][1:]) + (not a.no_bias))

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        g = geometry(a, first(inputs[0]), dtype)
        return scratch_bytes(copies(inputs[0], outputs[0], dtype)) + forward_bytes(g)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        g = geometry(a, first(inputs[0]), dtype)
        bias = 0 if a.no_bias else bias_bytes(first(outputs[0]), dtype)
        return scratch_bytes(copies(inputs[0], outputs[0], dtype)) + max(backward_bytes(g), bias)

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any) -> None:
        if out is not None:
            out[...] = _convolved(xp, a, data, weight, bias, out.shape, work)

    @staticmethod
    def backward(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        weight: Any,
        *,
        d_data: Any,
        d_weight: Any,
        d_bias: Any,
        work: Any,
        shapes: Any,
    ) -> None:
        pieces = copies(shapes[0][0], d_out.shape, d_out.dtype)
        x, dy = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        dy[...] = xp.moveaxis(d_out, -1, 1)
        g = geometry(a, x.shape, x.dtype)
        if d_weight is not None:
            x[...] = xp.moveaxis(data, -1, 1)
            make_gradients(xp, g, dy, x, None, None, d_weight, rest)
        if d_data is not None:
            make_gradients(xp, g, dy, None, weight, x, None, rest)
            d_data[...] = xp.moveaxis(x, 1, -1)
        bias_gradient(xp, dy, d_bias, rest)


class ConvolutionEpilogue(Op):
    """Convolution of channels-last arrays with a fused epilogue, for inference.

    ``out = relu(convolution * factor + bias + addend)``.

    data: (N, *S, C);  weight: (F, C/G, *K);  factor, bias: (F,);  addend: (N, *OS, F)  ->  out: (N, *OS, F).
    """

    op_name = "_convolution_epilogue"
    inputs = ("data", "weight", "factor", "bias", "addend")
    inferred = ("weight", "factor", "bias", "addend")
    accepts = "float"
    Attrs = EpilogueAttrs
    workspace = staticmethod(ConvolutionChannelsLast.workspace)
    optional = {"factor": "scale", "bias": "no_bias", "addend": "add"}

    @classmethod
    def in_place_options(cls, a: Any) -> Any:
        return {"out": ("addend",)} if a.add else {}

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        own = 2 + a.scale
        more = shapes[own : own + (not a.no_bias)]
        ins, outs = ConvolutionChannelsLast.infer_shape(a, *shapes[:2], *more)
        vector = outs[0][-1:]
        return (*ins[:2], *((vector,) if a.scale else ()), *ins[2:], *(outs if a.add else ())), outs

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        own = ConvolutionChannelsLast.flops(a, inputs, outputs)
        return own + prod(outputs[0]) * (a.scale + a.add + a.relu)

    @staticmethod
    def forward(
        xp: Any, a: Any, data: Any, weight: Any, factor: Any, bias: Any, addend: Any, *, out: Any, work: Any
    ) -> None:
        if out is None:
            return
        result = _convolved(xp, a, data, weight, None if a.scale else bias, out.shape, work)
        if a.scale:
            xp.multiply(result, factor, out=result)
            if bias is not None:
                xp.add(result, bias, out=result)
        if addend is not None:
            xp.add(result, addend, out=result)
        if a.relu:
            xp.maximum(result, 0, out=result)
        out[...] = result


def _convolved(xp: Any, a: Any, data: Any, weight: Any, bias: Any, out: Shape, work: Any) -> Any:
    """The convolution plus bias, as a channels-last view, in `work`."""
    pieces = copies(data.shape, out, data.dtype)
    x, y = carve(work, pieces)
    x[...] = xp.moveaxis(data, -1, 1)
    make_out(xp, geometry(a, x.shape, x.dtype), x, weight, y, work[scratch_bytes(pieces) :])
    result = xp.moveaxis(y, 1, -1)
    return result if bias is None else xp.add(result, bias, out=result)


def copies(data: Shape, out: Shape, dtype: DType) -> list[Piece]:
    """Scratch: data and output with their channels after the batch axis."""
    return [(first(data), dtype), (first(out), dtype)]
