"""Metrics of two classes, computed from how often each was said and was true."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from ..core.errors import ShapeError
from .metric_base import check_label_shapes, EvalMetric, fetched, register

Names = Sequence[str] | None


class _Binary(EvalMetric):
    """A function of the counts (true positives, false positives, false negatives, true negatives).

    label: N of 0 and 1, in any shape;  pred: (N, 2). `average="macro"`: the mean of each batch's value;
    `"micro"`: the value of all samples together.
    """

    def __init__(
        self,
        name: str,
        output_names: Names = None,
        label_names: Names = None,
        average: str = "macro",
    ) -> None:
        if average not in ("macro", "micro"):
            raise ValueError(f"average is 'macro' or 'micro', got {average!r}.")
        self.average = average
        super().__init__(name, output_names, label_names, has_global_stats=True)

    @staticmethod
    def of_counts(hit: int, false_alarm: int, missed: int, rejected: int) -> float:
        """The value of these counts."""
        raise NotImplementedError

    def reset(self) -> None:
        self._global_counts = numpy.zeros(4, "int64")
        super().reset()

    def reset_local(self) -> None:
        self._counts = numpy.zeros(4, "int64")
        super().reset_local()

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "average": self.average}

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in zip(*check_label_shapes(labels, preds, True)):
            self._count(fetched(label).astype("int32").ravel(), fetched(pred))
        if self.average == "macro":
            self._add(self.of_counts(*self._counts.tolist()), 1)
            self._counts[:] = 0
        else:
            self.num_inst, self.global_num_inst = int(self._counts.sum()), int(self._global_counts.sum())
            self.sum_metric = self.of_counts(*self._counts.tolist()) * self.num_inst
            self.global_sum_metric = self.of_counts(*self._global_counts.tolist()) * self.global_num_inst

    def _count(self, label: numpy.ndarray, pred: numpy.ndarray) -> None:
        if pred.ndim != 2 or len(pred) != len(label):
            raise ShapeError(
                f"{self.name} needs predictions (N, 2) for N labels, got {pred.shape} for {len(label)}."
            )
        if len(numpy.unique(label)) > 2:
            raise ValueError(f"{self.name} is for two classes, got labels {numpy.unique(label).tolist()}.")
        said, true = numpy.argmax(pred, axis=1) == 1, label == 1
        counts = [int(x.sum()) for x in (said & true, said & ~true, ~said & true, ~said & ~true)]
        self._counts += counts
        self._global_counts += counts


@register
class F1(_Binary):
    """Harmonic mean of precision and recall of class 1 out of two.

    label: N of 0 and 1, in any shape;  pred: (N, 2). `average="macro"`: the mean of each batch's value;
    `"micro"`: the value of all samples together. 0 where nothing is predicted or nothing is there.
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
