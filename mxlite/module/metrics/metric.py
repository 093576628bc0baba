"""The metrics. In the shapes N is the batch, K the number of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy

from ... import ndarray as ndarray
from ...core.errors import RangeError, ShapeError
from ...ops.reduce.metric_sums import (
    MetricChosen,
    MetricDifference,
    MetricHits,
    MetricTop,
    MetricTotal,
)
from .metric_base import (
    check_label_shapes as check_label_shapes,
    CompositeEvalMetric as CompositeEvalMetric,
    create as create,
    CustomMetric as CustomMetric,
    EvalMetric as EvalMetric,
    fetched,
    metrics_by_name,
    np as np,
    register as register,
)
from .metric_binary import F1 as F1, MCC as MCC
from .metric_correlation import PCC as PCC, PearsonCorrelation as PearsonCorrelation
from .metric_measured import Measured
from .tally import Operation

Names = Sequence[str] | None
alias = metrics_by_name.alias


@alias("acc")
@register
class Accuracy(Measured):
    """Share of predictions that are right.

    label: (N, ...);  pred: (N, K, ...) of scores, the largest along `axis` is the prediction, or classes in
    the label's shape.
    """

    def __init__(
        self, axis: int = 1, name: str = "accuracy", output_names: Names = None, label_names: Names = None
    ) -> None:
        super().__init__(name, output_names, label_names, axis=axis, has_global_stats=True)
        self.axis = axis

    def measure(self, label: numpy.ndarray, pred: numpy.ndarray) -> tuple[float, int]:
        if pred.shape != label.shape:
            if not -pred.ndim <= self.axis < pred.ndim:
                raise ShapeError(
                    f"{self.name}: predictions of shape {pred.shape} have no axis {self.axis} of classes "
                    f"for labels of shape {label.shape}."
                )
            pred = numpy.argmax(pred, axis=self.axis)
        _same_size(self.name, label, pred)
        right = label.astype("int32").ravel() == pred.astype("int32").ravel()
        return int(right.sum()), right.size

    def suits(self, label: Any, pred: Any) -> bool:
        if pred.shape == label.shape:
            return True
        if not -pred.ndim <= self.axis < pred.ndim or not pred.shape[self.axis]:
            return False
        return bool(pred.size // pred.shape[self.axis] == label.size)

    def operation(self, label: Any, pred: Any) -> Operation | None:
        return MetricHits, {"axis": self.axis}


@alias("top_k_accuracy", "top_k_acc")
@register
class TopKAccuracy(Measured):
    """Share of samples whose class is among the `top_k` largest scores.

    label: (N,);  pred: (N, K). The metric's name ends in `_<top_k>`. Among equal scores the choice is numpy's
    `argpartition`'s; on a GPU, lower classes.
    """

    def __init__(
        self,
        top_k: int = 1,
        name: str = "top_k_accuracy",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 2:
            raise RangeError(f"top_k must be a whole number above 1 (1 is Accuracy), got {top_k!r}.")
        super().__init__(name, output_names, label_names, top_k=top_k, has_global_stats=True)
        self.top_k = top_k
        self.name += f"_{top_k}"

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "name": self.name.removesuffix(f"_{self.top_k}")}

    def measure(self, label: numpy.ndarray, pred: numpy.ndarray) -> tuple[float, int]:
        label, pred = label.ravel(), pred.astype("float32", copy=False)
        if pred.ndim != 2 or len(pred) != len(label):
            raise ShapeError(
                f"{self.name} needs predictions (N, K) for N labels, got {pred.shape} for {len(label)}."
            )
        k = min(self.top_k, pred.shape[1])
        best = numpy.argpartition(pred, -k, axis=1)[:, -k:]
        return int((best == label.astype("int32")[:, None]).sum()), len(label)

    def suits(self, label: Any, pred: Any) -> bool:
        return _has_rows(label, pred)

    def operation(self, label: Any, pred: Any) -> Operation | None:
        return MetricTop, {"top_k": self.top_k}


@alias("ce")
@register
class CrossEntropy(Measured):
    """Mean over samples of `-log(pred[label] + eps)`. label: N classes in any shape;  pred: (N, K)."""

    def __init__(
        self,
        eps: float = 1e-12,
        name: str = "cross-entropy",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        super().__init__(name, output_names, label_names, eps=eps, has_global_stats=True)
        self.eps = eps

    def measure(self, label: numpy.ndarray, pred: numpy.ndarray) -> tuple[float, int]:
        prob = _chosen(self.name, label, pred)
        # A Python float, so that float32 probabilities stay float32, as in MXNet.
        return float(-numpy.log(prob + float(self.eps)).sum()), len(prob)

    def suits(self, label: Any, pred: Any) -> bool:
        return _has_rows(label, pred)

    def operation(self, label: Any, pred: Any) -> Operation | None:
        return MetricChosen, {"eps": float(self.eps)}


@alias("nll_loss")
@register
class NegativeLogLikelihood(CrossEntropy):
    """CrossEntropy under another name."""

    def __init__(
        self,
        eps: float = 1e-12,
        name: str = "nll-loss",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        super().__init__(eps, name, output_names, label_names)


@register
class Perplexity(Measured):
    """`exp` of the mean of `-log(pred[label])`, samples of `ignore_label` left out (None: none are).

    label: N classes in any shape;  pred: (..., K) with N rows. Probabilities count as at least 1e-10.
    """

    def __init__(
        self,
        ignore_label: int | None = None,
        axis: int = -1,
        name: str = "perplexity",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        super().__init__(
            name, output_names, label_names, ignore_label=ignore_label, axis=axis, has_global_stats=True
        )
        self.ignore_label = ignore_label
        self.axis = axis

    def measure(self, label: numpy.ndarray, pred: numpy.ndarray) -> tuple[float, int]:
        if not -pred.ndim <= self.axis < pred.ndim:
            raise ShapeError(f"{self.name} needs probabilities along axis {self.axis}, got {pred.shape}.")
        pred = numpy.moveaxis(pred, self.axis, -1)
        pred = pred.reshape(-1, pred.shape[-1])
        kept = (
            numpy.ones(label.size, bool) if self.ignore_label is None else label.ravel() != self.ignore_label
        )
        prob = _chosen(self.name, label.clip(0, pred.shape[-1] - 1), pred)[kept]
        return float(-numpy.log(numpy.maximum(prob, 1e-10)).sum()), len(prob)

    def suits(self, label: Any, pred: Any) -> bool:
        return pred.ndim > 0 and pred.size == label.size * pred.shape[min(self.axis, pred.ndim - 1)]

    def operation(self, label: Any, pred: Any) -> Operation | None:
        if len(pred.shape) < 2 or self.axis not in (-1, len(pred.shape) - 1):
            return None
        ignore = None if self.ignore_label is None else float(self.ignore_label)
        return MetricChosen, {"floor": 1e-10, "ignore": ignore, "clip": True}

    def _value(self, total: float, count: int) -> float:
        return math.exp(total / count) if count else math.nan


class _Difference(Measured):
    """Mean over batches of a mean difference. label, pred: (N, ...); (N,) reads as (N, 1)."""

    def measure(self, label: numpy.ndarray, pred: numpy.ndarray) -> tuple[float, int]:
        label, pred = (x.reshape(-1, 1) if x.ndim == 1 else x for x in (label, pred))
        if label.shape != pred.shape:
            raise ShapeError(
                f"{self.name} needs labels {label.shape} and predictions {pred.shape} of one shape."
            )
        return self.distance(label - pred), 1

    def suits(self, label: Any, pred: Any) -> bool:
        return bool(label.shape == pred.shape)

    def distance(self, difference: numpy.ndarray) -> float:
        """The batch's value."""
        raise NotImplementedError

    def _of(self, pred: Any, kind: str) -> Operation | None:
        """The operation for a batch that is not empty."""
        return (MetricDifference, {"of": kind}) if prod(pred.shape) else None


@register
class MAE(_Difference):
    """Mean over batches of the mean absolute difference."""

    def __init__(self, name: str = "mae", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def distance(self, difference: numpy.ndarray) -> float:
        return float(numpy.abs(difference).mean())

    def operation(self, label: Any, pred: Any) -> Operation | None:
        return self._of(pred, "absolute")


@register
class MSE(_Difference):
    """Mean over batches of the mean squared difference."""

    def __init__(self, name: str = "mse", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def distance(self, difference: numpy.ndarray) -> float:
        return float((difference**2.0).mean())

    def operation(self, label: Any, pred: Any) -> Operation | None:
        return self._of(pred, "square")


@register
class RMSE(_Difference):
    """Mean over batches of the root of the mean squared difference (not the root of the mean)."""

    def __init__(self, name: str = "rmse", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def distance(self, difference: numpy.ndarray) -> float:
        return float(numpy.sqrt((difference**2.0).mean()))

    def operation(self, label: Any, pred: Any) -> Operation | None:
        return self._of(pred, "root")


@register
class Loss(Measured):
    """Mean of all elements of the outputs, which are losses; labels are ignored."""

    def __init__(self, name: str = "loss", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def measure(self, label: Any, pred: numpy.ndarray) -> tuple[float, int]:
        return float(pred.sum()), pred.size

    def operation(self, label: Any, pred: Any) -> Operation | None:
        return MetricTotal, {}

    def arrays(self, label: Any, pred: Any) -> list[Any]:
        return [pred]

    def pairs(self, label: Any, pred: Any) -> list[tuple[Any, Any]]:
        preds = list(pred.values()) if self.output_names is None else [pred[n] for n in self.output_names]
        return [(x, x) for x in preds]

    def update(self, labels: Any, preds: Any) -> None:
        for pred in preds if isinstance(preds, (list, tuple)) else [preds]:
            self._add(*self.measure(None, fetched(pred)))


def _has_rows(label: Any, pred: Any) -> bool:
    """True if there is a row of predictions for each label."""
    return pred.ndim == 2 and len(pred) == label.size


def _same_size(name: str, label: numpy.ndarray, pred: numpy.ndarray) -> None:
    if label.size != pred.size:
        raise ShapeError(
            f"{name}: {label.size} labels {label.shape}, but {pred.size} predictions {pred.shape}."
        )


def _chosen(name: str, label: numpy.ndarray, pred: numpy.ndarray) -> numpy.ndarray:
    """`pred[i, label[i]]` for each row."""
    if pred.ndim != 2 or len(pred) != label.size:
        raise ShapeError(
            f"{name} needs predictions (N, K) for N labels, got {pred.shape} for {label.size} labels."
        )
    classes = label.ravel().astype("int64")
    if classes.size and not (0 <= classes.min() and classes.max() < pred.shape[1]):
        raise RangeError(
            f"{name}: labels run from {classes.min()} to {classes.max()}, there are {pred.shape[1]} classes."
        )
    return pred[numpy.arange(len(pred)), classes]
