"""Modules whose computation is written in Python, to stand between others in a SequentialModule."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core import BindError, StateError
from ..core.errors import ArgumentError, MissingMethodError
from ..io import DataDesc
from ..ndarray import array, NDArray
from .base_module import BaseModule, BindArguments


class PythonModule(BaseModule):
    """A module without parameters. A subclass has `forward`, `backward`, `get_outputs`, `get_input_grads` and
    `_compute_output_shapes`.
    """

    def __init__(
        self,
        data_names: Sequence[str],
        label_names: Sequence[str] | None,
        output_names: Sequence[str],
        logger: Any = logging,
    ) -> None:
        super().__init__(logger)
        self._data_names = list(data_names)
        self._label_names = list(label_names or ())
        self._output_names = list(output_names)
        self._data_shapes: Any = None
        self._label_shapes: Any = None
        self._output_shapes: Any = None

    @property
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        """Names of the labels that a batch feeds."""
        return self._label_names

    @property
    def output_names(self) -> list[str]:
        return self._output_names

    @property
    def data_shapes(self) -> Any:
        return self._data_shapes

    @property
    def label_shapes(self) -> Any:
        return self._label_shapes

    @property
    def output_shapes(self) -> Any:
        """(name, shape) of each output."""
        return self._output_shapes

    def _bind(self, b: BindArguments) -> None:
        """Record the shapes; there is nothing to allocate."""
        if b.grad_req != "write":
            raise BindError(
                f"{type(self).__name__} writes its gradients; grad_req {b.grad_req!r} is not for it."
            )
        self._check_names("data", b.data_shapes, self._data_names)
        if b.label_shapes:
            self._check_names("label", b.label_shapes, self._label_names)
        self.for_training = b.for_training
        self.inputs_need_grad = b.inputs_need_grad
        self._data_shapes = b.data_shapes
        self._label_shapes = b.label_shapes
        self._output_shapes = self._compute_output_shapes()
        self.binded = True
        self.params_initialized = True  # it has none

    def _check_names(self, kind: str, shapes: Any, names: Sequence[str]) -> None:
        found = [s[0] for s in shapes]
        if found != list(names):
            raise BindError(f"bind: {kind}_shapes are of {found}, but this module's {kind} is {list(names)}.")

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        raise MissingMethodError(f"{type(self).__name__} must define _compute_output_shapes().")

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Two empty dicts."""
        return {}, {}

    def init_params(self, *args: Any, **options: Any) -> None:
        """Do nothing: there are no parameters."""

    def set_params(
        self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray], *args: Any, **options: Any
    ) -> None:
        """Do nothing: there are no parameters."""

    def init_optimizer(self, *args: Any, **options: Any) -> None:
        """Do nothing: there is nothing to update."""
        self.optimizer_initialized = True

    def update(self) -> None:
        """Do nothing: there is nothing to update."""

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Let the metric see the outputs, if the module was bound with labels."""
        if self._label_shapes is not None:
            eval_metric.update(labels, self.get_outputs())


class PythonLossModule(PythonModule):
    """A loss whose gradient is `grad_func(scores, labels)`: an NDArray, or numbers for one.

    Its output is the scores, as they come in. A subclass may define `_backward_impl` instead.
    """

    def __init__(
        self,
        name: str = "pyloss",
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] = ("softmax_label",),
        logger: Any = logging,
        grad_func: Callable[[NDArray, NDArray], Any] | None = None,
    ) -> None:
        super().__init__(data_names, label_names, [f"{name}_output"], logger)
        for kind, names in (("data", data_names), ("label", label_names)):
            if len(names) != 1:
                raise BindError(f"PythonLossModule has one {kind} name, got {list(names)}.")
        if grad_func is not None and not callable(grad_func):
            raise ArgumentError(f"PythonLossModule: grad_func is a function, got {grad_func!r}.")
        self._name = name
        self._scores: Any = None
        self._labels: Any = None
        self._scores_grad: Any = None
        self._grad_func = grad_func

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        data = DataDesc(*self._data_shapes[0][:2])
        return [(f"{self._name}_output", data.shape)]

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Take the scores, and for training the labels."""
        self._scores = data_batch.data[0]
        if self.for_training if is_train is None else is_train:
            self._labels = data_batch.label[0]

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """The scores."""
        return [self._scores] if merge_multi_context else [[self._scores]]

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradient of the scores."""
        if out_grads is not None:
            raise StateError("PythonLossModule.backward: a loss takes no out_grads.")
        if not self.for_training:
            raise StateError("PythonLossModule.backward: this module was bound with for_training=False.")
        self._backward_impl()

    def _backward_impl(self) -> None:
        """Set `_scores_grad`."""
        if self._grad_func is None:
            raise MissingMethodError("PythonLossModule: give grad_func, or define _backward_impl().")
        grad = self._grad_func(self._scores, self._labels)
        self._scores_grad = grad if isinstance(grad, NDArray) else array(np.asarray(grad))

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """The gradient of the scores."""
        return [self._scores_grad] if merge_multi_context else [[self._scores_grad]]
