"""Outputs that start the backward pass by themselves, and BlockGrad, which ends it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar, Literal

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_kind, Shapes, Types
from ..blocks import pieces
from ..declared import Declared
from ..norm.views import along, View
from .softmax import computed_softmax


def label_types(op: type[Op], a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
    """`Op.infer_type` of data and labels; labels may be of any type, by default data's."""
    data, label = dtypes
    require_kind(op, data)
    return (data, label or data), (data,)


class SoftmaxOutput(Declared):
    """Softmax whose gradient is that of the cross-entropy with `label`, ``d_data = (out - onehot(label)) *
    scale``.

    data: (N, K);  label: (N,)  ->  out: (N, K). Over which numbers the softmax goes:

        default          data (N, ...)       all but axis 0          label data.shape[:-1], of which the
        first N count preserve_shape   data (..., K)       the last axis           label (...)
        multi_output     data (N, K, ...)    axis 1                  label (N, product of the rest) or (N,
        ...)

    A label of data's shape holds probabilities: d_data = (out - label) * grad_scale, without any
    normalization. Head gradients are ignored, unless `out_grad` is set: then they multiply d_data (MXNet
    1.9.1's CPU build multiplies by `out` there, a bug). label has no gradient.

    `normalization` divides: 'null' by 1; 'batch' by the number of labels (multi_output: by N); 'valid' by
    the number of labels other than `ignore_label`, at least 1. With multi_output, 'null' and 'batch' also
    divide by the number of positions. `use_ignore` gives rows labelled `ignore_label` the gradient 0. A
    label that is no class gives `out`. `smooth_alpha` takes that much from the true class and spreads it
    evenly over the others.
    """

    aliases: ClassVar[tuple[str, ...]] = ("Softmax",)
    inputs = ("data", "label")
    inferred = ("label",)
    accepts = "float"
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "out"}
    is_loss = True
    flops_per_input = 5
    backward_reads = ("d_out", "out", "label")

    @record
    class Attrs:
        grad_scale: float = 1.0
        ignore_label: float = -1.0
        multi_output: bool = False
        use_ignore: bool = False
        preserve_shape: bool = False
        normalization: Literal["null", "batch", "valid"] = "null"
        out_grad: bool = False
        smooth_alpha: float = 0.0

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        return frozenset() if a.out_grad else frozenset(["d_out"])

    @classmethod
    def class_numbers(cls, a: Any, inputs: Shapes) -> dict[str, tuple[int, float | None]]:
        data, label = inputs
        if not cls.has_classes(a, data, label):
            return {}
        return {"label": (softmax_view(a, data)[2], a.ignore_label if a.use_ignore else None)}

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data, label = shapes
        assert data is not None
        if len(data) < 2:
            raise ShapeError(f"data must have at least 2 axes, got {data}.")
        if a.multi_output:
            options = [(data[0], prod(data[2:])), (data[0], *data[2:]), (data[0], 1, *data[2:]), data]
        else:
            options = [data[:-1], data]
        if label is None:
            label = options[0]
        elif label not in options:
            raise ShapeError(
                f"label must be one of {list(dict.fromkeys(options))} for data {data}, got {label}."
            )
        return (data, label), (data,)

    infer_type = classmethod(label_types)

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * prod(inputs[0])

    @staticmethod
    def compute(t: Any, a: Any, data: Any, label: Any) -> Mapping[str, Any]:
        return {"out": computed_softmax(t, softmax_view(a, data.shape), data)}

    @staticmethod
    def compute_gradient(
        t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        out, label = arrays["out"], arrays["label"]
        if not SoftmaxOutput.has_classes(a, out.shape, label.shape):
            made = (out - label) * t.constant(a.grad_scale)
            return {"d_data": made * heads["out"] if "out" in heads else made}
        n, _, k, _, p = view = softmax_view(a, out.shape)
        y, number = t.view(out, view), t.view(label, (n, 1, 1, 1, p))  # the first of the labels
        spread = a.smooth_alpha / (k - 1) if k > 1 else 0.0
        true, other = t.constant(1 - a.smooth_alpha), t.constant(spread)
        made = y - t.where("eq", t.index(y, 2), t.trunc(number), true, other)
        scale, count = a.grad_scale, prod(label.shape)
        if a.multi_output and a.normalization != "valid":
            scale /= max(1, p)
        if a.normalization == "batch":
            scale /= max(1, n if a.multi_output else count)
        factor = t.constant(scale)
        if a.normalization == "valid":  # of all labels, also where the first ones count
            every = number if count == n * p else t.view(label, (count,))
            counts = t.one_where("ne", every, t.constant(a.ignore_label))
            factor = factor / t("max", t.sum(counts), 1.0)
        made = made * factor
        if a.use_ignore:  # 0 even if out is nan
            made = t.where("eq", number, t.constant(a.ignore_label), 0.0, made)
        return {"d_data": made * t.view(heads["out"], view) if "out" in heads else made}

    @staticmethod
    def has_classes(a: Any, out: Shape, label: Shape) -> bool:
        """True if labels are class numbers, not probabilities."""
        return label != out or (a.multi_output and len(out) <= 2 and out[1:] == (1,))


def softmax_view(a: Any, shape: Shape) -> View:
    """The view that a SoftmaxOutput normalizes."""
    if a.multi_output:
        return along(shape, 1)
    if a.preserve_shape:
        return along(shape, -1)
    return shape[0], 1, prod(shape[1:]), 1, 1


class _Regression(Declared):
    """Base: a prediction, a label of the same shape, and a gradient per sample,
    ``d_data = (out - label) * grad_scale / (elements of one sample)``.
    """

    abstract = True
    inputs = ("data", "label")
    inferred = ("label",)
    accepts = "float"
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "out"}
    is_loss = True
    backward_reads = ("out", "label")

    @record
    class Attrs:
        grad_scale: float = 1.0

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data, label = shapes
        assert data is not None
        column = len(data) == 2 and data[1] == 1
        if label is None:
            label = data[:1] if column else data
        elif label != data and not (column and label == data[:1]):
            raise ShapeError(f"label must be {data[:1] if column else data} for data {data}, got {label}.")
        return (data, label), (data,)

    infer_type = classmethod(label_types)

    @classmethod
    def compute(cls, t: Any, a: Any, data: Any, label: Any) -> Mapping[str, Any]:
        return {"out": data}

    @staticmethod
    def compute_gradient(
        t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        out, label = arrays["out"], arrays["label"]
        scale = t.constant(a.grad_scale / max(1, prod(out.shape[1:])))
        return {"d_data": (out - t.view(label, out.shape)) * scale}


class LinearRegressionOutput(_Regression):
    """Identity whose gradient is that of half the squared error, ``d_data = (data - label) * grad_scale /
    m``.

    data: (N, ...);  label: as data, or (N,) for data (N, 1)  ->  out: as data. m: elements of one sample.
    """


class LogisticRegressionOutput(_Regression):
    """Sigmoid whose gradient is that of the cross-entropy, ``d_data = (out - label) * grad_scale / m``.

    data: (N, ...);  label: as data, or (N,) for data (N, 1)  ->  out: as data. m: elements of one sample.
    """

    @classmethod
    def compute(cls, t: Any, a: Any, data: Any, label: Any) -> Mapping[str, Any]:
        return {"out": t.sigmoid(data)}


class MAERegressionOutput(_Regression):
    """Identity whose gradient is that of the absolute error, ``d_data = sign(data - label) * grad_scale /
    m``.

    data: (N, ...);  label: as data, or (N,) for data (N, 1)  ->  out: as data. m: elements of one sample.
    The sign of 0 is -1, as in MXNet.
    """

    @staticmethod
    def compute_gradient(
        t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        out, label = arrays["out"], arrays["label"]
        scale = a.grad_scale / max(1, prod(out.shape[1:]))
        return {"d_data": t.where("gt", out, t.view(label, out.shape), t.constant(scale), t.constant(-scale))}


class _Identity(Op):
    """Base: identity functions with special gradients."""

    abstract = True
    inputs = ("data",)
    same_shape = True
    in_place = {"out": "data"}
    cheap = True
    flops_per_output = 0

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any) -> None:
        if out is not None:
            xp.copyto(out, data)


class MakeLoss(_Identity):
    """Make any expression a loss: identity, whose gradient is `grad_scale` whatever the head gradient.

    data: (..., K)  ->  out: (..., K). `normalization` divides the gradient: 'batch' by the number of rows of
    K elements (by 1 for a vector, as MXNet counts), 'valid' by the number of elements above `valid_thresh`,
    at least 1.
    """

    is_loss = True

    @record
    class Attrs:
        grad_scale: float = 1.0
        valid_thresh: float = 0.0
        normalization: Literal["null", "batch", "valid"] = "null"

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        return frozenset() if a.normalization == "valid" else frozenset(["data"])

    @staticmethod
    def backward(xp: Any, a: Any, data: Any, *, d_data: Any) -> None:
        if d_data is None:
            return
        scale = a.grad_scale
        if a.normalization == "batch":
            scale /= max(1, prod(d_data.shape[:-1]))
        elif a.normalization == "valid":
            scale /= max(1, sum(int((x > a.valid_thresh).sum()) for (x,) in pieces(data)))
        d_data.fill(scale)


class make_loss(Op):
    """Make any expression a loss: identity, whose gradient is 1 whatever the head gradient.

    data: (...)  ->  loss: (...).
    """

    inputs = ("data",)
    outputs = ("loss",)
    same_shape = True
    in_place = {"loss": "data"}
    cheap = True
    is_loss = True
    flops_per_output = 0

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, loss: Any) -> None:
        if loss is not None:
            xp.copyto(loss, data)

    @staticmethod
    def backward(xp: Any, a: Any, *, d_data: Any) -> None:
        if d_data is not None:
            d_data.fill(1)


class BlockGrad(_Identity):
    """Identity that lets no gradient through. data: (...)  ->  out: (...)."""

    aliases = ("stop_gradient",)
