"""Cross-entropies of class numbers, fused with the softmax: no probabilities are kept."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Literal

from ...core.errors import DTypeError, OperatorError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, require_kind, require_rank, Shapes, Types
from ..declared import Declared
from ..scratch import accumulator
from .loss import label_types

STEP = 2048  # labels at a time; arrays of this size are local temporaries


class softmax_cross_entropy(Declared):
    """Cross-entropy summed over the batch, ``out = -sum of log(softmax(data)[n, label[n]])``.

    data: (N, K);  label: (N,), class numbers  ->  out: (1,). A label that is no class adds nothing, and its
    row has the gradient 0 (in MXNet 1.9.1 it reads outside the row). label has no gradient.

    Backward recomputes the softmax from the data.
    """

    inputs = ("data", "label")
    inferred = ("label",)
    accepts = "float"
    backward_in_place = {"d_data": "data"}
    backward_reads = ("d_out", "data", "label")
    flops_per_input = 4

    @classmethod
    def class_numbers(cls, a: Any, inputs: Shapes) -> dict[str, tuple[int, float | None]]:
        return {"label": (inputs[0][-1], None)}

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data, label = shapes
        assert data is not None
        if len(data) != 2:
            raise ShapeError(f"data must be (N, K), got {data}; see cross_entropy for more axes.")
        if label is not None and label != data[:1] and -1 not in label:
            raise ShapeError(f"label must be {data[:1]} for data {data}, got {label}.")
        if data[0] and not data[1]:
            raise ShapeError(f"data {data} has no class to which a label could point.")
        return (data, data[:1]), ((1,),)

    infer_type = classmethod(label_types)

    @staticmethod
    def compute(t: Any, a: Any, data: Any, label: Any) -> Mapping[str, Any]:
        rows = _TensorRows(t, data, t.trunc(t.view(label, (data.shape[0], 1))))
        below = t.pick(data, rows.number, 1) - rows.most
        return {"out": t.sum(t.select(rows.is_known, t.log(rows.total) - below, 0.0))}

    @staticmethod
    def compute_gradient(
        t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        data = arrays["data"]
        rows = _TensorRows(t, data, t.trunc(t.view(arrays["label"], (data.shape[0], 1))))
        factor = t.select(rows.is_known, heads["out"], 0.0)
        return {"d_data": rows.power * (factor / rows.total) - t.select(rows.is_true, factor, 0.0)}


class CrossEntropyWithGradient(Declared):
    """softmax_cross_entropy together with its gradient, for rows that are there a tile at a time.

    data: (N, K);  label: (N,), class numbers;  head: (1,), the gradient of the loss  ->  out: (1,), as of
    softmax_cross_entropy;  d_data: (N, K) as data, which it may overwrite. For data of 16 bits loss and head
    are float32. Without d_data, which nobody has to read, only the loss is computed.
    """

    op_name = "_cross_entropy_with_gradient"
    inputs = ("data", "label", "head")
    outputs = ("out", "d_data")
    inferred = ("label", "head")
    accepts = "float"
    in_place = {"d_data": "data"}
    recomputable = False
    flops_per_input = 8

    @classmethod
    def class_numbers(cls, a: Any, inputs: Shapes) -> dict[str, tuple[int, float | None]]:
        return softmax_cross_entropy.class_numbers(a, inputs)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data, label, head = shapes
        ins, outs = softmax_cross_entropy.infer_shape(a, data, label)
        if head not in (None, outs[0]):
            raise ShapeError(f"head must be {outs[0]}, got {head}.")
        return (*ins, *outs), (*outs, ins[0])

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        data, label, head = dtypes
        require_kind(cls, data)
        wide = None if data is None else accumulator(data)
        if None not in (wide, head) and head != wide:
            raise DTypeError(f"head must be {wide} for data of {data}, got {head}.")
        return (data, label or wide, wide), (wide, data)

    @staticmethod
    def compute(t: Any, a: Any, data: Any, label: Any, head: Any) -> Mapping[str, Any]:
        rows = _TensorRows(t, data, t.trunc(t.view(label, (data.shape[0], 1))))
        below = t.sum(t.select(rows.is_true, data - rows.most, 0.0), (1,))  # d_data may lie where data does
        factor = t.select(rows.is_known, t.view(head, (1, 1)), 0.0)
        return {
            "out": t.sum(t.select(rows.is_known, t.log(rows.total) - below, 0.0)),
            "d_data": rows.power * (factor / rows.total) - t.select(rows.is_true, factor, 0.0),
        }


class _TensorRows:
    """Scores with classes along axis 1 as tensors: the largest of each row, exponentials of what lies below
    it and their sum, and masks of the classes that are labels, and of the labels that are classes.
    """

    def __init__(self, t: Any, data: Any, number: Any) -> None:
        self.data, self.number = data, number
        self.most = t.max(data, (1,))
        self.power = t.exp(data - self.most)
        self.total = t.sum(self.power, (1,))
        self.is_true = t.eq(t.index(data, 1), number)
        self.is_known = t.ge(t.where("lt", number, float(data.shape[1]), number, -1.0), 0.0)


class _TensorClasses:
    """The labels of a loss as tensors: class numbers, and how much each counts."""

    def __init__(self, t: Any, a: Any, shape: Shape, label: Any, weight: Any) -> None:
        self.t, self.a = t, a
        n, c, p = self.view = shape[0], shape[1], prod(shape[2:])
        self.number = t.trunc(t.view(label, (n, 1, p)))
        self.counts = t.ne(self.number, t.constant(float(a.ignore_index)))
        self.weight = 1.0 if weight is None else t.pick(t.view(weight, (1, c, 1)), self.number, 1)

    def reduced(self, loss: Any) -> Any:
        """The loss of each position, or their sum or mean."""
        t, a = self.t, self.a
        each = t.select(self.counts, loss * self.weight, 0.0)
        if a.reduction == "none":
            return each
        return t.sum(each) / self.total() if a.reduction == "mean" else t.sum(each)

    def total(self) -> Any:
        """The sum of the weights that count."""
        return self.t.sum(self.t.select(self.counts, self.weight, 0.0))

    def factor(self, head: Any) -> Any:
        """The factor of the gradient of each position."""
        t, (n, _, p) = self.t, self.view
        d = t.view(head, (n, 1, p) if self.a.reduction == "none" else (1, 1, 1))
        if self.a.reduction == "mean":
            total = self.total()
            d = t.where("eq", total, 0.0, 0.0, d / total)
        return t.select(self.counts, d * self.weight, 0.0)


class _ClassLoss(Declared):
    """Base: a loss of class numbers, one for each position."""

    abstract = True
    inputs = ("data", "label", "weight")
    inferred = ("label", "weight")
    accepts = "float"
    flops_per_input = 4
    optional = {"weight": "use_weight"}

    @record
    class Attrs:
        reduction: Literal["none", "mean", "sum"] = "mean"
        ignore_index: int = -100
        use_weight: bool = False

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        require_rank(data, 2, "data")
        want = (data, (data[0], *data[2:]), data[1:2])
        for name, shape, need in zip(("label", "weight"), shapes[1:], want[1:]):
            if shape is not None and shape != need and -1 not in shape:
                raise ShapeError(f"{name} must be {need} for data {data}, got {shape}.")
        return want[: len(shapes)], (want[1] if a.reduction == "none" else (1,),)

    @staticmethod
    def compute_check(xp: Any, a: Any, shapes: Mapping[str, Shape], label: Any) -> None:
        """Raise OperatorError for a label that is neither `ignore_index` nor a class."""
        _require_classes(xp, label, shapes["data"][1], a.ignore_index)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        data, label, *weight = dtypes
        require_kind(cls, data)
        if weight and None not in (data, weight[0]) and weight[0] != data:
            raise DTypeError(f"weight must be {data} as data, got {weight[0]}.")
        return (data, label or data, *(data for _ in weight)), (data,)


class cross_entropy(_ClassLoss):
    """Cross-entropy of each position, ``-weight[label] * log(softmax(data)[n, label])``, softmax over axis 1.

    data: (N, C, ...);  label: (N, ...), classes;  weight: (C,), with `use_weight`  ->  out: as label
    for `reduction` 'none'; (1,) for 'sum' and for 'mean', which divides by the sum of the weights that count.

    A label `ignore_index` counts for nothing; any other that is no class is an error. As PyTorch's function
    of that name: the mean of nothing is nan. Backward recomputes the softmax from the data.
    """

    backward_in_place = {"d_data": "data"}
    backward_reads = ("d_out", "data", "label", "weight")

    @staticmethod
    def compute(t: Any, a: Any, data: Any, label: Any, weight: Any = None) -> Mapping[str, Any]:
        classes = _TensorClasses(t, a, data.shape, label, weight)
        rows = _TensorRows(t, t.view(data, classes.view), classes.number)
        below = t.pick(rows.data, classes.number, 1) - rows.most
        return {"out": classes.reduced(t.log(rows.total) - below)}

    @staticmethod
    def compute_gradient(
        t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        data = arrays["data"]
        classes = _TensorClasses(t, a, data.shape, arrays["label"], arrays.get("weight"))
        rows = _TensorRows(t, t.view(data, classes.view), classes.number)
        factor = classes.factor(heads["out"])
        return {"d_data": rows.power * (factor / rows.total) - t.select(rows.is_true, factor, 0.0)}


class nll_loss(_ClassLoss):
    """Negative log-likelihood of each position, ``-weight[label] * data[n, label]``.

    data: (N, C, ...), logarithms of probabilities;  label: (N, ...), class numbers;  weight: (C,), with
    `use_weight`  ->  out: as label for `reduction` 'none'; (1,) for 'sum', and for 'mean', which divides by
    the sum of the weights that count.

    A label `ignore_index` counts for nothing; any other that is no class is an error. As PyTorch's function
    of that name: the mean of nothing is nan. Backward reads the labels, not the data.
    """

    backward_reads = ("d_out", "label", "weight")

    @staticmethod
    def compute(t: Any, a: Any, data: Any, label: Any, weight: Any = None) -> Mapping[str, Any]:
        classes = _TensorClasses(t, a, data.shape, label, weight)
        return {"out": classes.reduced(-t.pick(t.view(data, classes.view), classes.number, 1))}

    @staticmethod
    def compute_gradient(
        t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        data = arrays["data"]
        classes = _TensorClasses(t, a, data.shape, arrays["label"], arrays.get("weight"))
        place = t.index(t.broadcast(0.0, classes.view), 1)
        return {"d_data": t.where("eq", place, classes.number, -classes.factor(heads["out"]), 0.0)}


def _require_classes(xp: Any, label: Any, classes: int, ignored: int) -> None:
    """Raise OperatorError for a label that is neither a class nor `ignored`."""
    flat = label.reshape(-1)
    for start in range(0, flat.size, STEP):
        number = flat[start : start + STEP].astype("int64")
        wrong = number[((number < 0) | (number >= classes)) & (number != ignored)]
        if wrong.size:
            raise OperatorError(
                f"label must be in [0, {classes}) or ignore_index={ignored}, got {int(wrong[0])}."
            )
