"""The executors of one module: that for the shapes of the present batch, and those kept for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..core import BindError, Context, nearest, StateError
from ..core.errors import MemoryBudgetError
from ..executor import Executor, ExecutorGroup, Place, simple_bind
from ..executor.amp import LossScale as Asked
from ..executor.metrics import Counted
from ..executor.offload import Offload
from ..executor.watch import Watch
from ..io import DataDesc
from ..memplan import Device


class Binding:
    """A symbol's executors, one for each set of input shapes, in a group of which other modules may be part.

    `executor` is the present one. `data_shapes` and `label_shapes` are what it was bound for.
    """

    def __init__(
        self,
        symbol: Any,
        context: Context,
        data_names: Sequence[str],
        label_names: Sequence[str],
        fixed: Sequence[str],
        amp: Any,
    ) -> None:
        self.symbol = symbol
        self.context = context
        self.data_names = list(data_names)
        self.label_names = list(label_names)
        self.fixed = list(fixed)
        self.amp = amp
        self.owner = object()  # a name in the group, which then does not keep this alive
        self.group = ExecutorGroup()
        self.data_shapes: list[DataDesc] = []
        self.label_shapes: list[DataDesc] = []
        self.grad_req: Any = "write"
        self.inputs_need_grad = False
        self.optimizer: Any = None  # whose update is part of the step
        self.plan_gradients = False
        self.bounded = True
        self.device: Device | str | None = None
        self.offload: Offload = None
        self.streams = 1
        self.metrics: tuple[Counted, ...] = ()  # that training steps add to
        self.monitor: Any = None
        self._shown: Executor | None = None  # to the monitor
        self._executor: Executor | None = None

    @property
    def executor(self) -> Executor:
        if self._executor is None:
            raise StateError("call bind first: this module has no arrays yet.")
        return self._executor

    @property
    def is_bound(self) -> bool:
        return self._executor is not None

    @property
    def parameters(self) -> list[str]:
        """Arguments that are no inputs."""
        inputs = {*self.data_names, *self.label_names}
        return [n for n in self.symbol.list_arguments() if n not in inputs]

    def use(self, data_shapes: Any, label_shapes: Any, loss_scale: Asked | None) -> None:
        """Have an executor for these shapes, a kept or a new one. Nothing changes if that fails."""
        data = self._described(data_shapes, self.data_names, "data")
        labels = self._described(label_shapes, self.label_names, "label") if label_shapes else []
        found = self.group.get(self.owner, _key(data, labels))
        self._executor = found or self._made(data, labels, loss_scale)
        self.data_shapes, self.label_shapes = data, labels
        self._show()

    def remake(self, loss_scale: Asked | None) -> None:
        """The executor anew, after `optimizer` or `plan_gradients` have changed; those for other shapes
        are given up.
        """
        self.group.drop(self.owner, _key(self.data_shapes, self.label_shapes))
        self._executor = self._made(self.data_shapes, self.label_shapes, loss_scale)
        self._show()

    def _show(self) -> None:
        """Let the monitor see the present executor, and no longer the one before."""
        if self.monitor is None:
            return
        seen = getattr(self.monitor, "exes", [])
        if self._shown in seen:
            seen.remove(self._shown)
        self.monitor.install(self.executor)
        self._shown = self._executor

    @property
    def _watch(self) -> Watch | None:
        """What the monitor wants to see."""
        if self.monitor is None:
            return None
        pattern = getattr(self.monitor, "re_prog", None)
        wants_all = bool(getattr(self.monitor, "monitor_all", False))
        return Watch(".*" if pattern is None else pattern.pattern, wants_all)

    def leave(self) -> None:
        """Give up all executors; the arrays that others share stay."""
        self.group.drop(self.owner)
        self._executor = None

    def _described(self, shapes: Any, names: list[str], kind: str) -> list[DataDesc]:
        bound = {d.name: d.dtype for d in (*self.data_shapes, *self.label_shapes)}
        try:
            descs = [s if isinstance(s, DataDesc) else DataDesc(*s) for s in shapes]
        except TypeError:
            raise BindError(
                f"bind: {kind}_shapes must be a list of DataDesc or (name, shape), got {shapes!r}."
            ) from None
        for d, given in zip(descs, shapes):
            if not isinstance(given, DataDesc) and len(given) == 2 and d.name in bound:
                d.dtype = bound[d.name]
        known = {*self.label_names, *self.data_names}
        found = [d.name for d in descs]
        for name in names:
            if name not in found:
                raise BindError(f"bind: {kind}_shapes lacks {name!r}; it has {found}.{nearest(name, found)}")
        for d in descs:
            if d.name not in known and kind == "data":
                raise BindError(
                    f"bind: {kind}_shapes has {d.name!r}, but the module's {kind} names are {names}."
                )
        return [d for d in descs if d.name in known]

    def _made(self, data: list[DataDesc], labels: list[DataDesc], loss_scale: Asked | None) -> Executor:
        requests: dict[str, str] = {}
        if self.plan_gradients:
            single = self.grad_req if isinstance(self.grad_req, str) else None
            listed = self.grad_req if isinstance(self.grad_req, Mapping) else {}
            if isinstance(self.grad_req, (list, tuple)):
                listed = dict(zip(self.symbol.list_arguments(), self.grad_req))
            for n in self.parameters:
                requests[n] = "null" if n in self.fixed else single or listed.get(n, "null")
            if self.inputs_need_grad:
                requests |= dict.fromkeys(self.data_names, "write")
        descs = [*data, *labels]
        shapes = {d.name: tuple(d.shape) for d in descs}
        types = {d.name: np.dtype(d.dtype) for d in descs}
        arrays = {}
        if self._executor is not None:
            have = self._executor.arg_dict
            arrays = {n: have[n] for n, s in shapes.items() if n in have and have[n].shape == s}
            arrays = {n: a for n, a in arrays.items() if np.dtype(a.dtype) == types[n]}
        bind = partial(
            simple_bind,
            self.symbol.graph,
            self.context,
            shapes,
            grad_req=requests or "null",
            type_dict=types,
            optimizer=self.optimizer,
            arrays=arrays if (data, labels) == (self.data_shapes, self.label_shapes) else {},
            amp=self.amp,
            loss_scale=loss_scale,
            device=self.device,
            offload=self.offload,
            streams=self.streams,
            watch=self._watch,
            place=Place(self.group, self.owner, _key(data, labels), self.bounded),
        )
        try:
            return bind(metrics=self.metrics)
        except MemoryBudgetError:
            if not self.metrics:
                raise
            return bind()  # a budget without room for their sums


def _key(data: Sequence[DataDesc], labels: Sequence[DataDesc]) -> tuple[Any, ...]:
    return tuple((d.name, tuple(d.shape), str(np.dtype(d.dtype))) for d in (*data, *labels))
