"""Inference between training steps, for batches of other shapes, such as those of a validation set.

A training step for such a batch, of which only the forward pass would be run, may take many times the
memory. So programs for inference alone are bound for it, in the group of the module's steps: the same
parameters, one arena, one budget.

    steps for (32, ...)        |forward|backward|update|
    inference for (256, ...)                            |forward|forward|forward|
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..executor import ExecutorGroup
from ..io import DataDesc
from .binding import Binding

Shapes = tuple[Any, Any]  # of data and of labels


class Evaluation:
    """The programs for inference alone of one module. `training` is always the binding of its steps.

    `declared` are shapes that will come, which plans count before they do.
    """

    def __init__(self) -> None:
        self.declared: Shapes | None = None
        self._owner = object()  # key in the group, also before there is a binding
        self._binding: Binding | None = None
        self._goes_on = self._was_declared = False

    def present(self, training: Binding) -> Binding:
        """The binding whose program ran last."""
        return self._binding if self._goes_on and self._binding is not None else training

    def begin(self) -> None:
        """Start over: `training` is a new binding, in another group."""
        self._binding, self.declared = None, None
        self._goes_on = self._was_declared = False

    def expect(self, training: Binding, shapes: Shapes, group: ExecutorGroup, steps: Shapes) -> None:
        """Let a group count the program for these shapes, where `steps`, of training, have others."""
        if (other := other_shapes(steps, *shapes)) is not None:
            self._made(training, group).expect(*other, None)

    def begin_anew(self, training: Binding, shapes: Shapes | None) -> None:
        """Declare `shapes` in place of the former ones, whose programs stay as long as there is room."""
        self.declared, self._was_declared = shapes, False
        self.rest(training)
        training.group.rest(self._owner)

    def has(self, data_shapes: Any, label_shapes: Any) -> bool:
        """True if there is a program for these shapes."""
        return self._binding is not None and self._binding.has(data_shapes, label_shapes)

    def forget(self, group: ExecutorGroup) -> None:
        """Withdraw the declaration: the program does not come, or exists already."""
        self.declared = None
        group.forget(self._owner)

    def bind(self, training: Binding, shapes: Shapes) -> None:
        """Bind the program for these shapes, ahead of its first batch."""
        if (other := other_shapes(training.shapes, *shapes)) is not None:
            self.use(training, *other)
            self._was_declared = True
            self.rest(training)

    def use(self, training: Binding, data_shapes: Any, label_shapes: Any) -> None:
        """Run inference for these shapes from now on. Nothing changes if that fails."""
        if self._binding is None:
            self._binding = self._made(training, training.group)
        self._binding.use(data_shapes, label_shapes, None)
        self._goes_on = True
        training.hide()

    def rest(self, training: Binding) -> None:
        """Return to steps. A declared program stays, others are cached as long as there is room."""
        if self._goes_on and self._binding is not None:
            self._goes_on = False
            self._binding.rest(self._was_declared)
            training.show()

    def turn_to(self, training: Binding, shapes: Shapes, batch: Any, feed: Mapping[str, Any]) -> None:
        """Run inference on a batch of these shapes, which are not those of the present steps."""
        if not self._goes_on or self.present(training).other_shapes(batch, feed) is not None:
            self.use(training, *shapes)

    def leave(self) -> None:
        """Drop all programs."""
        if self._binding is not None:
            self._binding.leave()
        self._binding = None
        self._goes_on = self._was_declared = False

    def _made(self, training: Binding, group: ExecutorGroup) -> Binding:
        new = training.anew()
        new.forward_only = True
        new.metrics, new.others = (), None
        new.group, new.owner = group, self._owner
        new.grad_req, new.inputs_need_grad = training.grad_req, training.inputs_need_grad
        new.data_shapes, new.label_shapes = training.data_shapes, training.label_shapes
        return new


def other_shapes(bound: Shapes, data: Any, labels: Any) -> Shapes | None:
    """Shapes that an iterator provides under the names of the `bound` ones; None if they are the same.

    Batches are fed in order, whatever their iterator calls them; a missing label gets the batch's length.
    """
    have, more = bound
    data, labels = [_desc(d) for d in data], [_desc(d) for d in labels or ()][: len(more)]
    if more and not labels and data:
        labels = [DataDesc(d.name, (data[0].shape[0], *d.shape[1:]), d.dtype) for d in more]
    if len(data) != len(have) or len(labels) != len(more):
        return None  # reported when the first of them is fed
    pairs = [*zip(data, have), *zip(labels, more)]
    if all(tuple(d.shape) == tuple(h.shape) for d, h in pairs):
        return None
    found = [DataDesc(h.name, d.shape, d.dtype, d.layout) for d, h in pairs]
    return found[: len(data)], found[len(data) :]


def shapes_of(eval_data: Any) -> Shapes:
    """Data and label shapes of an iterator."""
    return eval_data.provide_data, getattr(eval_data, "provide_label", None)


def _desc(described: Any) -> DataDesc:
    return described if isinstance(described, DataDesc) else DataDesc(*described)
