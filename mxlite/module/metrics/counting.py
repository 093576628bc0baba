"""Metrics that training steps on a GPU accumulate by themselves; see `executor/plan/metrics.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ...core import MXLiteError
from ...executor import Executor
from ...executor.plan.metrics import Counted
from ...graph import Shape
from ...graph.attrs import parse_attrs
from .metric_base import EvalMetric
from .metric_measured import Measured
from .tally import DeviceSums


class Counting:
    """Metrics counted by the steps of one module. `metrics` is the argument for binding its executors."""

    def __init__(self) -> None:
        self.metrics: tuple[Counted, ...] = ()
        self._of: list[tuple[Measured, range]] = []  # metrics, and the places of their pairs in `metrics`
        self._sums: list[DeviceSums] = []

    def plan(self, metric: EvalMetric, labels: Mapping[str, Shape], outputs: Mapping[str, Shape]) -> None:
        """Count what can be counted of `metric`, given the shapes that it will see."""
        names, places = list(labels), list(outputs)
        found: list[Counted] = []
        self._of = []
        for leaf, label, pred in metric.leaves(dict(zip(names, names)), dict(zip(places, places))):
            more = _counted(leaf, label, pred, labels, outputs)
            if more:
                assert isinstance(leaf, Measured)
                self._of.append((leaf, range(len(found), len(found) + len(more))))
                found += more
        self.metrics = tuple(found)

    @contextmanager
    def going_on(self, executor: Any) -> Iterator[None]:
        """Context in which steps count for the metric of `plan`. `executor` gives the current one."""
        self._sums = [DeviceSums(partial(_arrays, executor, i)) for i in range(len(self.metrics))]
        for metric, places in self._of:
            metric.add_in_steps([self._sums[i] for i in places])
        try:
            yield
        except BaseException:
            for metric, _ in self._of:
                try:
                    metric.leave_steps()
                except MXLiteError:
                    pass  # the exception being raised matters more
            raise
        else:
            for metric, _ in self._of:
                metric.leave_steps()
        finally:
            self._sums = []

    def step(self) -> None:
        """Note that a training step is about to be pushed."""
        for sums in self._sums:
            sums.next()

    def other(self) -> None:
        """Note that another pass is about to be pushed, whose outputs are no step's."""
        for sums in self._sums:
            sums.pushed = False


def _arrays(executor: Any, number: int) -> Any:
    found: Executor = executor()
    return found.metric_sums(number)


def _counted(
    leaf: EvalMetric,
    label: Mapping[str, Any],
    pred: Mapping[str, Any],
    labels: Mapping[str, Shape],
    outputs: Mapping[str, Shape],
) -> list[Counted]:
    """All pairs of a metric, or none."""
    if not isinstance(leaf, Measured):
        return []
    try:
        pairs = leaf.pairs(label, pred)
    except (MXLiteError, KeyError):
        return []  # reported when it is updated
    found = []
    for y, x in pairs:
        target = labels[y] if y in labels else outputs[y]
        operation = leaf.operation_on(_of_shape(target), _of_shape(outputs[x]))
        if operation is None:
            return []
        op, given = operation
        reads_label = len(leaf.arrays(y, x)) > 1
        place = list(outputs).index(x)
        found.append(Counted(op, parse_attrs(op, given), place, y if reads_label else None))
    return found


def _of_shape(shape: Shape) -> np.ndarray:
    """An array of this shape, without the bytes of one."""
    return np.broadcast_to(np.float32(0), shape)
