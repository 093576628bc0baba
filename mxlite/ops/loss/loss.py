"""Outputs that start the backward pass by themselves, and BlockGrad, which ends it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, ClassVar, Literal

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_kind, Shapes, Types
from ..norm.views import along, View
from .softmax import computed_softmax, softmax_blocks, softmax_bytes

_STEP = 2048  # labels at a time; arrays of this size are local temporaries


def label_types(op: type[Op], a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
    """`Op.infer_type` of data and labels; labels may be of any type, by default data's."""
    data, label = dtypes
    require_kind(op, data)
    return (data, label or data), (data,)


def unchanged(xp: Any, a: Any, data: Any, label: Any, *, out: Any) -> None:
    """`Op.forward` of a loss whose output is its data."""
    if out is not None:
        xp.copyto(out, data)


def sigmoid(xp: Any, data: Any, out: Any) -> None:
    """out = 1 / (1 + exp(-data)), also where they are one array."""
    xp.negative(data, out=out)
    with xp.errstate(over="ignore"):  # exp gives infinity, and 1 / infinity the right 0
        xp.exp(out, out=out)
    xp.add(out, 1, out=out)
    xp.divide(1, out, out=out)


class SoftmaxOutput(Op):
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
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return softmax_bytes(softmax_view(a, inputs[0]), dtype)

    @staticmethod
    def compute(t: Any, a: Any, data: Any, label: Any) -> Mapping[str, Any]:
        return {"out": computed_softmax(t, softmax_view(a, data.shape), data)}

    @staticmethod
    def compute_gradient(
        t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        out, label = arrays["out"], arrays["label"]
        if not SoftmaxOutput.has_classes(a, out.shape, label.shape):
            made = (out - label) * t.constant(a.grad_scale)
            return {"d_data": made * heads["out"] if "out" in heads else made}
        n, _, k, _, p = view = softmax_view(a, out.shape)
        y, number = t.view(out, view), t.view(label, (n, 1, 1, 1, p))  # the first of the labels
        spread = a.smooth_alpha / (k - 1) if k > 1 else 0.0
        other, true = (y - t.constant(x) if x else y for x in (spread, 1 - a.smooth_alpha))
        made = t.where("eq", t.index(y, 2), t.trunc(number), true, other)
        scale, count = a.grad_scale, prod(label.shape)
        if a.multi_output and a.normalization != "valid":
            scale /= max(1, p)
        if a.normalization == "batch":
            scale /= max(1, n if a.multi_output else count)
        factor = t.constant(scale)
        if a.normalization == "valid":
            if count != n * p:
                return None  # labels of which the first count, but all are counted
            counts = t.one_where("ne", t.view(label, (n, 1, 1, 1, p)), t.constant(a.ignore_label))
            factor = factor / t("max", t.sum(counts), 1.0)
        made = made * factor
        if a.use_ignore:  # 0 even if out is nan
            made = t.where("eq", number, t.constant(a.ignore_label), 0.0, made)
        return {"d_data": made * t.view(heads["out"], view) if "out" in heads else made}

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, label: Any, *, out: Any, work: Any) -> None:
        if out is not None:
            softmax_blocks(xp, softmax_view(a, data.shape), data, out, work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, out: Any, label: Any, *, d_data: Any) -> None:
        if d_data is None:
            return
        if SoftmaxOutput.has_classes(a, out.shape, label.shape):
            n, _, k, _, p = view = softmax_view(a, out.shape)
            flat = label.reshape(-1)
            if out is not d_data:
                xp.copyto(d_data, out)
            rows_gradient(xp, a, d_data.reshape(n, k, p), flat[: n * p], label_scale(a, view, flat))
        else:
            xp.subtract(out, label, out=d_data, casting="unsafe")
            xp.multiply(d_data, a.grad_scale, out=d_data)
        if d_out is not None:
            xp.multiply(d_data, d_out, out=d_data)

    @staticmethod
    def has_classes(a: Any, out: Shape, label: Shape) -> bool:
        """True if labels are class numbers, not probabilities."""
        return label != out or (a.multi_output and len(out) <= 2 and out[1:] == (1,))


def label_scale(a: Any, view: View, flat: Any) -> float:
    """The common factor of a SoftmaxOutput's gradient, for all its labels."""
    n, _, _, _, p = view
    scale: float = a.grad_scale
    if a.multi_output and a.normalization != "valid":
        scale /= max(1, p)
    if a.normalization == "batch":
        scale /= max(1, n if a.multi_output else flat.size)
    elif a.normalization == "valid":
        ignored = sum(int((labels == a.ignore_label).sum()) for _, labels in _labels(flat))
        scale /= max(1, flat.size - ignored)
    return scale


def rows_gradient(xp: Any, a: Any, grad: Any, flat: Any, scale: float) -> None:
    """Turn probabilities (N, K, P) in `grad` into the gradient for the class numbers `flat`, (N * P,)."""
    _, k, p = grad.shape
    spread = a.smooth_alpha / (k - 1) if k > 1 else 0.0
    if spread:
        xp.subtract(grad, spread, out=grad)
    for start, labels in _labels(flat):
        position = xp.arange(start, start + labels.size)
        row, column = position // p, position % p
        number = labels.astype("int64")
        known = (number >= 0) & (number < k)
        at = row[known], number[known], column[known]
        # grad - spread -> grad - (1 - smooth_alpha)
        grad[at] -= grad.dtype.type(1 - a.smooth_alpha - spread)
        if a.use_ignore:
            ignored = labels == a.ignore_label
            for i, j in zip(row[ignored].tolist(), column[ignored].tolist()):
                grad[i, :, j] = 0
    xp.multiply(grad, scale, out=grad)


def _labels(flat: Any) -> Iterator[tuple[int, Any]]:
    """Blocks of the labels and their offsets."""
    for start in range(0, flat.size, _STEP):
        yield start, flat[start : start + _STEP]


def softmax_view(a: Any, shape: Shape) -> View:
    """The view that a SoftmaxOutput normalizes."""
    if a.multi_output:
        return along(shape, 1)
    if a.preserve_shape:
        return along(shape, -1)
    return shape[0], 1, prod(shape[1:]), 1, 1


class _Regression(Op):
    """Base: a prediction, a label of the same shape, and a gradient per sample."""

    inputs = ("data", "label")
    inferred = ("label",)
    accepts = "float"
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "out"}
    is_loss = True

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

    @staticmethod
    def backward(xp: Any, a: Any, out: Any, label: Any, *, d_data: Any) -> None:
        """``d_data = (out - label) * grad_scale / (elements of one sample)``"""
        if d_data is not None:
            xp.subtract(out, label.reshape(out.shape), out=d_data, casting="unsafe")
            xp.multiply(d_data, a.grad_scale / max(1, prod(out.shape[1:])), out=d_data)


class LinearRegressionOutput(_Regression):
    """Identity whose gradient is that of half the squared error, ``d_data = (data - label) * grad_scale /
    m``.

    data: (N, ...);  label: as data, or (N,) for data (N, 1)  ->  out: as data. m: elements of one sample.
    """

    forward = staticmethod(unchanged)


class LogisticRegressionOutput(_Regression):
    """Sigmoid whose gradient is that of the cross-entropy, ``d_data = (out - label) * grad_scale / m``.

    data: (N, ...);  label: as data, or (N,) for data (N, 1)  ->  out: as data. m: elements of one sample.
    """

    @classmethod
    def compute(cls, t: Any, a: Any, data: Any, label: Any) -> Mapping[str, Any]:
        return {"out": t.sigmoid(data)}

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, label: Any, *, out: Any) -> None:
        if out is not None:
            sigmoid(xp, data, out)


class MAERegressionOutput(_Regression):
    """Identity whose gradient is that of the absolute error, ``d_data = sign(data - label) * grad_scale /
    m``.

    data: (N, ...);  label: as data, or (N,) for data (N, 1)  ->  out: as data. m: elements of one sample.
    The sign of 0 is -1, as in MXNet.
    """

    forward = staticmethod(unchanged)

    @staticmethod
    def compute_gradient(
        t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        out, label = arrays["out"], arrays["label"]
        scale = a.grad_scale / max(1, prod(out.shape[1:]))
        return {"d_data": t.where("gt", out, t.view(label, out.shape), t.constant(scale), t.constant(-scale))}

    @staticmethod
    def backward(xp: Any, a: Any, out: Any, label: Any, *, d_data: Any) -> None:
        if d_data is None:
            return
        xp.greater(out, label.reshape(out.shape), out=d_data, casting="unsafe")  # 1 or 0
        xp.subtract(d_data, 0.5, out=d_data)
        xp.multiply(d_data, 2 * a.grad_scale / max(1, prod(out.shape[1:])), out=d_data)


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
            scale /= max(1, sum(int((x > a.valid_thresh).sum()) for _, x in _labels(data.reshape(-1))))
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
    elementwise = True
    is_loss = True
    flops_per_output = 0

    @staticmethod
    def compute(w: Any, a: Any, data: Any) -> Any:
        return {"loss": data}

    @staticmethod
    def compute_gradient(w: Any, a: Any, heads: Any, arrays: Any) -> Any:
        return {"d_data": w.number(1.0)}

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
    elementwise = True

    @staticmethod
    def compute(w: Any, a: Any, data: Any) -> Any:
        return {"out": data}
