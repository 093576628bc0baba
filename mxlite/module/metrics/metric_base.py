"""Metrics: quality of predictions, accumulated over batches.

`update(labels, preds)` takes lists of arrays, one per output; each is fetched once. `get()` is the mean since
`reset` or `reset_local`, `get_global()` since `reset` alone: so a log line every 50 batches can show those 50
and the epoch's line all of them. Without data both give nan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy

from ...core.errors import MissingMethodError, ShapeError, UnknownNameError
from ...core.wanted import wanted, wanted_function
from ...ndarray import NDArray
from ..registry import Registry

Class = TypeVar("Class", bound=type)
Leaf = tuple["EvalMetric", Mapping[str, Any], Mapping[str, Any]]

_SIZED = {True: ("an array", ("shape",)), False: ("a list of arrays", ("__len__",))}


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> tuple[Any, Any]:
    """ShapeError unless labels and predictions are equally many (`shape`: of one shape).

    With `wrap` single arrays become lists of one.
    """
    if wrap:
        labels, preds = (x if isinstance(x, (list, tuple)) else [x] for x in (labels, preds))
    what, has = _SIZED[shape]
    wanted("A metric's labels", labels, what, has=has)
    wanted("A metric's predictions", preds, what, has=has)
    found = (tuple(labels.shape), tuple(preds.shape)) if shape else (len(labels), len(preds))
    if found[0] != found[1]:
        what = "shape" if shape else "number"
        raise ShapeError(f"The {what} of labels, {found[0]}, is not the {what} of predictions, {found[1]}.")
    return labels, preds


class EvalMetric:
    """Base of all metrics: a sum and a count, since the last `reset_local` and since the last `reset`.

    A subclass calls `_add(sum, count)` in `update`. `output_names` and `label_names` choose what
    `update_dict` passes on.
    """

    def __init__(
        self,
        name: str,
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = str(name)
        self.output_names = output_names
        self.label_names = label_names
        # Metrics of users that keep sums of their own leave this out: for them global means local.
        self._has_global_stats = kwargs.pop("has_global_stats", False)
        self._kwargs = kwargs
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def get_config(self) -> dict[str, Any]:
        """Name and arguments, as `create` takes them."""
        return {
            **self._kwargs,
            "metric": type(self).__name__,
            "name": self.name,
            "output_names": self.output_names,
            "label_names": self.label_names,
        }

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        """`update` with the arrays of the chosen names, or all in their order."""
        wanted("update_dict: label", label, "a dict of names and arrays", Mapping)
        wanted("update_dict: pred", pred, "a dict of names and arrays", Mapping)
        preds = list(pred.values()) if self.output_names is None else [pred[n] for n in self.output_names]
        labels = list(label.values()) if self.label_names is None else [label[n] for n in self.label_names]
        self.update(labels, preds)

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch: lists of as many labels as predictions."""
        raise MissingMethodError(f"{type(self).__name__} must define update(labels, preds).")

    def update_later(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        """As `update_dict`, but it may complete after the return: a request for the value waits."""
        self.update_dict(label, pred)

    def leaves(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> list[Leaf]:
        """The metrics that this one is composed of, with the arrays that each is given."""
        return [(self, label, pred)]

    def _add(self, total: float, count: int) -> None:
        self.sum_metric += total
        self.global_sum_metric += total
        self.num_inst += count
        self.global_num_inst += count

    def reset(self) -> None:
        """Forget everything."""
        self.global_num_inst = 0
        self.global_sum_metric = 0.0
        self.reset_local()

    def reset_local(self) -> None:
        """Reset the values of `get`, keep those of `get_global`."""
        self.num_inst = 0
        self.sum_metric = 0.0

    def _value(self, total: float, count: int) -> float:
        return float(total / count) if count else math.nan

    def get(self) -> tuple[Any, Any]:
        """(name, value), or lists of both."""
        return self.name, self._value(self.sum_metric, self.num_inst)

    def get_global(self) -> tuple[Any, Any]:
        """As `get`, over everything since `reset`."""
        if not self._has_global_stats:
            return self.get()
        return self.name, self._value(self.global_sum_metric, self.global_num_inst)

    def get_name_value(self) -> list[tuple[str, float]]:
        """[(name, value), ...]"""
        return _pairs(*self.get())

    def get_global_name_value(self) -> list[tuple[str, float]]:
        """[(name, value), ...] over everything since `reset`."""
        return _pairs(*self.get_global())


def _pairs(names: Any, values: Any) -> list[tuple[str, float]]:
    return list(
        zip(
            names if isinstance(names, list) else [names],
            values if isinstance(values, list) else [values],
        )
    )


metrics_by_name: Registry[EvalMetric] = Registry("metric", EvalMetric)


def register(cls: Class) -> Class:
    """Class decorator: make a metric known by its lower-case name."""
    return metrics_by_name.register(cls)


def create(metric: Any, *args: Any, **kwargs: Any) -> EvalMetric:
    """A metric from a name, a function `f(label, pred)` of numpy arrays, a metric, or a list of such."""
    if callable(metric):
        return CustomMetric(metric, *args, **kwargs)
    if isinstance(metric, (list, tuple)):
        composite = CompositeEvalMetric()
        for child in metric:
            composite.add(create(child, *args, **kwargs))
        return composite
    return metrics_by_name.create(metric, *args, **kwargs)


def np(
    numpy_feval: Callable[..., Any], name: str | None = None, allow_extra_outputs: bool = False
) -> CustomMetric:
    """A metric from a function `f(label, pred)` of numpy arrays that gives a number or (sum, count)."""
    return CustomMetric(numpy_feval, name, allow_extra_outputs)


@metrics_by_name.alias("composite")
@register
class CompositeEvalMetric(EvalMetric):
    """Several metrics at once."""

    def __init__(
        self,
        metrics: Sequence[Any] | None = None,
        name: str = "composite",
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        self.metrics: list[EvalMetric] = []
        super().__init__(name, output_names, label_names, has_global_stats=True)
        if metrics is not None:
            wanted("CompositeEvalMetric: metrics", metrics, "a list of metrics", list, tuple)
        self.metrics += [create(m) for m in metrics or ()]

    def add(self, metric: Any) -> None:
        """Add a metric."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """The metric of that number."""
        try:
            return self.metrics[index]
        except IndexError:
            raise UnknownNameError(
                f"There is no metric {index}: the composite has {len(self.metrics)}."
            ) from None

    def update_dict(self, labels: Mapping[str, Any], preds: Mapping[str, Any]) -> None:
        labels, preds = self._chosen(labels, preds)
        for metric in self.metrics:
            metric.update_dict(labels, preds)

    def update_later(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        label, pred = self._chosen(label, pred)
        for metric in self.metrics:
            metric.update_later(label, pred)

    def leaves(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> list[Leaf]:
        label, pred = self._chosen(label, pred)
        return [leaf for metric in self.metrics for leaf in metric.leaves(label, pred)]

    def _chosen(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> tuple[Any, Any]:
        """The arrays of the chosen names."""
        if self.label_names is not None:
            label = {k: v for k, v in label.items() if k in self.label_names}
        if self.output_names is not None:
            pred = {k: v for k, v in pred.items() if k in self.output_names}
        return label, pred

    def update(self, labels: Any, preds: Any) -> None:
        for metric in self.metrics:
            metric.update(labels, preds)

    def reset(self) -> None:
        for metric in self.metrics:
            metric.reset()

    def reset_local(self) -> None:
        for metric in self.metrics:
            metric.reset_local()

    def get(self) -> tuple[list[str], list[float]]:
        pairs = [p for m in self.metrics for p in m.get_name_value()]
        return [n for n, _ in pairs], [v for _, v in pairs]

    def get_global(self) -> tuple[list[str], list[float]]:
        pairs = [p for m in self.metrics for p in m.get_global_name_value()]
        return [n for n, _ in pairs], [v for _, v in pairs]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "metrics": [m.get_config() for m in self.metrics]}


@metrics_by_name.alias("custom")
@register
class CustomMetric(EvalMetric):
    """Mean of `feval(label, pred)` over batches and outputs.

    `feval` gets numpy arrays and gives a number, or (sum, count).
    Without `allow_extra_outputs` there must be as many labels as outputs; with it the rest is left out.
    """

    def __init__(
        self,
        feval: Callable[..., Any],
        name: str | None = None,
        allow_extra_outputs: bool = False,
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        if name is None:
            name = getattr(feval, "__name__", type(feval).__name__)
            if "<" in name:
                name = f"custom({name})"
        super().__init__(
            name,
            output_names,
            label_names,
            feval=feval,
            allow_extra_outputs=allow_extra_outputs,
            has_global_stats=True,
        )
        self._feval = wanted_function("CustomMetric: feval", feval)
        self._allow_extra_outputs = allow_extra_outputs

    def update(self, labels: Any, preds: Any) -> None:
        if not self._allow_extra_outputs:
            labels, preds = check_label_shapes(labels, preds, True)
        for label, pred in zip(labels, preds):
            value = self._feval(fetched(label), fetched(pred))
            self._add(*value) if isinstance(value, tuple) else self._add(value, 1)

    def get_config(self) -> dict[str, Any]:
        raise MissingMethodError(f"A function has no configuration: {self.name!r} cannot be written down.")


def fetched(array: Any) -> numpy.ndarray:
    """The array as numpy's; waits for it."""
    if hasattr(array, "asnumpy"):
        return array.asnumpy()
    found = numpy.asarray(array)
    if found.dtype.kind not in "biufV":
        wanted("A label or prediction", array, "an array of numbers", NDArray)
    return found
