"""Transposed convolution of channels-last arrays."""

from __future__ import annotations

from math import prod
from typing import Any

from ...core.errors import OpAttributeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..layout import first, last
from ..scratch import carve, scratch_bytes
from .conv import backward_bytes, bias_bytes, bias_gradient, forward_bytes, make_gradients, make_out
from .conv_channels_last import copies
from .deconv import DeconvAttrs, Deconvolution, geometry_of


@record
class ChannelsLastDeconvAttrs(DeconvAttrs):
    """Parameters of Deconvolution, and its layout."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout is not None:
            raise OpAttributeError(f"layout is fixed: channels last, got {self.layout!r}.")


class DeconvolutionChannelsLast(Op):
    """Transposed convolution between channels-last arrays; see Deconvolution.

    data: (N, *S, C);  weight: (C, F/G, *K);  bias: (F,)  ->  out: (N, *OS, F).

    The reference kernel transposes copies: the operator exists for the backends' kernels.
    """

    op_name = "_deconvolution_channels_last"
    inputs = ("data", "weight", "bias")
    optional = {"bias": "no_bias"}
    inferred = ("weight", "bias")
    accepts = "float"
    Attrs = ChannelsLastDeconvAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        wanted, (out,) = Deconvolution.infer_shape(a, first(data), *shapes[1:])
        return (data, *wanted[1:]), (last(out),)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * prod(inputs[0]) * prod(inputs[1][1:]) + (not a.no_bias) * prod(outputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        g = geometry_of(a, first(inputs[0]), dtype)
        return scratch_bytes(copies(inputs[0], outputs[0], dtype)) + backward_bytes(g)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        g = geometry_of(a, first(inputs[0]), dtype)
        bias = 0 if a.no_bias else bias_bytes(first(outputs[0]), dtype)
        # The two kernels run one after the other, in the same bytes.
        own = max(forward_bytes(g), backward_bytes(g), bias)
        return scratch_bytes(copies(inputs[0], outputs[0], dtype)) + own

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any) -> None:
        if out is None:
            return
        pieces = copies(data.shape, out.shape, data.dtype)
        x, y = carve(work, pieces)
        x[...] = xp.moveaxis(data, -1, 1)
        g = geometry_of(a, x.shape, x.dtype)
        make_gradients(xp, g, x, None, weight, y, None, work[scratch_bytes(pieces) :])
        out[...] = xp.moveaxis(y, 1, -1)
        if bias is not None:
            xp.add(out, bias, out=out)

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
        g = geometry_of(a, x.shape, x.dtype)
        if d_weight is not None:
            x[...] = xp.moveaxis(data, -1, 1)
            make_gradients(xp, g, x, dy, None, None, d_weight, rest)
        if d_data is not None:
            make_out(xp, g, dy, weight, x, rest)
            d_data[...] = xp.moveaxis(x, 1, -1)
        bias_gradient(xp, dy, d_bias, rest)
