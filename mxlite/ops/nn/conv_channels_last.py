"""Convolution and transposed convolution of channels-last arrays."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...te.epilogue import Epilogue
from ..layout import first, FixedLayout, last
from ..scratch import carve, Piece, scratch_bytes
from .conv import bias_gradient, ConvAttrs, Convolution, LinearInWindows


@record
class ChannelsLastAttrs(FixedLayout, ConvAttrs):
    """Parameters of Convolution, without a layout."""


@record
class EpilogueAttrs(ChannelsLastAttrs):
    """`scale`: True if each channel has a factor; `add`: if an array like the output is added to it;
    `epilogue`: what is done to the sum.
    """

    scale: bool = False
    add: bool = False
    epilogue: Epilogue | None = None


class LinearChannelsLast(Op):
    """Base: the convolution or transposed convolution `of` between channels-last arrays.

    The reference kernel transposes copies: the operator exists for the backends' kernels.
    """

    abstract = True
    inputs = LinearInWindows.inputs
    optional = LinearInWindows.optional
    inferred = LinearInWindows.inferred
    accepts = "float"
    of: ClassVar[type[LinearInWindows]]

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        wanted, (out,) = cls.of.infer_shape(a, first(data), *shapes[1:])
        return (data, *wanted[1:]), (last(out),)

    @classmethod
    def flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return cls.of.flops(a, inputs, outputs)

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        data, out = first(inputs[0]), first(outputs[0])
        return scratch_bytes(_copies(data, out, dtype)) + cls.of.workspace(a, (data,), (out,), dtype)

    @classmethod
    def backward_workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        data, out = first(inputs[0]), first(outputs[0])
        return scratch_bytes(_copies(data, out, dtype)) + cls.of.backward_workspace(a, (data,), (out,), dtype)

    @classmethod
    def forward(
        cls, xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any
    ) -> None:
        if out is not None:
            out[...] = cls.computed(xp, a, data, weight, bias, out.shape, work)

    @classmethod
    def computed(cls, xp: Any, a: Any, data: Any, weight: Any, bias: Any, out: Shape, work: Any) -> Any:
        """The result plus bias, as a channels-last view, in `work`."""
        pieces = _copies(first(data.shape), first(out), data.dtype)
        x, y = carve(work, pieces)
        x[...] = xp.moveaxis(data, -1, 1)
        g = cls.of.geometry(a, x.shape, x.dtype)
        cls.of.make_out(xp, g, x, weight, y, work[scratch_bytes(pieces) :])
        result = xp.moveaxis(y, 1, -1)
        return result if bias is None else xp.add(result, bias, out=result)

    @classmethod
    def backward(
        cls,
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
        pieces = _copies(first(shapes[0][0]), first(d_out.shape), d_out.dtype)
        x, dy = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        dy[...] = xp.moveaxis(d_out, -1, 1)
        g = cls.of.geometry(a, x.shape, x.dtype)
        if d_weight is not None:
            x[...] = xp.moveaxis(data, -1, 1)
            cls.of.make_gradients(xp, g, dy, x, None, None, d_weight, rest)
        if d_data is not None:
            cls.of.make_gradients(xp, g, dy, None, weight, x, None, rest)
            d_data[...] = xp.moveaxis(x, 1, -1)
        bias_gradient(xp, dy, d_bias, rest)


def _copies(data: Shape, out: Shape, dtype: DType) -> list[Piece]:
    """Scratch: data and output with their channels after the batch axis."""
    return [(data, dtype), (out, dtype)]


class ConvolutionChannelsLast(LinearChannelsLast):
    """Convolution between channels-last arrays; see Convolution.

    data: (N, *S, C);  weight: (F, C/G, *K);  bias: (F,)  ->  out: (N, *OS, F).
    """

    op_name = "_convolution_channels_last"
    Attrs = ChannelsLastAttrs
    of = Convolution


class ConvolutionEpilogue(Op):
    """Convolution of channels-last arrays with a fused epilogue, for inference.

    ``out = epilogue(convolution * factor + bias + addend)``.

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
        applied = 0 if a.epilogue is None else a.epilogue.flops
        return own + prod(outputs[0]) * (a.scale + a.add + applied)

    @staticmethod
    def forward(
        xp: Any, a: Any, data: Any, weight: Any, factor: Any, bias: Any, addend: Any, *, out: Any, work: Any
    ) -> None:
        if out is None:
            return
        added = None if a.scale else bias
        result = ConvolutionChannelsLast.computed(xp, a, data, weight, added, out.shape, work)
        if a.scale:
            xp.multiply(result, factor, out=result)
            if bias is not None:
                xp.add(result, bias, out=result)
        if addend is not None:
            xp.add(result, addend, out=result)
        if a.epilogue is not None:
            a.epilogue.apply(result)
        out[...] = result
