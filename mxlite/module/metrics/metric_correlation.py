"""Metrics that correlate predictions with labels: of numbers, and of classes."""

from __future__ import annotations

import math
from typing import Any

import numpy

from ...core.errors import ShapeError
from .metric_averaged import Averaged, Names
from .metric_base import check_label_shapes, EvalMetric, fetched, metrics_by_name, register


class _Moments:
    """Second moments of two rows of numbers that come in pieces.

    T. Chan, G. Golub, R. LeVeque (1983), Algorithms for computing the sample variance.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = numpy.zeros(2)
        self.about_mean = numpy.zeros((2, 2))  # sum of (x - mean) (x - mean)^T

    def add(self, rows: numpy.ndarray) -> None:
        """rows: (2, N)"""
        n = rows.shape[1]
        if n:
            mean = rows.mean(axis=1)
            rest, apart, total = rows - mean[:, None], mean - self.mean, self.count + n
            self.about_mean += rest @ rest.T + numpy.outer(apart, apart) * (self.count * n / total)
            self.mean += apart * (n / total)
            self.count = total

    weight = 1

    @property
    def value(self) -> float:
        """The correlation, in [-1, 1]; nan where one of the two does not vary."""
        (x, both), (_, y) = self.about_mean.tolist()
        return both / math.sqrt(x * y) if x * y > 0 else math.nan


@metrics_by_name.alias("pearsonr")
@register
class PearsonCorrelation(Averaged):
    """Correlation of labels and predictions, as numbers. label, pred: (...), of one shape.

    `average="macro"`: the mean of each batch's correlation; `"micro"`: that of all samples together.
    """

    def __init__(
        self,
        name: str = "pearsonr",
        output_names: Names = None,
        label_names: Names = None,
        average: str = "macro",
    ) -> None:
        super().__init__(name, output_names, label_names, average)

    def tally(self) -> _Moments:
        return _Moments()

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in zip(*check_label_shapes(labels, preds, True)):
            check_label_shapes(label, pred, False, True)
            rows = numpy.stack([fetched(x).ravel().astype("float64") for x in (label, pred)])
            self._see(rows)


@register
class PCC(EvalMetric):
    """Correlation of labels and predictions, as classes: Matthews' coefficient of K classes.

    With n samples, s_k times class k said and t_k times true, c right in all:
    ``(c * n - sum(s * t)) / sqrt((n^2 - sum(s^2)) * (n^2 - sum(t^2)))``; nan where one class is all there is.
    label: (N, ...);  pred: (N, K, ...) of scores, or classes in the label's shape. K grows as classes appear.

    J. Gorodkin (2004), Comparing two K-category assignments by a K-category correlation coefficient.
    """

    def __init__(
        self,
        name: str = "pcc",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def reset(self) -> None:
        self._global_counts = numpy.zeros((2, 2), "int64")
        super().reset()

    def reset_local(self) -> None:
        self._counts = numpy.zeros((2, 2), "int64")
        super().reset_local()

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in zip(*check_label_shapes(labels, preds, True)):
            true, said = fetched(label), fetched(pred)
            if said.shape != true.shape and said.ndim > 1:
                said = numpy.argmax(said, axis=1)
            true, said = (x.astype("int64").ravel() for x in (true, said))
            if len(true) != len(said) or (len(true) and min(true.min(), said.min()) < 0):
                raise ShapeError(
                    f"{self.name} needs a class of 0 or more for each prediction, got labels "
                    f"{numpy.shape(label)} for predictions {numpy.shape(pred)}."
                )
            self._counts = _counted(self._counts, said, true)
            self._global_counts = _counted(self._global_counts, said, true)
        self.num_inst, self.sum_metric = 1, _of_classes(self._counts)
        self.global_num_inst, self.global_sum_metric = 1, _of_classes(self._global_counts)


def _counted(counts: numpy.ndarray, said: numpy.ndarray, true: numpy.ndarray) -> numpy.ndarray:
    """`counts` (said, true) with these added, as many classes as that takes."""
    classes = max(len(counts), *(int(x.max()) + 1 for x in (said, true) if len(x)), 0)
    grown = numpy.bincount(said * classes + true, minlength=classes * classes).reshape(classes, classes)
    grown[: len(counts), : len(counts)] += counts
    return grown


def _of_classes(counts: numpy.ndarray) -> float:
    n, said, true = int(counts.sum()), counts.sum(axis=1).tolist(), counts.sum(axis=0).tolist()
    spread = (n * n - sum(s * s for s in said)) * (n * n - sum(t * t for t in true))
    together = int(counts.trace()) * n - sum(s * t for s, t in zip(said, true))
    return together / math.sqrt(spread) if spread else math.nan
