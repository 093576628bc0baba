"""Gradients of convolutions as separate operators, so that they have gradients themselves.

A convolution and all its gradients, to any order, come from one form that is linear in each
of three arrays, T(x, w, y) = sum of y * (x convolved with w): each operator computes the counterpart of
one of them from the other two. So the gradients of each are the two others, and four operators close the
circle.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

from ...graph.opdef import DType, Op, Shapes
from .conv import ConvAttrs, Convolution, LinearInWindows
from .deconv import DeconvAttrs, Deconvolution


class _DataGradient(Op):
    """Base: the gradient in the data of the convolution or transposed convolution `of`."""

    abstract = True
    inputs = ("grad", "weight", "like")
    shape_only = ("like",)
    accepts = "float"
    of: ClassVar[type[LinearInWindows]]

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        (like, weight), (grad,) = cls.of.infer_shape(a, shapes[2], None)
        return (grad, weight, like), (like,)

    @classmethod
    def flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return cls.of.linear_flops(outputs[0], inputs[1], inputs[0])

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return cls.of.data_bytes(cls.of.geometry(a, inputs[2], dtype))

    @classmethod
    def backward_workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        g = cls.of.geometry(a, inputs[2], dtype)
        return max(cls.of.out_bytes(g), cls.of.weight_bytes(g))

    @classmethod
    def forward(cls, xp: Any, a: Any, grad: Any, weight: Any, like: Any, *, out: Any, work: Any) -> None:
        g = cls.of.geometry(a, like.shape, like.dtype)
        cls.of.make_gradients(xp, g, grad, None, weight, out, None, work)

    @classmethod
    def backward(
        cls, xp: Any, a: Any, d_out: Any, grad: Any, weight: Any, *, d_grad: Any, d_weight: Any, work: Any
    ) -> None:
        g = cls.of.geometry(a, d_out.shape, d_out.dtype)
        if d_grad is not None:
            cls.of.make_out(xp, g, d_out, weight, d_grad, work)
        cls.of.make_gradients(xp, g, grad, d_out, None, None, d_weight, work)

    @classmethod
    def derivative(cls, w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        linear, name = asdict(a), cls.of.op_name
        return {
            "grad": getattr(w, name)(heads["out"], ins["weight"], **linear),
            "weight": getattr(w, f"_{name.lower()}_d_weight")(ins["grad"], heads["out"], **linear),
        }


class _WeightGradient(Op):
    """Base: the gradient in the weight of the convolution or transposed convolution `of`."""

    abstract = True
    inputs = ("grad", "data")
    accepts = "float"
    of: ClassVar[type[LinearInWindows]]

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        (data, weight), (grad,) = cls.of.infer_shape(a, shapes[1], None)
        return (grad, data), (weight,)

    @classmethod
    def flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return cls.of.linear_flops(inputs[1], outputs[0], inputs[0])

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return cls.of.weight_bytes(cls.of.geometry(a, inputs[1], dtype))

    @classmethod
    def backward_workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        g = cls.of.geometry(a, inputs[1], dtype)
        return max(cls.of.out_bytes(g), cls.of.data_bytes(g))

    @classmethod
    def forward(cls, xp: Any, a: Any, grad: Any, data: Any, *, out: Any, work: Any) -> None:
        g = cls.of.geometry(a, data.shape, data.dtype)
        cls.of.make_gradients(xp, g, grad, data, None, None, out, work)

    @classmethod
    def backward(
        cls, xp: Any, a: Any, d_out: Any, grad: Any, data: Any, *, d_grad: Any, d_data: Any, work: Any
    ) -> None:
        g = cls.of.geometry(a, data.shape, data.dtype)
        if d_grad is not None:
            cls.of.make_out(xp, g, data, d_out, d_grad, work)
        cls.of.make_gradients(xp, g, grad, None, d_out, d_data, None, work)

    @classmethod
    def derivative(cls, w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        linear, name = asdict(a), cls.of.op_name
        return {
            "grad": getattr(w, name)(ins["data"], heads["out"], **linear),
            "data": getattr(w, f"_{name.lower()}_d_data")(ins["grad"], heads["out"], ins["data"], **linear),
        }


class ConvolutionDataGradient(_DataGradient):
    """Gradient of a convolution in its data, from weight and the output's gradient.

    grad: (N, F, OH, OW);  weight: (F, C/G, KH, KW);  like: (N, C, H, W), whose shape counts  ->  out: as
    `like`.
    """

    op_name = "_convolution_d_data"
    Attrs = ConvAttrs
    of = Convolution


class ConvolutionWeightGradient(_WeightGradient):
    """Gradient of a convolution in its weight, from data and the output's gradient.

    grad: (N, F, OH, OW);  data: (N, C, H, W)  ->  out: (F, C/G, KH, KW).
    """

    op_name = "_convolution_d_weight"
    Attrs = ConvAttrs
    of = Convolution


class DeconvolutionDataGradient(_DataGradient):
    """Gradient of a transposed convolution in its data, from weight and the output's gradient.

    grad: (N, F, OH, OW);  weight: (C, F/G, KH, KW);  like: (N, C, H, W), whose shape counts  ->  out: as
    `like`.
    """

    op_name = "_deconvolution_d_data"
    Attrs = DeconvAttrs
    of = Deconvolution


class DeconvolutionWeightGradient(_WeightGradient):
    """Gradient of a transposed convolution in its weight, from data and the output's gradient.

    grad: (N, F, OH, OW);  data: (N, C, H, W)  ->  out: (C, F/G, KH, KW).
    """

    op_name = "_deconvolution_d_weight"
    Attrs = DeconvAttrs
    of = Deconvolution
