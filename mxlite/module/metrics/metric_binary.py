"""Metrics of two classes, computed from how often each was said and was true."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy

from ...core.errors import RangeError, ShapeError
from .metric_averaged import Averaged, Names
from .metric_base import check_label_shapes, fetched, register


class _Counts:
    """Tally of how often (true positives, false positives, false negatives, true negatives) came."""

    def __init__(self, of_counts: Callable[[int, int, int, int], float]) -> None:
        self._of_counts = of_counts
        self._counts = numpy.zeros(4, "int64")

    def add(self, samples: Any) -> None:
        self._counts += samples

    @property
    def value(self) -> float:
        return self._of_counts(*self._counts.tolist())

    @property
    def weight(self) -> int:
        return int(self._counts.sum())


class _Binary(Averaged):
    """A function of these counts. label: N of 0 and 1, in any shape;  pred: (N, 2)."""

    @staticmethod
    def of_counts(hit: int, false_alarm: int, missed: int, rejected: int) -> float:
        """The value of these counts."""
        raise NotImplementedError

    def tally(self) -> _Counts:
        return _Counts(self.of_counts)

    def update(self, labels: Any, preds: Any) -> None:
        pairs = zip(*check_label_shapes(labels, preds, True))
        self._see(sum(self._counted(fetched(x).astype("int32").ravel(), fetched(y)) for x, y in pairs))

    def _counted(self, label: numpy.ndarray, pred: numpy.ndarray) -> numpy.ndarray:
        if pred.ndim != 2 or len(pred) != len(label):
            raise ShapeError(
                f"{self.name} needs predictions (N, 2) for N labels, got {pred.shape} for {len(label)}."
            )
        if len(numpy.unique(label)) > 2:
            raise RangeError(f"{self.name} is for two classes, got labels {numpy.unique(label).tolist()}.")
        said, true = numpy.argmax(pred, axis=1) == 1, label == 1
        return numpy.array([x.sum() for x in (said & true, said & ~true, ~said & true, ~said & ~true)])


@register
class F1(_Binary):
    """Harmonic mean of precision and recall of class 1 out of two.

    label: N of 0 and 1, in any shape;  pred: (N, 2). `average="macro"`: the mean of each batch's value;
    `"micro"`: that of all samples together. 0 where nothing is predicted or nothing is there.
    """

    def __init__(
        self,
        name: str = "f1",
        output_names: Names = None,
        label_names: Names = None,
        average: str = "macro",
    ) -> None:
        super().__init__(name, output_names, label_names, average)

    @staticmethod
    def of_counts(hit: int, false_alarm: int, missed: int, rejected: int) -> float:
        precision = hit / (hit + false_alarm) if hit + false_alarm else 0.0
        recall = hit / (hit + missed) if hit + missed else 0.0
        return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@register
class MCC(_Binary):
    """Matthews' correlation coefficient of two classes, in [-1, 1].

    ``(TP * TN - FP * FN) / sqrt((TP + FP) * (TP + FN) * (TN + FP) * (TN + FN))``, sums that are 0 left out.
    label: N of 0 and 1, in any shape;  pred: (N, 2). `average` is as in `F1`. For more classes see `PCC`.

    B. W. Matthews (1975), Comparison of the predicted and observed secondary structure of T4 phage lysozyme.
    """

    def __init__(
        self,
        name: str = "mcc",
        output_names: Names = None,
        label_names: Names = None,
        average: str = "macro",
    ) -> None:
        super().__init__(name, output_names, label_names, average)

    @staticmethod
    def of_counts(hit: int, false_alarm: int, missed: int, rejected: int) -> float:
        sums = (hit + false_alarm, hit + missed, rejected + false_alarm, rejected + missed)
        return (hit * rejected - false_alarm * missed) / math.sqrt(math.prod(s for s in sums if s))
