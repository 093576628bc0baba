"""Module: a symbol with its data names, parameters and optimizer, trained on one device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..core import (
    BindError,
    Context,
    current_context,
    MXLiteError,
    nearest,
    parse_bytes,
    ShapeError,
    StateError,
)
from ..core.wanted import wanted, wanted_names
from ..executor import Executor
from ..executor.amp import amp_dtype
from ..executor.bind import check_streams
from ..executor.offload import host_link, Offload
from ..formats import load_params
from ..io import DataDesc
from ..memplan import Device, MemoryPlan
from ..memplan.device import device_of
from ..ndarray import NDArray
from ..symbol import load as load_symbol, Symbol
from . import kvstore as kvstores, parameters
from .base_module import as_list, by_device
from .binding import Binding
from .bound_arrays import BoundArrays
from .counting import Counting
from .initializer import Uniform
from .loss_scale import LossScale
from .metric_base import EvalMetric
from .saved_module import SavedModule
from .training import Training


class Module(SavedModule):
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
    `narrow_params`: for inference alone, those that are read in 16 bits are kept so; what is loaded is
    rounded once, and `get_params` gives what is kept.
    `loss_scale`: a number, or 'dynamic', that 16-bit gradients are multiplied with while they are 16-bit; an
    update whose gradients are not all finite is skipped, and 'dynamic' then halves the scale. bfloat16
    needs none. With float16 and none, gradients of 16-bit results below 6e-8 count as 0. All gradients are
    looked at before the first update, so with a loss scale they all live until then.

    `device`: what the plan's seconds are reckoned for: a `mx.memplan.Device`, text such as
    "20TFLOP/s,900GB/s", or "measured". It decides what is worth recomputing.

    `state_names`: arguments that are neither fed nor trained: they hold what `set_states` gives them.

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
        narrow_params: bool = False,
    ) -> None:
        super().__init__(logger)
        contexts = as_list(context) or [current_context()]
        for c in contexts:
            wanted("Module: context", c, "a device such as mx.cpu()", Context)
        if len(contexts) != 1:
            raise MXLiteError(f"Module runs on one device, got {len(contexts)}: {contexts}.")
        if group2ctxs:
            raise MXLiteError("Module: group2ctxs is not supported.")
        self._context = contexts[0]
        self._symbol = symbol
        wanted("Module: symbol", symbol, "a Symbol", Symbol)
        arguments = symbol.list_arguments()
        self._data_names = wanted_names("Module: data_names", data_names)
        self._label_names = [n for n in wanted_names("Module: label_names", label_names) if n in arguments]
        self._fixed = wanted_names("Module: fixed_param_names", fixed_param_names)
        self._state_names = wanted_names("Module: state_names", state_names)
        for kind, names in (
            ("data_names", self._data_names),
            ("fixed_param_names", self._fixed),
            ("state_names", self._state_names),
        ):
            for n in names:
                if n not in arguments:
                    raise BindError(f"Module: {kind} has {n!r}, which is no argument.{nearest(n, arguments)}")
        inputs = {*self._data_names, *self._label_names, *self._state_names}
        self._param_names = [n for n in arguments if n not in inputs]
        self._aux_names = symbol.list_auxiliary_states()
        self._output_names = symbol.list_outputs()
        self._memory_budget = None if memory_budget is None else parse_bytes(memory_budget)
        device_of(device)  # these raise now what binding would raise
        host_link(offload)
        check_streams(streams)
        self._training = Training(
            self._param_names, self._fixed, fused_update, LossScale.of(loss_scale, amp), logger
        )
        self._binding = Binding(
            symbol,
            self._context,
            self._data_names,
            self._label_names,
            self._fixed,
            amp_dtype(amp),
            self._state_names,
        )
        self._binding.device, self._binding.offload, self._binding.streams = device, offload, streams
        if narrow_params and amp is None:
            raise BindError("Module: narrow_params is for mixed precision; give amp='bfloat16' as well.")
        self._binding.narrow_params = narrow_params
        self._stepped = False
        self._fed: dict[str, Any] = {}  # arrays of the last batch
        self._counting = Counting()

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
        return list(zip(self._output_names, self._binding.output_shapes))

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
        return self._binding.planned_bytes

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
    def _optimizer(self) -> Any:
        return self._training.optimizer  # its name in MXNet, whose programs change its rate

    @property
    def _exec_group(self) -> BoundArrays:
        """See `bound_arrays.py`: private in MXNet, too, and used all the same."""
        self.need()
        batch = self._binding.data_shapes[0].shape[0]
        return BoundArrays(self._executor, self._param_names, self._data_names, batch, self.install_monitor)

    @property
    def is_fused(self) -> bool:
        """Whether the update is part of the planned step."""
        return self._binding.is_fused

    @property
    def loss_scale(self) -> float | None:
        """What 16-bit gradients are multiplied with now; None if nothing is. Waits for the last step if that
        decides about it."""
        found = self._training.scale_state(self._binding)
        return None if found is None else found[0]

    # -- bind ----------------------------------------------------------------------------------

    def prepare_fit(self) -> None:
        if self._training.fused is None and not self.binded:
            self._training.fused = True

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
        if for_training and self._binding.narrow_params:
            raise BindError(
                "bind: with narrow_params no float32 parameters are left to train; bind with "
                "for_training=False, or make the module without."
            )
        kept = self.get_params() if self.binded and self.params_initialized else None
        old = self._binding
        new = old.anew()
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
        new.optimizer = self._training.in_step(inputs_need_grad) if for_training else None
        new.waits = for_training and self._training.waits
        new.plan_gradients = for_training and not new.waits
        self._training.use(new, data_shapes, label_shapes, before=old)
        self._binding = new
        self.for_training = for_training
        self.inputs_need_grad = inputs_need_grad
        self.binded = True
        if shared_module is not None:
            self.params_initialized = True
        elif kept is not None:
            self.set_params(*kept)
            self._training.keep_states(new)
            self._training.fill_store(new)
        elif self._preloaded is not None:
            self.set_params(*self._preloaded)
            self._preloaded = None

    def borrow_optimizer(self, shared_module: Module) -> None:
        """Update by another module's optimizer and states: those of one parameter are for both."""
        if not shared_module.optimizer_initialized:
            raise StateError("borrow_optimizer: the other module has no optimizer; call its init_optimizer.")
        self._training.borrow(shared_module._training)
        if self.binded:
            self._training.plan(self._binding)
        self.optimizer_initialized = True

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        """Bind for other input shapes; parameters, states and the arena stay, and what was bound is kept.

        Up to four sets of shapes are kept, the least recently used is given up first.
        """
        self.need()
        self._training.use(self._binding, data_shapes, label_shapes)

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
        """Give every parameter a value: from `arg_params` and `aux_params`, else by the initializer.

        Names beyond the symbol's are ignored. Raises MXLiteError for one that is not given, unless
        `allow_missing`.
        """
        self.need()
        if self.params_initialized and not force_init:
            return
        initializer = initializer if initializer is not None else Uniform(0.01)
        attrs = self._symbol.attr_dict()
        args, aux = self._parameters()
        for targets, given in ((args, arg_params), (aux, aux_params)):
            parameters.fill(targets, given, initializer, attrs, allow_missing)
        self._binding.refresh_masters()
        self.params_initialized = True

    def _parameters(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """The arrays themselves, arguments and auxiliary states."""
        args, aux = self._binding.arg_dict, self._binding.aux_dict
        return {n: args[n] for n in self._param_names}, aux

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Copies of (arguments, auxiliary states) by name."""
        self.need(params=True)
        args, aux = self._parameters()
        return {n: a.copy() for n, a in args.items()}, {n: a.copy() for n, a in aux.items()}

    def set_params(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray],
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Assign parameters. With `allow_missing` those that are not given stay as they are.

        Without it extra names are ignored, as in MXNet; with it they are a BindError unless
        `allow_extra`. Without `force_init` nothing happens once the parameters have values.
        """
        self.need()
        if self.params_initialized and not force_init:
            self.logger.warning(
                "Parameters are initialised already; set_params(force_init=False) leaves them."
            )
            return
        args, aux = self._parameters()
        for targets, given, known in (
            (args, arg_params, self._symbol.list_arguments()),
            (aux, aux_params, aux),
        ):
            if not allow_missing:
                parameters.refuse_missing(given, targets)
            elif not allow_extra:
                parameters.refuse_unknown(given, known, targets)
            parameters.copy(given, targets)
        self._binding.refresh_masters()
        self.params_initialized = True

    # -- metrics -------------------------------------------------------------------------------

    def prepare_metric(self, metric: EvalMetric) -> None:
        if self._context.device_type != "gpu" or type(self).update_metric is not Module.update_metric:
            return
        labels = {d.name: d.shape for d in self._binding.label_shapes}
        counting = Counting()
        counting.plan(metric, labels, dict(self.output_shapes))
        self._count(counting)

    def share_metric(self, other: Module) -> None:
        """Count what another module's steps count, to the same sums, if labels and outputs have its names."""
        same = (other._label_names, other._output_names) == (self._label_names, self._output_names)
        self._count(other._counting if same else Counting())

    def _count(self, counting: Counting) -> None:
        self._counting = counting
        if counting.metrics != self._binding.metrics:
            self._binding.metrics = counting.metrics
            if self.binded and self.optimizer_initialized:
                self._training.remake(self._binding)

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
        if store is not None:
            wanted("init_optimizer: kvstore", store, "a KVStore, its name, or None", kvstores.KVStore)
        optimizer = self._training.named(optimizer, optimizer_params, self._binding)
        if not self.for_training:
            raise StateError("init_optimizer: this module was bound with for_training=False.")
        self._training.start(optimizer, None if isinstance(kvstore, str) else store, self._binding)
        self.optimizer_initialized = True
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
            self._executor.step(self._training.hyper(self._binding), **feed)
            self._stepped = True
        else:
            self._executor.forward_backward(**feed)

    def _prepared(self, data_batch: Any, is_train: bool) -> dict[str, Any]:
        """What the executor for this batch is to be given, once it may run."""
        self.need(params=True)
        feed = self._binding.feed(data_batch)
        if (shapes := self._binding.other_shapes(data_batch, feed)) is not None:
            self.reshape(*shapes)
        known = self._executor.arg_dict
        feed = self._fed = {n: a for n, a in feed.items() if n in known}
        if is_train and self._is_waiting_for_optimizer():
            raise StateError(
                "this module was made with fused_update=True: call init_optimizer before training."
            )
        self._stepped = False
        if is_train and self.for_training:
            self._counting.step()
        else:
            self._counting.other()
        if not self.is_fused:
            self._training.follow(self._binding)
        return feed

    def _is_waiting_for_optimizer(self) -> bool:
        return bool(self._training.fused) and self.for_training and not self.optimizer_initialized

    def backward(self, out_grads: Any = None) -> None:
        """Run backward; with a fused update this runs the update as well."""
        self.need(params=True)
        executor = self._executor
        if executor.updated:
            if out_grads is not None:
                raise StateError(
                    "backward: a fused step takes no out_grads; make the module with fused_update=False."
                )
            executor.finish_step(self._training.hyper(self._binding))
            self._stepped = True
        else:
            executor.backward(out_grads)

    def update(self) -> None:
        """Apply the optimizer to all parameters (done already if the update is fused).

        With a loss scale, not if some gradient is inf or nan.
        """
        self.need(params=True, optimizer=True)
        if not self._executor.updated:
            self._training.update(self._binding)
        elif not self._stepped:
            raise StateError("update: run forward and backward first.")

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Outputs of the last forward; each in a list of its own without `merge_multi_context`."""
        self.need(params=True)
        return by_device(list(self._executor.outputs), merge_multi_context)

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """The arrays of `state_names`, in that order; as `get_outputs` gives them."""
        self.need(params=True)
        return by_device([self._executor.arg_dict[n] for n in self._state_names], merge_multi_context)

    def set_states(self, states: Any = None, value: float | None = None) -> None:
        """Assign all states: from a list of arrays, as `get_states` or `get_outputs` gives it, or one number.

        They keep what they are given until the next call, for the shapes that are bound now.
        """
        self.need(params=True)
        if (states is None) == (value is None):
            raise StateError("set_states takes either states, a list of arrays, or value, a number.")
        here = self._executor.arg_dict
        if states is None:
            for name in self._state_names:
                here[name][:] = value
            return
        given = [s[0] if isinstance(s, (list, tuple)) and len(s) == 1 else s for s in as_list(states)]
        if len(given) != len(self._state_names):
            raise StateError(f"set_states: {len(given)} arrays were given for {self._state_names}.")
        for name, state in zip(self._state_names, given):
            wanted(f"set_states: {name!r}", state, "an NDArray", NDArray)
            if state.shape != here[name].shape:
                raise ShapeError(f"set_states: {name!r} is {here[name].shape}, but {state.shape} was given.")
            state.copyto(here[name])

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Gradients of the data, if bound with inputs_need_grad; None where grad_req is 'null'."""
        self.need(params=True)
        if not self.inputs_need_grad:
            raise StateError("get_input_grads: bind with inputs_need_grad=True.")
        grads = self._executor.grad_dict
        return by_device([grads[n] for n in self._data_names], merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Let the metric see the outputs of the last forward; it need not have done so when this returns."""
        wanted("update_metric: eval_metric", eval_metric, "an EvalMetric", has=("update_later",))
        if labels is not None:
            wanted("update_metric: labels", labels, "a list of NDArrays", list, tuple)
        names = [d.name for d in self._binding.label_shapes]
        fed, here = self._fed, self._executor.arg_dict
        # What was fed lies beside the outputs: on a GPU that saves the way.
        there = {n: here[n] if fed.get(n) is a else a for n, a in zip(names, labels or [])}
        eval_metric.update_later(there, dict(zip(self._output_names, self._executor.outputs)))

    def install_monitor(self, mon: Any) -> None:
        """Have a Monitor look into this module, for all shapes; plans anew, as what it watches is kept."""
        self.need()
        wanted("install_monitor: mon", mon, "a Monitor", has=("install",))
        self._binding.monitor = mon
        self._training.remake(self._binding)

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """A module from a checkpoint; `kwargs` go to the constructor. Bind it before use."""
        module = Module(load_symbol(f"{prefix}-symbol.json"), **kwargs)
        module._preloaded = load_params(f"{prefix}-{epoch:04d}.params")
        if load_optimizer_states:
            module._preload_states = f"{prefix}-{epoch:04d}.states"
        return module
