"""A batch's contribution to a metric, computed in the step that made its predictions.

    sums    (4,) float64: sum and count of the batches before, sum and count of the last one
    taken   (1,) float32: 0 if the last batch is to be forgotten

The host decides only after pushing a step if the metric should include its batch. So a step keeps its own
numbers apart, and adds those of the step before:

    step 0    sums = 0, 0, s0, n0
    step 1    sums = s0, n0, s1, n1            and without s0, n0 if taken is 0

A metric's value is that of all four numbers. These operators are bound if `Module.fit` trains on a GPU. A
label that is no class counts as nan here, as no error can be raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Literal

from ...core.dtype import FLAGS, float32
from ...core.errors import DTypeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..blocks import PIECE, pieces

SUMS = 4
_float64 = FLAGS[1]


class _MetricSum(Op):
    """Base: adds a batch to `sums`; see above."""

    abstract = True
    inputs = ("sums", "taken", "label", "pred")
    inferred = ("sums", "taken")
    outputs = ()
    mutates = ("sums",)
    recomputable = False

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        arrays = shapes[2:]
        if None in arrays or not cls.suits(a, *arrays):
            raise ShapeError(
                f"{cls.op_name}: labels and predictions of shapes {arrays} do not belong together."
            )
        return ((SUMS,), (1,), *(s for s in arrays if s is not None)), ()

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        if dtypes[0] not in (None, _float64) or dtypes[1] not in (None, float32):
            raise DTypeError(f"sums must be float64 and taken float32, got {dtypes[0]} and {dtypes[1]}.")
        return (_float64, float32, *(d or float32 for d in dtypes[2:])), ()

    @classmethod
    def suits(cls, a: Any, *shapes: Any) -> bool:
        """True if the metric has a value for a batch of these shapes."""
        raise NotImplementedError

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return prod(inputs[-1])


class MetricHits(_MetricSum):
    """The number of predictions that equal the label, and the number of labels.

    label: (N, ...);  pred: (N, K, ...) of scores, the first of the largest along `axis` is the prediction, or
    classes in the label's shape.
    """

    op_name = "_metric_hits"

    @record
    class Attrs:
        axis: int = 1

    @classmethod
    def suits(cls, a: Any, *shapes: Any) -> bool:
        label, pred = shapes
        if pred == label:
            return True
        fits = -len(pred) <= a.axis < len(pred) and pred[a.axis] > 0
        return bool(fits and prod(pred) // pred[a.axis] == prod(label))

    @staticmethod
    def forward(xp: Any, a: Any, sums: Any, taken: Any, label: Any, pred: Any) -> None:
        if pred.shape == label.shape:
            parts: Any = pieces(label, pred)
        else:
            axis = a.axis % pred.ndim
            outer, inner = prod(pred.shape[:axis]), prod(pred.shape[axis + 1 :])
            cube = pred.reshape(outer, pred.shape[axis], inner)
            rows = _blocks(cube)
            parts = ((label.reshape(outer, inner)[i:j], xp.argmax(cube[i:j], axis=1)) for i, j in rows)
        right = sum(int((y.astype("int32") == x.astype("int32")).sum()) for y, x in parts)
        _add(sums, taken, right, label.size)


class MetricTop(_MetricSum):
    """The number of labels among the `top_k` largest scores, and the number of labels.

    label: N classes in any shape;  pred: (N, K). Of equal scores those of lower classes come first; nan is
    the largest.
    """

    op_name = "_metric_top"

    @record
    class Attrs:
        top_k: int

    @classmethod
    def suits(cls, a: Any, *shapes: Any) -> bool:
        label, pred = shapes
        return len(pred) == 2 and pred[0] == prod(label)

    @staticmethod
    def forward(xp: Any, a: Any, sums: Any, taken: Any, label: Any, pred: Any) -> None:
        number, right = label.reshape(-1), 0
        for i, j in _blocks(pred):
            scores = pred[i:j].astype("float64")
            best = xp.argsort(xp.where(xp.isnan(scores), -xp.inf, -scores), axis=1, kind="stable")
            right += int((best[:, : a.top_k] == number[i:j].astype("int32")[:, None]).sum())
        _add(sums, taken, right, number.size)


class MetricChosen(_MetricSum):
    """The sum of ``-log(max(pred[i, label[i]], floor) + eps)``, and the number of labels that count.

    label: N classes in any shape;  pred: (..., K), N rows. A label `ignore` does not count.
    A label that is no class gives nan, or with `clip` counts as the nearest one.
    """

    op_name = "_metric_chosen"

    @record
    class Attrs:
        floor: float = 0.0
        eps: float = 0.0
        ignore: float | None = None
        clip: bool = False

    @classmethod
    def suits(cls, a: Any, *shapes: Any) -> bool:
        label, pred = shapes
        return len(pred) > 1 and prod(pred[:-1]) == prod(label)

    @staticmethod
    def forward(xp: Any, a: Any, sums: Any, taken: Any, label: Any, pred: Any) -> None:
        label, rows = label.reshape(-1), pred.reshape(-1, pred.shape[-1])
        total = count = 0.0
        for i in range(0, label.size, PIECE // 4):
            part, own = label[i : i + PIECE // 4], rows[i : i + PIECE // 4]
            number = part.astype("int64")
            if a.clip:
                number = number.clip(0, rows.shape[1] - 1)
            known = (number >= 0) & (number < rows.shape[1])
            chosen = own[xp.arange(len(own)), xp.where(known, number, 0)]
            chosen[~known] = xp.nan
            chosen = xp.maximum(chosen, chosen.dtype.type(a.floor)) + chosen.dtype.type(a.eps)
            counts = xp.ones(part.shape, bool) if a.ignore is None else part != a.ignore
            total -= float(xp.log(chosen[counts].astype("float64")).sum())
            count += int(counts.sum())
        _add(sums, taken, total, count)


class MetricTotal(_MetricSum):
    """The sum of all elements, and their number. pred: (...)."""

    op_name = "_metric_total"
    inputs = ("sums", "taken", "pred")  # type: ignore[assignment]

    @classmethod
    def suits(cls, a: Any, *shapes: Any) -> bool:
        return True

    @staticmethod
    def forward(xp: Any, a: Any, sums: Any, taken: Any, pred: Any) -> None:
        _add(sums, taken, sum(float(x.sum(dtype="float64")) for (x,) in pieces(pred)), pred.size)


class MetricDifference(_MetricSum):
    """A mean difference of the batch, and 1.

    label, pred: (...) of one shape, not empty. `of`: "absolute" differences, their "square", or the "root" of
    the squares' mean.
    """

    op_name = "_metric_difference"

    @record
    class Attrs:
        of: Literal["absolute", "square", "root"]

    @classmethod
    def suits(cls, a: Any, *shapes: Any) -> bool:
        return bool(shapes[0] == shapes[1]) and prod(shapes[0]) > 0

    @staticmethod
    def forward(xp: Any, a: Any, sums: Any, taken: Any, label: Any, pred: Any) -> None:
        total = 0.0
        for y, x in pieces(label, pred):
            difference = (y - x).astype("float64")
            total += float((xp.abs(difference) if a.of == "absolute" else difference * difference).sum())
        mean = total / pred.size
        _add(sums, taken, mean**0.5 if a.of == "root" else mean, 1)


def _blocks(scores: Any) -> Iterator[tuple[int, int]]:
    """Ranges of axis 0 of about PIECE elements."""
    step = max(1, PIECE * len(scores) // max(1, scores.size))
    for i in range(0, len(scores), step):
        yield i, min(i + step, len(scores))


def _add(sums: Any, taken: Any, total: float, count: float) -> None:
    """Add the previous batch if it is taken, and store this one as the last."""
    if taken[0] != 0:
        sums[:2] += sums[2:]
    sums[2:] = total, count
