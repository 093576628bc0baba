"""Cross-entropies of class numbers, fused with the softmax: no probabilities are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Literal

from ...core.dtype import as_dtype
from ...core.errors import DTypeError, OperatorError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_kind, require_rank, Shapes, Types
from ..norm.views import along
from ..scratch import accumulator, BLOCK, carve, Piece, scratch_bytes
from .loss import label_types
from .softmax import log_sums, log_sums_bytes, softmax_blocks, softmax_bytes

_BYTE = as_dtype("uint8")
STEP = 2048  # labels at a time; arrays of this size are local temporaries


class softmax_cross_entropy(Op):
    """Cross-entropy summed over the batch, ``out = -sum of log(softmax(data)[n, label[n]])``.

    data: (N, K);  label: (N,), class numbers  ->  out: (1,). A label that is no class adds nothing, and its
    row has the gradient 0 (in MXNet 1.9.1 it reads outside the row). label has no gradient.

    Backward recomputes the softmax from the data.
    """

    inputs = ("data", "label")
    inferred = ("label",)
    accepts = "float"
    backward_in_place = {"d_data": "data"}
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
        return (data, data[:1]), ((1,),)

    infer_type = classmethod(label_types)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_forward_pieces(inputs[0], dtype))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_backward_pieces(inputs[0], dtype))

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

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, label: Any, *, out: Any, work: Any) -> None:
        if out is None:
            return
        x, sums = _denominators(xp, data, work)
        total = 0.0
        for chosen in _chosen(xp, label, data.shape):
            total += float(chosen.loss(x, sums).sum(dtype="float64"))
        out[0] = total

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, data: Any, label: Any, *, d_data: Any, work: Any) -> None:
        if d_data is not None:
            _gradient(xp, data, label, d_data, work, lambda some: float(d_out[0]))


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


class _ClassLoss(Op):
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
        for _ in _chosen(xp, label, shapes["data"], a.ignore_index):
            pass

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

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_forward_pieces(inputs[0], dtype))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_backward_pieces(inputs[0], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, label: Any, weight: Any = None, *, out: Any, work: Any) -> None:
        if out is not None:
            x, sums = _denominators(xp, data, work)
            _reduce(xp, a, data.shape, label, weight, out, lambda chosen: chosen.loss(x, sums))

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, data: Any, label: Any, weight: Any, *, d_data: Any, work: Any
    ) -> None:
        if d_data is not None:
            factor = _factor(xp, a, d_out, data.shape, label, weight)
            _gradient(xp, data, label, d_data, work, factor, a.ignore_index)


class nll_loss(_ClassLoss):
    """Negative log-likelihood of each position, ``-weight[label] * data[n, label]``.

    data: (N, C, ...), logarithms of probabilities;  label: (N, ...), class numbers;  weight: (C,), with
    `use_weight`  ->  out: as label for `reduction` 'none'; (1,) for 'sum', and for 'mean', which divides by
    the sum of the weights that count.

    A label `ignore_index` counts for nothing; any other that is no class is an error. As PyTorch's function
    of that name: the mean of nothing is nan. Backward reads the labels, not the data.
    """

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

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, label: Any, weight: Any = None, *, out: Any) -> None:
        if out is not None:
            x = _cube(data)
            _reduce(xp, a, data.shape, label, weight, out, lambda chosen: -chosen.of(x))

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, label: Any, weight: Any, *, d_data: Any) -> None:
        if d_data is None:
            return
        factor = _factor(xp, a, d_out, d_data.shape, label, weight)
        d_data.fill(0)
        grad = _cube(d_data)
        for chosen in _chosen(xp, label, d_data.shape, a.ignore_index):
            grad[chosen.at] = xp.negative(factor(chosen))


def _cube(data: Any) -> Any:
    """(N, C, P) of data (N, C, ...)."""
    n, c, *rest = data.shape
    return data.reshape(n, c, prod(rest))


class _Chosen:
    """A block of labels: those that count, and the indices of their classes in data (N, C, P)."""

    def __init__(self, xp: Any, start: int, number: Any, classes: int, positions: int, ignored: Any) -> None:
        flat = xp.arange(start, start + number.size)
        self.counts = (number >= 0) & (number < classes)
        if ignored is not None:
            self.counts &= number != ignored
        self.start, self.stop = start, start + number.size
        self.flat, self.number = flat[self.counts], number[self.counts]
        self.at = self.flat // positions, self.number, self.flat % positions

    def of(self, x: Any) -> Any:
        """The classes' elements, in the type that sums are computed in."""
        return x[self.at].astype(accumulator(x.dtype))

    def loss(self, x: Any, sums: Any) -> Any:
        return sums[self.flat] - self.of(x)


def _chosen(xp: Any, label: Any, shape: Shape, ignored: int | None = None) -> Iterator[_Chosen]:
    """The labels in blocks. With `ignored`, a label that is neither it nor a class raises OperatorError."""
    flat, classes, positions = label.reshape(-1), shape[1], prod(shape[2:])
    for start in range(0, flat.size, STEP):
        number = flat[start : start + STEP].astype("int64")
        if ignored is not None:
            wrong = number[((number < 0) | (number >= classes)) & (number != ignored)]
            if wrong.size:
                raise OperatorError(
                    f"label must be in [0, {classes}) or ignore_index={ignored}, got {int(wrong[0])}."
                )
        yield _Chosen(xp, start, number, classes, positions, ignored)


def _forward_pieces(shape: Shape, dtype: DType) -> list[Piece]:
    """Logarithms of denominators, one for each label, and the scratch for computing them."""
    view = along(shape, 1)
    return [((shape[0] * prod(shape[2:]),), accumulator(dtype)), ((log_sums_bytes(view, dtype),), _BYTE)]


def _backward_pieces(shape: Shape, dtype: DType) -> list[Piece]:
    """A factor for each label, the softmax's own scratch, and some samples in the type of sums."""
    view, acc = along(shape, 1), accumulator(dtype)
    some = _samples(shape, dtype) if acc != dtype else 0
    return [
        ((shape[0] * prod(shape[2:]),), acc),
        ((softmax_bytes(view, dtype),), _BYTE),
        ((some, shape[1], prod(shape[2:])), acc),
    ]


def _samples(shape: Shape, dtype: DType) -> int:
    """Samples whose gradients are computed at a time: all, unless they are rounded in the end."""
    if accumulator(dtype) == dtype:
        return max(1, shape[0])
    return max(1, min(shape[0], BLOCK // max(1, prod(shape[1:]))))


def _denominators(xp: Any, data: Any, work: Any) -> tuple[Any, Any]:
    """data as (N, C, P), and log(sum of exp(data) over C), flat."""
    sums, own = carve(work, _forward_pieces(data.shape, data.dtype))
    log_sums(xp, along(data.shape, 1), data, sums, own)
    return _cube(data), sums


def _reduce(xp: Any, a: Any, shape: Shape, label: Any, weight: Any, out: Any, loss: Any) -> None:
    """Compute `out` from the losses of blocks of labels."""
    total = count = 0.0
    for chosen in _chosen(xp, label, shape, a.ignore_index):
        value = loss(chosen)
        if weight is not None:
            by = weight[chosen.number].astype(value.dtype)
            value *= by
            count += float(by.sum(dtype="float64"))
        else:
            count += value.size
        if a.reduction == "none":
            part = out.reshape(-1)[chosen.start : chosen.stop]
            part.fill(0)
            part[chosen.counts] = value.astype(out.dtype)
        else:
            total += float(value.sum(dtype="float64"))
    if a.reduction == "sum":
        out[0] = total
    elif a.reduction == "mean":
        out[0] = total / count if count else float("nan")


def _factor(xp: Any, a: Any, d_out: Any, shape: Shape, label: Any, weight: Any) -> Any:
    """A function f(chosen) -> the factors of these labels' gradients."""
    head: Any = None if a.reduction == "none" else float(d_out[0])
    if a.reduction == "mean":
        count = 0.0
        for chosen in _chosen(xp, label, shape, a.ignore_index):
            count += chosen.flat.size if weight is None else float(weight[chosen.number].sum(dtype="float64"))
        head = head / count if count else 0.0

    def factor(chosen: _Chosen) -> Any:
        acc = accumulator(d_out.dtype)
        value = xp.full(chosen.flat.size, head, acc) if head is not None else None
        if value is None:
            value = d_out.reshape(-1)[chosen.flat].astype(acc)
        if weight is not None:
            value *= weight[chosen.number].astype(acc)
        return value

    return factor


def _gradient(
    xp: Any, data: Any, label: Any, d_data: Any, work: Any, factor: Any, ignored: int | None = None
) -> None:
    """d_data = (softmax(data) - onehot(label)) * factor; 0 for labels that do not count. Rounded once."""
    shape = data.shape
    factors, own, box = carve(work, _backward_pieces(shape, data.dtype))
    factors.fill(0)
    for chosen in _chosen(xp, label, shape, ignored):
        factors[chosen.flat] = factor(chosen)
    grad = _cube(d_data)
    n, _, p = grad.shape
    x, labels, by = _cube(data), label.reshape(n, p), factors.reshape(n, 1, p)
    step = _samples(shape, data.dtype)
    for i in range(0, n, step):
        rows = slice(i, min(n, i + step))
        block = box[: rows.stop - i] if box.size else grad[rows]
        softmax_blocks(xp, along(block.shape, 1), x[rows], block, own)
        for chosen in _chosen(xp, labels[rows], block.shape, ignored):
            block[chosen.at] -= block.dtype.type(1)
        xp.multiply(block, by[rows], out=block, casting="unsafe")
        if box.size:
            xp.copyto(grad[rows], block, casting="unsafe")
