"""Metrics that add up one number per batch, possibly later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from .metric_base import check_label_shapes, EvalMetric, fetched
from .tally import DeviceSums, is_there, Operation, Tally


class Measured(EvalMetric):
    """A metric that adds the result of `measure(label, pred)`, of numpy arrays, for each batch.

    `update` adds it now. `update_later` leaves it to the engine if both arrays are NDArrays in one place;
    on a GPU that needs an `operation`, which can then be part of a training step as well. Reading the sums of
    EvalMetric waits for pending ones.
    """

    _tally: Tally

    def measure(self, label: numpy.ndarray, pred: numpy.ndarray) -> tuple[float, int]:
        """(sum, count) of one batch. Raises ShapeError or RangeError."""
        raise NotImplementedError

    def suits(self, label: Any, pred: Any) -> bool:
        """True if arrays of these shapes can be measured; if not, `measure` says why not, at once."""
        return True

    def operation(self, label: Any, pred: Any) -> Operation | None:
        """Equivalent operation on a GPU; None if there is none for such arrays."""
        return None

    def arrays(self, label: Any, pred: Any) -> list[Any]:
        """Arrays that `operation` reads."""
        return [label, pred]

    def operation_on(self, label: Any, pred: Any) -> Operation | None:
        """`operation`, if it is for these shapes and no subclass measures in another way."""
        own = min(map(self._place, ("measure", "distance", "update", "update_dict")))
        if self._place("operation") > own:
            return None
        return self.operation(label, pred) if self.suits(label, pred) else None

    def _place(self, name: str) -> int:
        """Number of classes up the hierarchy to the one that defines `name`."""
        order = type(self).__mro__
        return next((i for i, c in enumerate(order) if name in c.__dict__), len(order))

    def _has_its_own_way(self) -> bool:
        """True if a subclass has overridden the update."""
        return min(self._place("update"), self._place("update_dict")) < self._place("measure")

    def pairs(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """Each label with its prediction. Raises ShapeError, UnknownNameError."""
        preds = list(pred.values()) if self.output_names is None else [pred[n] for n in self.output_names]
        labels = list(label.values()) if self.label_names is None else [label[n] for n in self.label_names]
        return list(zip(*check_label_shapes(labels, preds, True)))

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in zip(*check_label_shapes(labels, preds, True)):
            self._add(*self.measure(fetched(label), fetched(pred)))

    def update_later(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        if self._has_its_own_way():
            self.update_dict(label, pred)
            return
        if self._tally.ask():
            return
        for y, x in self.pairs(label, pred):
            if not self._is_left_to_the_engine(y, x):
                self.update([y], [x])

    def _is_left_to_the_engine(self, label: Any, pred: Any) -> bool:
        """Push the measurement, if that is possible."""
        if is_there(label, "cpu") and is_there(pred, "cpu") and self.suits(label, pred):
            self._tally.add(self.measure, label, pred)
            return True
        if is_there(label, "gpu") and is_there(pred, "gpu") and label.context == pred.context:
            operation = self.operation_on(label, pred)
            if operation is not None:
                self._tally.add_on_gpu(operation, self.arrays(label, pred))
                return True
        return False

    def add_in_steps(self, sums: Sequence[DeviceSums]) -> None:
        """Let training steps add to `sums` from now on, one for each of `pairs`."""
        self._collect()
        self._tally.in_steps = sums
        for s in sums:
            s.begin()

    def leave_steps(self) -> None:
        """Take what the steps have added so far, and stop."""
        try:
            self._collect()
        finally:
            self._tally.in_steps = ()

    def reset(self) -> None:
        if "_tally" in self.__dict__:
            self._tally.drop()
        else:
            self._tally = Tally()
        super().reset()

    def reset_local(self) -> None:
        self._collect()
        super().reset_local()

    def _collect(self) -> None:
        """Add pending results."""
        total, count = self._tally.take()
        if count:
            self._add(total, count)


def _collected(name: str) -> property:
    """A property for a number of EvalMetric that is completed when it is read."""
    mine = f"_{name}"

    def get(self: Measured) -> Any:
        self._collect()
        return self.__dict__[mine]

    def set(self: Measured, value: Any) -> None:
        self.__dict__[mine] = value

    return property(get, set, doc=f"EvalMetric's `{name}`, when all that was pushed has been measured.")


for _name in ("sum_metric", "num_inst", "global_sum_metric", "global_num_inst"):
    setattr(Measured, _name, _collected(_name))
