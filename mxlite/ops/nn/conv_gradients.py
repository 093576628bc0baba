"""Gradients of convolutions as separate operators, so that they have gradients themselves.

A convolution and all its gradients, to any order, come from one form that is linear in each
of three arrays, T(x, w, y) = sum of y * (x convolved with w): each operator computes the counterpart of
one of them from the other two. So the gradients of each are the two others, and four operators close the
circle.
"""

from __future__ import annotations

from dataclasses import asdict
from math import prod
from typing import Any

from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from .conv import backward_bytes, ConvAttrs, Convolution, forward_bytes, geometry, make_gradients, make_out
from .deconv import DeconvAttrs, Deconvolution, geometry_of


def _bytes(g: Any) -> int:
    return max(forward_bytes(g), backward_bytes(g))


class ConvolutionDataGradient(Op):
    """Gradient of a convolution in its data, from weight and the output's gradient.

    grad: (N, F, OH, OW);  weight: (F, C/G, KH, KW);  like: (N, C, H, W), whose shape counts  ->  out: as
    `like`.
    """

    op_name = "_convolution_d_data"
    inputs = ("grad", "weight", "like")
    shape_only = ("like",)
    accepts = "float"
    Attrs = ConvAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        (like, weight), (grad,) = Convolution.infer_shape(a, shapes[2], None)
        return (grad, weight, like), (like,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * prod(inputs[0]) * prod(inputs[1][1:])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return backward_bytes(geometry(a, inputs[2], dtype))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return _bytes(geometry(a, inputs[2], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, grad: Any, weight: Any, like: Any, *, out: Any, work: Any) -> None:
        make_gradients(xp, geometry(a, like.shape, like.dtype), grad, None, weight, out, None, work)

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, grad: Any, weight: Any, *, d_grad: Any, d_weight: Any, work: Any
    ) -> None:
        g = geometry(a, d_out.shape, d_out.dtype)
        if d_grad is not None:
            make_out(xp, g, d_out, weight, d_grad, work)
        make_gradients(xp, g, grad, d_out, None, None, d_weight, work)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        linear = asdict(a)
        return {
            "grad": w.Convolution(heads["out"], ins["weight"], **linear),
            "weight": w._convolution_d_weight(ins["grad"], heads["out"], **linear),
        }


class ConvolutionWeightGradient(Op):
    """Gradient of a convolution in its weight, from data and the output's gradient.

    grad: (N, F, OH, OW);  data: (N, C, H, W)  ->  out: (F, C/G, KH, KW).
    """

    op_name = "_convolution_d_weight"
    inputs = ("grad", "data")
    accepts = "float"
    Attrs = ConvAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        (data, weight), (grad,) = Convolution.infer_shape(a, shapes[1], None)
        return (grad, data), (weight,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * prod(inputs[0]) * prod(outputs[0][1:])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return backward_bytes(geometry(a, inputs[1], dtype))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return _bytes(geometry(a, inputs[1], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, grad: Any, data: Any, *, out: Any, work: Any) -> None:
        make_gradients(xp, geometry(a, data.shape, data.dtype), grad, data, None, None, out, work)

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, grad: Any, data: Any, *, d_grad: Any, d_data: Any, work: Any
    ) -> None:
        g = geometry(a, data.shape, data.dtype)
        if d_grad is not None:
            make_out(xp, g, data, d_out, d_grad, work)
        make_gradients(xp, g, grad, None, d_out, d_data, None, work)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        linear = asdict(a)
        return {
            "grad": w.Convolution(ins["data"], heads["out"], **linear),
            "data": w._convolution_d_data(ins["grad"], heads["out"], ins["data"], **linear),
        }


class DeconvolutionDataGradient(Op):
    """Gradient of a transposed convolution in its data, from weight and the output's gradient.

    grad: (N, F, OH, OW);  weight: (C, F/G, KH, KW);  like: (N, C, H, W), whose shape counts  ->  out: as
    `like`.
    """

    op_name = "_deconvolution_d_data"
    inputs = ("grad", "weight", "like")
    shape_only = ("like",)
    accepts = "float"
    Attrs = DeconvAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        (like, weight), (grad,) = Deconvolution.infer_shape(a, shapes[2], None)
        return (grad, weight, like), (like,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * prod(outputs[0]) * prod(inputs[1][1:])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return forward_bytes(geometry_of(a, inputs[2], dtype))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return backward_bytes(geometry_of(a, inputs[2], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, grad: Any, weight: Any, like: Any, *, out: Any, work: Any) -> None:
        make_out(xp, geometry_of(a, like.shape, like.dtype), grad, weight, out, work)

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, grad: Any, weight: Any, *, d_grad: Any, d_weight: Any, work: Any
    ) -> None:
        g = geometry_of(a, d_out.shape, d_out.dtype)
        make_gradients(xp, g, d_out, grad, weight, d_grad, d_weight, work)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        linear = asdict(a)
        return {
            "grad": w.Deconvolution(heads["out"], ins["weight"], **linear),
            "weight": w._deconvolution_d_weight(ins["grad"], heads["out"], **linear),
        }


class DeconvolutionWeightGradient(Op):
    """Gradient of a transposed convolution in its weight, from data and the output's gradient.

    grad: (N, F, OH, OW);  data: (N, C, H, W)  ->  out: (C, F/G, KH, KW).
    """

    op_name = "_deconvolution_d_weight"
    inputs = ("grad", "data")
    accepts = "float"
    Attrs = DeconvAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        (data, weight), (grad,) = Deconvolution.infer_shape(a, shapes[1], None)
        return (grad, data), (weight,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * prod(inputs[1]) * prod(outputs[0][1:])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return backward_bytes(geometry_of(a, inputs[1], dtype))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return _bytes(geometry_of(a, inputs[1], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, grad: Any, data: Any, *, out: Any, work: Any) -> None:
        make_gradients(xp, geometry_of(a, data.shape, data.dtype), data, grad, None, None, out, work)

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, grad: Any, data: Any, *, d_grad: Any, d_data: Any, work: Any
    ) -> None:
        g = geometry_of(a, data.shape, data.dtype)
        if d_data is not None:
            make_out(xp, g, grad, d_out, d_data, work)
        make_gradients(xp, g, data, None, d_out, d_grad, None, work)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        linear = asdict(a)
        return {
            "grad": w.Deconvolution(ins["data"], heads["out"], **linear),
            "data": w._deconvolution_d_data(ins["grad"], heads["out"], ins["data"], **linear),
        }
