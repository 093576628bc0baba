"""Metrics that add up one number per batch, which need not be there at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from .metric_base import check_label_shapes, EvalMetric, fetched
from .tally import is_there, OnGPU, Tally


class Measured(EvalMetric):
    """A metric whose `measure(label, pred)`, of numpy arrays, is what a batch adds.

    `update` adds it now. `update_later` leaves it to the engine where both arrays are NDArrays in one place;
    on a GPU that needs `kernels`. The sums that EvalMetric keeps wait for what is under way.
    """

    _tally: Tally

    def measure(self, label: numpy.ndarray, pred: numpy.ndarray) -> tuple[float, int]:
        """(sum, count) of one batch. Raises ShapeError or ValueError."""
        raise NotImplementedError

    def suits(self, label: Any, pred: Any) -> bool:
        """Whether arrays of these shapes can be measured; if not, `measure` says why not, at once."""
        return True

    def kernels(self, label: Any, pred: Any) -> OnGPU | None:
        """What does the same on a GPU; None where there is nothing for such arrays."""
        return None

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in zip(*check_label_shapes(labels, preds, True)):
            self._add(*self.measure(fetched(label), fetched(pred)))

    def update_later(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        cls = type(self)
        if cls.update is not Measured.update or cls.update_dict is not EvalMetric.update_dict:
            self.update_dict(label, pred)  # somebody has his own way
            return
        preds = list(pred.values()) if self.output_names is None else [pred[n] for n in self.output_names]
        labels = list(label.values()) if self.label_names is None else [label[n] for n in self.label_names]
        for y, x in zip(*check_label_shapes(labels, preds, True)):
            if not self._is_left_to_the_engine(y, x):
                self.update([y], [x])

    def _is_left_to_the_engine(self, label: Any, pred: Any) -> bool:
        """Push what measures them, if that can be."""
        if is_there(label, "cpu") and is_there(pred, "cpu") and self.suits(label, pred):
            self._tally.add(self.measure, label, pred)
            return True
        if is_there(label, "gpu") and is_there(pred, "gpu") and label.context == pred.context:
            kernels = self.kernels(label.storage, pred.storage) if self.suits(label, pred) else None
            if kernels is not None:
                self._tally.add_on_gpu(kernels, label, pred)
                return True
        return False

    def reset(self) -> None:
        self._tally = Tally()
        super().reset()

    def reset_local(self) -> None:
        self._collect()
        super().reset_local()

    def _collect(self) -> None:
        """Add what is under way."""
        total, count = self._tally.take()
        if count:
            self._add(total, count)


def _collected(name: str) -> property:
    """A number of EvalMetric's that is complete when it is read."""
    mine = f"_{name}"

    def get(self: Measured) -> Any:
        self._collect()
        return self.__dict__[mine]

    def set(self: Measured, value: Any) -> None:
        self.__dict__[mine] = value

    return property(get, set)


for _name in ("sum_metric", "num_inst", "global_sum_metric", "global_num_inst"):
    setattr(Measured, _name, _collected(_name))
