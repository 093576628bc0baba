"""A symbol bound on several devices of this process, each of which runs a part of every batch.

    batch  -> part 0 -> executor on cpu(0) -> gradients --+
           -> part 1 -> executor on cpu(1) -> gradients --+-> sum, in order -> update -> parameters
                              ^                                                              |
                              +------------------- copies, where they have changed ----------+

Each device has a binding of its own: parameters, a plan, an arena, a budget, workers of the engine and its
share of the threads. The first one has the optimizer's states as well, and the parameters that users see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any
from weakref import WeakKeyDictionary

from ..backends import backend_of
from ..core import Context, MemoryBudgetError
from ..dist import add_devices
from ..engine import Var
from ..executor import Executor, ExecutorGroup
from ..executor.request.amp import LossScale as Asked
from ..graph import Shape
from ..io import DataDesc
from ..ndarray import NDArray
from .argument_names import ArgumentNames
from .batch_parts import BatchParts
from .binding import Binding, Shapes

_OPTIONS = (
    "grad_req",
    "inputs_need_grad",
    "optimizer",
    "plan_gradients",
    "waits",
    "narrow_params",
    "forward_only",
    "monitor",
    "owner",
    "options",
)

_copied: WeakKeyDictionary[Var, int] = WeakKeyDictionary()
"""How often a parameter or state of a first device had been written when the other devices had it, too."""


class ParallelBinding(Binding):
    """Bindings on several devices, used as one: shapes, samples and batches are those of whole batches.

    `executor`, `arg_dict` and `group` are those of the first device.
    """

    def __init__(
        self,
        symbol: Any,
        contexts: Sequence[Context],
        work_loads: Sequence[float],
        names: ArgumentNames,
        **options: Any,
    ) -> None:
        super().__init__(symbol, contexts[0], names, **options)
        self._contexts, self._work_loads = contexts, work_loads
        self._bindings = [Binding(symbol, c, names, **options) for c in contexts]
        self.group.peers = [ExecutorGroup() for _ in contexts[1:]]
        for group, context in zip(self.group.peers, contexts[1:]):
            group.lane = str(context)
        self._parts = BatchParts(len(contexts), [1] * len(contexts))  # until it is bound
        self._coming: Shapes = [], []  # whole batches of what is being bound
        self._is_summed = True

    def _unbound(self) -> Binding:
        return ParallelBinding(self.symbol, self._contexts, self._work_loads, self.names, **self.options)

    # -- what it is ----------------------------------------------------------------------------

    @property
    def devices(self) -> list[Binding]:
        for binding, group in zip(self._bindings, self.group.of_devices):
            for name in _OPTIONS:
                setattr(binding, name, getattr(self, name))
            binding.group = group
        self._bindings[0].others = None if self.others is None else self._expect_whole
        return self._bindings

    @property
    def executors(self) -> list[Executor]:
        devices = self.devices
        if all(binding.has_program for binding in devices):
            return [binding.executor for binding in devices]
        with self._share_of_threads():
            return [binding.executor for binding in devices]

    @property
    def executor(self) -> Executor:
        return self.executors[0]

    @property
    def parts(self) -> BatchParts:
        return self._parts

    @property
    def planned_bytes(self) -> int:
        return self.devices[0].planned_bytes

    @property
    def is_fused(self) -> bool:
        return False

    @property
    def arg_dict(self) -> dict[str, NDArray]:
        return self._bindings[0].arg_dict

    @property
    def aux_dict(self) -> dict[str, NDArray]:
        return self._bindings[0].aux_dict

    @property
    def mean_aux_dict(self) -> dict[str, NDArray]:
        self._follow()
        return {name: _mean([b.aux_dict[name] for b in self._bindings]) for name in self.aux_dict}

    def refresh_masters(self) -> None:
        for binding in self._bindings:
            binding.refresh_masters()

    @property
    def output_shapes(self) -> list[Shape]:
        found = []
        for shapes, axis in zip(zip(*(b.output_shapes for b in self.devices)), self.output_axes):
            whole = list(shapes[0])
            if 0 <= axis < len(whole):
                whole[axis] = sum(s[axis] for s in shapes)
            found.append(tuple(whole))
        return found

    def _share_of_threads(self) -> AbstractContextManager[None]:
        """Context in which kernels are made for one of these devices, which share the cores."""
        backend = backend_of(self.context)
        return backend.running(max(1, backend.threads() // len(self._bindings)))

    # -- bind ----------------------------------------------------------------------------------

    def use(self, data_shapes: Any, label_shapes: Any, loss_scale: Asked | None) -> None:
        data, labels = self._descriptions(data_shapes, label_shapes)
        parts, before = self._parts_of(data), self.shapes
        self._coming = data, labels
        done: list[Binding] = []
        try:
            with self._share_of_threads():
                for i, binding in enumerate(self.devices):
                    binding.use(parts.described(data, i), parts.described(labels, i), loss_scale)
                    done.append(binding)
        except BaseException:
            for i, binding in enumerate(done if before[0] else ()):
                with suppress(MemoryBudgetError):
                    was = [self._parts.described(d, i) for d in before]
                    binding.use(was[0], was[1], loss_scale)
            raise
        self._parts = parts
        self.data_shapes, self.label_shapes = data, labels

    def has(self, data_shapes: Any, label_shapes: Any) -> bool:
        data, labels = self._descriptions(data_shapes, label_shapes)
        parts = self._parts_of(data)
        return all(
            b.has(parts.described(data, i), parts.described(labels, i)) for i, b in enumerate(self.devices)
        )

    def rest(self, stays: bool) -> None:
        for binding in self.devices:
            binding.rest(stays)

    def expect(self, data_shapes: Any, label_shapes: Any, loss_scale: Asked | None) -> None:
        data, labels = self.data_shapes, self.label_shapes = self._descriptions(data_shapes, label_shapes)
        self._parts = parts = self._parts_of(data)
        with self._share_of_threads():
            for i, binding in enumerate(self.devices):
                binding.expect(parts.described(data, i), parts.described(labels, i), loss_scale)

    def _expect_whole(self, group: ExecutorGroup, steps: Shapes) -> None:
        assert self.others is not None
        self.others(group, self._coming)

    def remake(self, loss_scale: Asked | None) -> None:
        self._coming = self.shapes
        with self._share_of_threads():
            for binding in self.devices:
                binding.remake(loss_scale)

    def train_with(self, optimizer: Any, loss_scale: Asked | None) -> None:
        self._coming = self.shapes
        with self._share_of_threads():
            for binding in self.devices:
                binding.train_with(optimizer, loss_scale)
        self.optimizer, self.plan_gradients, self.waits, self.forward_only = optimizer, True, False, False

    def show(self) -> None:
        for binding in self.devices:
            binding.show()

    def hide(self) -> None:
        for binding in self.devices:
            binding.hide()

    def leave(self) -> None:
        for binding in self.devices:
            binding.leave()

    def _parts_of(self, data: Sequence[DataDesc]) -> BatchParts:
        return BatchParts(self.samples_of(data), self._work_loads)

    # -- run -----------------------------------------------------------------------------------

    def forward(self, feed: Mapping[str, Any], is_train: bool) -> None:
        for executor, part in self._fed(feed):
            executor.forward(is_train=is_train, **part)
        self._have_states()

    def forward_backward(self, feed: Mapping[str, Any]) -> None:
        self._is_summed = False
        for executor, part in self._fed(feed):
            executor.forward_backward(**part)
        self._have_states()

    def backward(self, out_grads: Any) -> None:
        self._is_summed = False
        heads = [out_grads] if isinstance(out_grads, NDArray) else list(out_grads or ())
        for i, executor in enumerate(self.executors):
            cut = [self._parts.cut(g, axis, i) for g, axis in zip(heads, self.output_axes)]
            executor.backward(cut or None)
        self._have_states()

    def sum_gradients(self) -> None:
        if self._is_summed:
            return
        self._is_summed = True
        requests, executors = self._requests(), self.executors
        for name in self.names.parameters:
            grads = [g for e in executors if (g := e.grad_dict[name]) is not None]
            if not grads:
                continue
            add_devices(grads[0], grads[1:])
            if requests[name] == "add":  # the next pass adds to the sum
                for other in grads[1:]:
                    other[:] = 0

    def _fed(self, feed: Mapping[str, Any]) -> Iterator[tuple[Executor, dict[str, Any]]]:
        """Each device's executor with its part of the inputs, after it has the parameters of the first."""
        executors = self.executors
        self._follow()
        axes = {d.name: DataDesc.get_batch_axis(d.layout) for d in (*self.data_shapes, *self.label_shapes)}
        scale = executors[0].loss_scale
        for i, executor in enumerate(executors):
            if scale is not None and executor.loss_scale != scale:
                executor.loss_scale = scale
            yield executor, {n: self._parts.cut(a, axes.get(n, 0), i) for n, a in feed.items()}

    def _follow(self) -> None:
        """Give all devices the parameters and states of the first that have been written since they had them.

        States that passes have written are each device's own.
        """
        first, *others = self._bindings
        for named in ("arg_dict", "aux_dict"):
            have, arrays = getattr(first, named), [getattr(b, named) for b in others]
            for name in self.names.parameters if named == "arg_dict" else have:
                source = have[name]
                if _copied.get(source.var) != source.var.pushes:
                    for theirs in arrays:
                        source.copyto(theirs[name])
                    _copied[source.var] = source.var.pushes

    def average_states(self) -> None:
        for name, mean in self.mean_aux_dict.items():
            mean.copyto(self.aux_dict[name])

    def _have_states(self) -> None:
        """Note that passes, not users, have written the states."""
        for state in self._bindings[0].aux_dict.values():
            _copied[state.var] = state.var.pushes


def _mean(arrays: Sequence[NDArray]) -> NDArray:
    """The mean of the devices' arrays, a copy."""
    total = arrays[0].copy()
    add_devices(total, arrays[1:])
    return total / len(arrays)
