"""Module: a symbol with its data names, parameters and optimizer, trained on one device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ..core import (
    BindError,
    Context,
    current_context,
    MXLiteError,
    nearest,
    OpAttributeError,
    parse_bytes,
    replacing,
    ShapeError,
    StateError,
)
from ..executor import Executor
from ..executor.amp import amp_dtype
from ..executor.offload import Offload
from ..formats import load_params, save_params
from ..io import DataDesc
from ..memplan import Device, MemoryPlan
from ..memplan.device import device_of
from ..ndarray import NDArray
from ..symbol import load as load_symbol
from . import kvstore as kvstores, optimizer as optimizers, resume, states
from .base_module import BaseModule
from .binding import Binding
from .counting import Counting
from .initializer import InitDesc, Uniform
from .loss_scale import are_finite, LossScale
from .metric_base import EvalMetric
from .updater import get_updater, Updater


class Module(BaseModule):
    """A trainable symbol.

    `memory_budget` (bytes or text such as "512MiB") bounds everything this module owns on its device:
    parameters, gradients, states, optimizer states, inputs, outputs, activations, workspaces;
    `memory_plan` shows it.

    `offload` ("auto", or bytes): within the budget, arrays that backward needs may wait in host memory; on
    mx.cpu() a simulation that saves nothing.

    `fused_update`: whether the optimizer's update is part of the planned step, so that each gradient's
    bytes are free again right after its update. None: `fit` fuses, hand-written loops of forward,
    backward and update do not (they can look at gradients). When fused, `forward_backward` runs the
    whole step and `update` finishes it.

    `amp`: 'bfloat16' or 'float16' for mixed precision (docs/mixed_precision.md); parameters stay float32.
    `loss_scale`: a number, or 'dynamic', that 16-bit gradients are multiplied with while they are 16-bit; an
    update whose gradients are not all finite is skipped, and 'dynamic' then halves the scale. bfloat16
    needs none. With float16 and none, gradients of 16-bit results below 6e-8 count as 0. All gradients are
    looked at before the first update, so with a loss scale they all live until then.

    `device`: what the plan's seconds are reckoned for: a `mx.memplan.Device`, text such as
    "20TFLOP/s,900GB/s", or "measured". It decides what is worth recomputing.

    `streams`: of kernels that a GPU may run side by side, where the plan leaves them unordered.
    """

    def __init__(
        self,
        symbol: Any,
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: Any = logging,
        context: Context | Sequence[Context] | None = None,
        work_load_list: Any = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: Any = None,
        *,
        memory_budget: int | str | None = None,
        fused_update: bool | None = None,
        amp: Any = None,
        loss_scale: Any = None,
        device: Device | str | None = None,
        offload: Offload = None,
        streams: int = 1,
    ) -> None:
        super().__init__(logger)
        contexts = [context] if isinstance(context, Context) else list(context or [current_context()])
        if len(contexts) != 1:
            raise MXLiteError(f"Module runs on one device, got {len(contexts)}: {contexts}.")
        for name, value in (("state_names", state_names), ("group2ctxs", group2ctxs)):
            if value:
                raise MXLiteError(f"Module: {name} is not supported.")
        self._context = contexts[0]
        self._symbol = symbol
        arguments = symbol.list_arguments()
        self._data_names = list(data_names or ())
        self._label_names = [n for n in label_names or () if n in arguments]
        self._fixed = list(fixed_param_names or ())
        for kind, names in (("data_names", self._data_names), ("fixed_param_names", self._fixed)):
            for n in names:
                if n not in arguments:
                    raise BindError(f"Module: {kind} has {n!r}, which is no argument.{nearest(n, arguments)}")
        inputs = {*self._data_names, *self._label_names}
        self._param_names = [n for n in arguments if n not in inputs]
        self._aux_names = symbol.list_auxiliary_states()
        self._output_names = symbol.list_outputs()
        self._memory_budget = None if memory_budget is None else parse_bytes(memory_budget)
        self._fused: bool | None = fused_update
        device_of(device)  # raises now what binding would raise
        self._loss_scale = LossScale.of(loss_scale, amp)
        self._binding = Binding(
            symbol, self._context, self._data_names, self._label_names, self._fixed, amp_dtype(amp)
        )
        self._binding.device, self._binding.offload, self._binding.streams = device, offload, streams
        self._optimizer: Any = None
        self._updater: Updater | None = None
        self._store: kvstores.KVStore | None = None
        self._index = {n: i for i, n in enumerate(self._param_names)}  # of parameters in the optimizer
        self._stepped = False
        self._fed: dict[str, Any] = {}  # arrays of the last batch
        self._counting = Counting()
        self._preloaded: tuple[dict[str, NDArray], dict[str, NDArray]] | None = None
        self._preload_states: str | None = None

    # -- what it is ----------------------------------------------------------------------------

    @property
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        return self._label_names

    @property
    def output_names(self) -> list[str]:
        return self._output_names

    @property
    def data_shapes(self) -> list[DataDesc]:
        self.need()
        return self._binding.data_shapes

    @property
    def label_shapes(self) -> list[DataDesc]:
        self.need()
        return self._binding.label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        self.need()
        return [(n, o.shape) for n, o in zip(self._output_names, self._executor.outputs)]

    @property
    def memory_plan(self) -> MemoryPlan:
        """The plan of the step that is run for the present shapes.

        Its fixed bytes are all that this module owns outside the arena: parameters, states, and inputs and
        outputs for each of the last shapes. Its arena is the part of the module's that this step needs.
        """
        self.need()
        return self._executor.memory_plan

    @property
    def planned_bytes(self) -> int:
        """What this module owns, with all modules that share its parameters, when their steps have run.

        Everything that is shared once, inputs and outputs for each of the last shapes, and one arena, as
        large as the largest step needs. `memory_budget` bounds this.
        """
        self.need()
        return self._binding.group.planned_bytes

    @property
    def measured_bytes(self) -> int:
        """Bytes really allocated by now: every array, optimizer states included, and the arena."""
        self.need()
        group = self._binding.group
        return group.measured_bytes + sum(group.extra.values())

    @property
    def _executor(self) -> Executor:
        return self._binding.executor

    @property
    def is_fused(self) -> bool:
        """Whether the update is part of the planned step."""
        return self._binding.is_bound and bool(self._executor.updated)

    @property
    def loss_scale(self) -> float | None:
        """What 16-bit gradients are multiplied with now; None if nothing is. Waits for the last step if that
        decides about it."""
        self._settle()
        return None if self._loss_scale is None else self._loss_scale.value

    # -- bind ----------------------------------------------------------------------------------

    def prepare_fit(self) -> None:
        if self._fused is None and not self.binded:
            self._fused = True

    def bind(  # type: ignore[override]  # MXNet's signature
        self,
        data_shapes: Any,
        label_shapes: Any = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Module | None = None,
        grad_req: Any = "write",
    ) -> None:
        """Plan and allocate for these input shapes: lists of (name, shape) or DataDesc."""
        if self.stays_bound(force_rebind):
            return
        kept = self.get_params() if self.binded and self.params_initialized else None
        old = self._binding
        new = Binding(self._symbol, self._context, self._data_names, self._label_names, self._fixed, old.amp)
        new.device, new.offload, new.streams = old.device, old.offload, old.streams
        new.metrics, new.monitor = old.metrics, old.monitor
        if shared_module is not None:
            shared_module.need(params=True)
            new.group = shared_module._binding.group
            if self._memory_budget not in (None, new.group.budget):
                raise BindError(
                    "Modules that share parameters have one memory_budget: give it to the first of them."
                )
        else:
            new.group.budget = self._memory_budget
            new.group.extra = old.group.extra
        new.inputs_need_grad = inputs_need_grad
        new.grad_req = grad_req
        # A fused step cannot be planned before its optimizer is known: until then there is a
        # program without gradients, which only holds arrays: no budget applies to that yet.
        fuse = self._fuses(self._optimizer, inputs_need_grad)
        new.optimizer = self._optimizer if for_training and fuse else None
        new.plan_gradients = for_training and (not self._fused or self._optimizer is not None)
        new.bounded = new.plan_gradients or not for_training
        new.use(data_shapes, label_shapes, self._asked_scale())
        self._binding = new
        self._give_scale()
        self.for_training = for_training
        self.inputs_need_grad = inputs_need_grad
        self.binded = True
        if shared_module is not None:
            self.params_initialized = True
        elif kept is not None:
            self.set_params(*kept)
            self._keep_states()
            self._fill_store()
        elif self._preloaded is not None:
            self.set_params(*self._preloaded)
            self._preloaded = None

    def _fuses(self, optimizer: Any, inputs_need_grad: bool) -> bool:
        """Whether this optimizer's update can be, and is to be, part of the step."""
        if optimizer is None or not self._fused or inputs_need_grad:
            return False
        return optimizer.update_rule() is not None

    def _keep_states(self) -> None:
        """After binding anew: the arrays of a fused step's states are new, their values are not."""
        if self._updater is None or not self._executor.updated:
            return
        fresh = self._fused_states()
        for i, state in fresh.items():
            if i in self._updater.states:
                states.copy(self._updater.states[i], state, self._param_names[i])
        self._updater.states |= fresh

    def _fused_states(self) -> dict[int, Any]:
        return states.of_fused_step(self._executor, self._optimizer, self._index)

    def borrow_optimizer(self, shared_module: Module) -> None:
        """Update by another module's optimizer and states: those of one parameter are for both."""
        if not shared_module.optimizer_initialized:
            raise StateError("borrow_optimizer: the other module has no optimizer; call its init_optimizer.")
        self._optimizer, self._updater = shared_module._optimizer, shared_module._updater
        self._index = shared_module._index
        self._loss_scale = shared_module._loss_scale
        if missing := [n for n in self._param_names if n not in self._index]:
            raise BindError(f"borrow_optimizer: the other module has no parameter {missing[0]!r}.")
        if self.binded:
            self._plan_with_optimizer()
        self.optimizer_initialized = True

    def _fill_store(self) -> None:
        """Let a KVStore hold the parameters themselves, and update by this module's optimizer."""
        if self._store is not None:
            arrays = self._executor.arg_dict
            for name, index in self._index.items():
                self._store.adopt(name, arrays[name], index)
            assert self._updater is not None
            self._store._set_updater(self._updater)

    def _plan_with_optimizer(self) -> None:
        binding = self._binding
        fuse = self._fuses(self._optimizer, self.inputs_need_grad)
        binding.optimizer = self._optimizer if fuse else None
        binding.plan_gradients = binding.bounded = True
        binding.remake(self._asked_scale())
        self._give_scale()

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        """Bind for other input shapes; parameters, states and the arena stay, and what was bound is kept.

        Up to four sets of shapes are kept, the least recently used is given up first.
        """
        self.need()
        self._binding.use(data_shapes, label_shapes, self._asked_scale())
        self._give_scale()

    # -- parameters ----------------------------------------------------------------------------

    def init_params(
        self,
        initializer: Any = None,
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Give every parameter a value: from `arg_params` and `aux_params`, else by the initializer."""
        self.need()
        if self.params_initialized and not force_init:
            return
        initializer = initializer if initializer is not None else Uniform(0.01)
        attrs = self._symbol.attr_dict()
        executor = self._executor
        for have, given, names in (
            (executor.arg_dict, arg_params, self._param_names),
            (executor.aux_dict, aux_params, self._aux_names),
        ):
            if given is not None and not allow_extra and (extra := [n for n in given if n not in have]):
                raise BindError(f"{extra[0]!r} is no parameter of this symbol.{nearest(extra[0], names)}")
            for name in names:
                if given is not None and name in given:
                    value = given[name]
                    if value.shape != have[name].shape:
                        raise ShapeError(f"{name!r} is {have[name].shape} here, but {value.shape} was given.")
                    value.astype(have[name].dtype).copyto(have[name])
                elif given is not None and not allow_missing:
                    raise MXLiteError(
                        f"{name!r} is missing from the given parameters; allow_missing=True initialises it."
                    )
                else:
                    initializer(InitDesc(name, attrs.get(name, {})), have[name])
        self.params_initialized = True

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Copies of (arguments, auxiliary states) by name."""
        self.need(params=True)
        args, aux = self._executor.arg_dict, self._executor.aux_dict
        return {n: args[n].copy() for n in self._param_names}, {n: a.copy() for n, a in aux.items()}

    def set_params(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray],
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Assign parameters. Extra names are ignored as in MXNet unless they are near-misses of
        missing ones.
        """
        self.need()
        if allow_missing:
            self.init_params(None, arg_params, aux_params, True, force_init, True)
            return
        for given, names in ((arg_params, self._param_names), (aux_params, self._aux_names)):
            if missing := [n for n in names if n not in given]:
                raise MXLiteError(f"set_params lacks {missing[0]!r}.{nearest(missing[0], given)}")
        self._executor.copy_params_from(
            {n: arg_params[n] for n in self._param_names}, {n: aux_params[n] for n in self._aux_names}
        )
        self.params_initialized = True

    # -- metrics -------------------------------------------------------------------------------

    def prepare_metric(self, metric: EvalMetric) -> None:
        if self._context.device_type != "gpu" or type(self).update_metric is not Module.update_metric:
            return
        names, here = [d.name for d in self._binding.label_shapes], self._executor.arg_dict
        labels = {n: here[n] for n in names if n in here}
        self._counting = Counting()
        if len(labels) == len(names):
            self._counting.plan(metric, labels, dict(zip(self._output_names, self._executor.outputs)))
        if self._counting.metrics == self._binding.metrics:
            return
        self._binding.metrics = self._counting.metrics
        if self.optimizer_initialized:
            self._plan_with_optimizer()

    def share_metric(self, other: Module) -> None:
        """Count what another module's steps count, to the same sums, if labels and outputs have its names."""
        same = (other._label_names, other._output_names) == (self._label_names, self._output_names)
        self._counting = other._counting if same else Counting()
        metrics = other._binding.metrics if same else ()
        if metrics == self._binding.metrics:
            return
        self._binding.metrics = metrics
        if self.binded and self.optimizer_initialized:
            self._plan_with_optimizer()

    def counting(self) -> AbstractContextManager[None]:
        return self.counting_in(lambda: self)

    def counting_in(self, present: Callable[[], Module]) -> AbstractContextManager[None]:
        """As `counting`, where `present` gives the module whose step is the next or was the last."""
        return self._counting.going_on(lambda: present()._executor)

    # -- optimizer -----------------------------------------------------------------------------

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Make the optimizer; `rescale_grad` is 1 / batch size unless given.

        Plans again: optimizer states count against the budget, and a fused update changes what lives when.
        """
        self.need(params=True)
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        store = kvstores.create(kvstore) if isinstance(kvstore, str) else kvstore
        if store is not None and not isinstance(store, kvstores.KVStore):
            raise TypeError(f"init_optimizer: kvstore is a KVStore, its name, or None; got {kvstore!r}.")
        batch_size = self._binding.data_shapes[0].shape[0]
        names = {i: n for n, i in self._index.items()}
        if isinstance(optimizer, str):
            try:
                params = dict(optimizer_params)
            except (TypeError, ValueError):
                raise OpAttributeError(
                    f"init_optimizer: optimizer_params must be a dict or (name, value) pairs, got "
                    f"{optimizer_params!r}."
                ) from None
            params.setdefault("rescale_grad", 1.0 / batch_size)
            optimizer = optimizers.create(optimizer, sym=self._symbol, param_idx2name=names, **params)
        elif not optimizer.idx2name:
            optimizer.idx2name = names
            optimizer.set_lr_mult({})
            optimizer.set_wd_mult({})
        self._optimizer = optimizer
        self._updater = get_updater(optimizer)
        if not self.for_training:
            raise StateError("init_optimizer: this module was bound with for_training=False.")
        if self._fuses(optimizer, self.inputs_need_grad):
            self._binding.group.extra = {}
            self._plan_with_optimizer()
            for state in self._executor.optimizer_states.values():
                state[...] = 0  # of an optimizer before, perhaps
            self._executor.refresh_masters()
            self._updater.states |= self._fused_states()
        else:
            trained = [n for n in self._param_names if n not in self._fixed]
            self._updater.states |= states.create(
                optimizer, self._param_names, trained, self._executor.arg_dict
            )
            nbytes = states.nbytes(list(self._updater.states.values()))
            self._binding.group.extra = {"optimizer": nbytes}
            self._plan_with_optimizer()
        self.optimizer_initialized = True
        self._store = None if isinstance(kvstore, str) else store
        self._fill_store()
        if self._preload_states is not None:
            self.load_optimizer_states(self._preload_states)
            self._preload_states = None

    # -- running -------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run forward on a batch. Another batch size binds anew by itself."""
        is_train = self.for_training if is_train is None else is_train
        feed = self._prepared(data_batch, is_train)
        self._executor.forward(is_train=is_train, **feed)

    def forward_backward(self, data_batch: Any) -> None:
        """Forward in training mode and backward, pushed together: on a GPU they are one launch then."""
        cls = type(self)
        if cls.forward is not Module.forward or cls.backward is not Module.backward:
            super().forward_backward(data_batch)  # a subclass has its own way
            return
        feed = self._prepared(data_batch, True)
        if self._executor.updated:
            self._executor.step(self._hyper(), **feed)
            self._stepped = True
        else:
            self._executor.forward_backward(**feed)

    def _prepared(self, data_batch: Any, is_train: bool) -> dict[str, Any]:
        """What the executor for this batch is to be given, once it may run."""
        self.need(params=True)
        feed = self._feed(data_batch)
        if is_train and self._is_waiting_for_optimizer():
            raise StateError(
                "this module was made with fused_update=True: call init_optimizer before training."
            )
        self._stepped = False
        if is_train and self.for_training:
            self._counting.step()
        else:
            self._counting.other()
        if self._loss_scale is not None and not self.is_fused:  # it may have moved with other shapes
            if self._loss_scale.value != self._executor.loss_scale:
                self._executor.loss_scale = self._loss_scale.value
        return feed

    def _is_waiting_for_optimizer(self) -> bool:
        return bool(self._fused) and self.for_training and not self.optimizer_initialized

    def _feed(self, batch: Any) -> dict[str, Any]:
        data_shapes, label_shapes = self._binding.data_shapes, self._binding.label_shapes
        data_names = [d.name for d in data_shapes]
        label_names = [d.name for d in label_shapes] or self._label_names
        labels = batch.label if batch.label is not None else []
        if len(batch.data) != len(data_names):
            raise ShapeError(f"forward: the batch's data has {len(batch.data)} arrays for {data_names}.")
        if 0 < len(labels) < len(label_names):
            raise ShapeError(f"forward: the batch's label has {len(labels)} arrays for {label_names}.")
        feed = {**dict(zip(data_names, batch.data)), **dict(zip(label_names, labels))}
        shapes = {d.name: tuple(d.shape) for d in (*data_shapes, *label_shapes)}
        if any(n in shapes and tuple(a.shape) != shapes[n] for n, a in feed.items()):
            new_data = getattr(batch, "provide_data", None) or [
                (d.name, feed[d.name].shape) for d in data_shapes
            ]
            new_labels = getattr(batch, "provide_label", None)
            if new_labels is None and label_shapes:
                if labels:
                    new_labels = [(d.name, feed[d.name].shape) for d in label_shapes]
                else:
                    n = feed[data_shapes[0].name].shape[0]
                    new_labels = [(d.name, (n, *d.shape[1:])) for d in label_shapes]
            self.reshape(new_data, new_labels)
        known = self._executor.arg_dict
        self._fed = {n: a for n, a in feed.items() if n in known}
        return self._fed

    def backward(self, out_grads: Any = None) -> None:
        """Run backward; with a fused update this runs the update as well."""
        self.need(params=True)
        executor = self._executor
        if executor.updated:
            if out_grads is not None:
                raise StateError(
                    "backward: a fused step takes no out_grads; make the module with fused_update=False."
                )
            executor.finish_step(self._hyper())
            self._stepped = True
        else:
            executor.backward(out_grads)

    def update(self) -> None:
        """Apply the optimizer to all parameters (done already if the update is fused).

        With a loss scale, not if some gradient is inf or nan.
        """
        self.need(params=True, optimizer=True)
        executor = self._executor
        if executor.updated:
            if not self._stepped:
                raise StateError("update: run forward and backward first.")
            return
        assert self._updater is not None
        grads, args = executor.grad_dict, executor.arg_dict
        if self._loss_scale is not None and not self._may_update(self._loss_scale):
            return
        for name in self._param_names:
            grad = grads[name]
            if grad is not None:
                self._updater(self._index[name], grad, args[name])

    def _may_update(self, loss_scale: LossScale) -> bool:
        """Whether all gradients are finite; the loss scale learns from it."""
        grads = self._executor.grad_dict
        finite = are_finite(g for n in self._param_names if (g := grads[n]) is not None)
        loss_scale.learn(finite)
        if loss_scale.value != self._executor.loss_scale:
            self._executor.loss_scale = loss_scale.value
        if not finite:
            self.logger.info("Gradients overflow: no update; the loss scale is %g now.", loss_scale.value)
        return finite

    def _asked_scale(self) -> Any:
        """What an executor is bound with for the loss scale."""
        self._settle()
        return None if self._loss_scale is None else self._loss_scale.asked()

    def _give_scale(self) -> None:
        """After another executor came: it goes on where the one before was."""
        if self._loss_scale is not None and self.is_fused:
            self._loss_scale.give(self._executor)

    def _settle(self) -> None:
        """Where the last step decided by itself whether to update: learn what it did."""
        if self._loss_scale is None or not self.is_fused:
            return
        found = self._loss_scale.settle(self._executor)
        if found is not None:
            before, made = found
            self._optimizer.set_progress(before)
            self._optimizer.count(self._updated_indices(), made)
            self.logger.info(
                "Gradients overflow: no update; the loss scale is %g now.", self._loss_scale.value
            )

    def _updated_indices(self) -> list[int]:
        return [self._index[n] for n in self._executor.updated]

    def _hyper(self) -> np.ndarray:
        scale = self._loss_scale
        if scale is not None:
            if self._optimizer.rates_follow_count or scale.has_other(self._executor):
                self._settle()
            scale.expect(self._executor, self._optimizer.progress)
        rows = [self._optimizer.hyper(i) for i in self._updated_indices()]
        return np.array(rows, np.float64).reshape(-1, self._optimizer.update_rule().rates)

    def get_outputs(self, merge_multi_context: bool = True) -> list[NDArray]:
        """Outputs of the last forward."""
        self.need(params=True)
        return list(self._executor.outputs)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[NDArray]:
        """Gradients of the data, if bound with inputs_need_grad."""
        self.need(params=True)
        if not self.inputs_need_grad:
            raise StateError("get_input_grads: bind with inputs_need_grad=True.")
        grads = self._executor.grad_dict
        return [g for n in self._data_names if (g := grads[n]) is not None]

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Let the metric see the outputs of the last forward; it need not have done so when this returns."""
        names = [d.name for d in self._binding.label_shapes]
        fed, here = self._fed, self._executor.arg_dict
        # What was fed lies beside the outputs: on a GPU that saves the way.
        there = {n: here[n] if fed.get(n) is a else a for n, a in zip(names, labels or [])}
        eval_metric.update_later(there, dict(zip(self._output_names, self._executor.outputs)))

    def install_monitor(self, mon: Any) -> None:
        """Have a Monitor look into this module, for all shapes; plans anew, as what it watches is kept."""
        self.need()
        self._binding.monitor = mon
        self._binding.remake(self._asked_scale())
        self._give_scale()

    # -- files ---------------------------------------------------------------------------------

    def save_params(self, fname: str) -> None:
        """Write parameters as MXNet's container with `arg:` and `aux:` names."""
        save_params(fname, *self.get_params())

    def load_params(self, fname: str) -> None:
        """Read what `save_params`, or MXNet, wrote."""
        self.set_params(*load_params(fname))

    def save_checkpoint(
        self, prefix: str, epoch: int, save_optimizer_states: bool = False, remove_amp_cast: bool = True
    ) -> None:
        """Write PREFIX-symbol.json, PREFIX-%04d.params and, if asked, PREFIX-%04d.states."""
        self._symbol.save(f"{prefix}-symbol.json")
        self.save_params(f"{prefix}-{epoch:04d}.params")
        self.logger.info('Saved checkpoint to "%s-%04d.params"', prefix, epoch)
        if save_optimizer_states:
            self.save_optimizer_states(f"{prefix}-{epoch:04d}.states")
            self.logger.info('Saved optimizer state to "%s-%04d.states"', prefix, epoch)

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """A module from a checkpoint; `kwargs` go to the constructor. Bind it before use."""
        module = Module(load_symbol(f"{prefix}-symbol.json"), **kwargs)
        module._preloaded = load_params(f"{prefix}-{epoch:04d}.params")
        if load_optimizer_states:
            module._preload_states = f"{prefix}-{epoch:04d}.states"
        return module

    def save_optimizer_states(self, fname: str) -> None:
        """Write the optimizer's states (mxlite's own form; never a pickle)."""
        with replacing(fname) as file:
            file.write(self._state_bytes())

    def load_optimizer_states(self, fname: str) -> None:
        """Read what `save_optimizer_states` wrote; MXNet's pickles are refused."""
        with open(fname, "rb") as file:
            self._restore_states(file.read())

    def _state_bytes(self) -> bytes:
        self.need(params=True, optimizer=True)
        assert self._updater is not None
        self._settle()
        return self._updater.get_states()

    def _restore_states(self, data: bytes) -> None:
        self.need(params=True, optimizer=True)
        assert self._updater is not None
        self._settle()
        mine = dict(self._updater.states)
        self._updater.set_states(data)
        if self._executor.updated:  # the arrays of the step stay, their values change
            for index, state in mine.items():
                states.copy(self._updater.states.get(index), state, self._param_names[index])
            self._updater.states = mine

    # -- going on after a stop -----------------------------------------------------------------

    def save_resume_state(self, prefix: str, epoch: int, nbatch: int, train_data: Any) -> None:
        """Write PREFIX.resume: all that decides how training goes on. One file, replaced whole."""
        args, aux = self._executor.arg_dict, self._executor.aux_dict
        resume.save(
            prefix,
            epoch,
            nbatch,
            {n: args[n] for n in self._param_names},
            aux,
            self._state_bytes(),
            train_data,
            self._context,
            self._scale_state(),
        )

    def _scale_state(self) -> tuple[float, int] | None:
        self._settle()
        return None if self._loss_scale is None else (self._loss_scale.value, self._loss_scale.good_steps)

    def load_resume_state(self, prefix: str, train_data: Any) -> tuple[int, int] | None:
        """Continue from PREFIX.resume: (epoch, batches done in it); None if there is no such file."""
        found = resume.load(prefix)
        if found is None:
            self.logger.info("There is no %s.resume to go on from; starting anew.", prefix)
            return None
        self.set_params(found.args, found.aux)
        self._restore_states(found.optimizer)
        if self._loss_scale is not None and found.loss_scale is not None:
            self._loss_scale.value, self._loss_scale.good_steps = found.loss_scale
            self._executor.loss_scale = self._loss_scale.value
            self._give_scale()
        found.restore_randomness(train_data, self._context)
        return found.epoch, found.nbatch
