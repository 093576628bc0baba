"""Module: a symbol with its data names, parameters and optimizer, trained on one device."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core import (
    BindError,
    Context,
    current_context,
    MXLiteError,
    nearest,
    replacing,
    ShapeError,
    StateError,
)
from ..executor import Executor, simple_bind as bind_executor
from ..executor.amp import amp_dtype
from ..executor.offload import Offload
from ..formats import load_params, save_params
from ..io import DataDesc
from ..memplan import Device, MemoryPlan
from ..memplan.device import device_of
from ..ndarray import NDArray
from ..symbol import load as load_symbol
from . import optimizer as optimizers, resume, states
from .base_module import BaseModule
from .initializer import InitDesc, Uniform
from .loss_scale import are_finite, LossScale
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
    looked at before the first update, so with a loss scale the update is no part of the step: `fit` does
    not fuse.

    `device`: what the plan's seconds are reckoned for: a `mx.memplan.Device`, text such as
    "20TFLOP/s,900GB/s", or "measured". It decides what is worth recomputing.
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
        self._memory_budget = memory_budget
        self._offload = offload
        self._fused: bool | None = fused_update
        self._amp = amp_dtype(amp)
        device_of(device)  # raises now what binding would raise
        self._device = device
        self._loss_scale = LossScale.of(loss_scale, amp)
        if fused_update and self._loss_scale is not None:
            raise MXLiteError(
                "Module: with a loss_scale all gradients are looked at before any update, so "
                "fused_update=True is impossible; leave one of them out."
            )
        self._exec: Executor | None = None
        self._optimizer: Any = None
        self._updater: Updater | None = None
        self._stepped = False
        self._preloaded: tuple[dict[str, NDArray], dict[str, NDArray]] | None = None
        self._preload_states: str | None = None
        self._data_shapes: list[DataDesc] = []
        self._label_shapes: list[DataDesc] = []
        self._grad_req: Any = "write"

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
        return self._data_shapes

    @property
    def label_shapes(self) -> list[DataDesc]:
        self.need()
        return self._label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        self.need()
        return [(n, o.shape) for n, o in zip(self._output_names, self._executor.outputs)]

    @property
    def memory_plan(self) -> MemoryPlan:
        """The plan of the step that is run: what this module owns on its device, to the byte."""
        self.need()
        return self._executor.memory_plan

    @property
    def measured_bytes(self) -> int:
        """Bytes really allocated by now: every array, optimizer states included, and the arena."""
        self.need()
        nbytes = self._executor.measured_bytes
        if self._updater is not None and not self._executor.updated:
            nbytes += states.nbytes(list(self._updater.states.values()))
        return nbytes

    @property
    def _executor(self) -> Executor:
        if self._exec is None:
            raise StateError("call bind first: this module has no arrays yet.")
        return self._exec

    @property
    def is_fused(self) -> bool:
        """Whether the update is part of the planned step."""
        return self._exec is not None and bool(self._exec.updated)

    @property
    def loss_scale(self) -> float | None:
        """What 16-bit gradients are multiplied with now; None if nothing is."""
        return None if self._loss_scale is None else self._loss_scale.value

    # -- bind ----------------------------------------------------------------------------------

    def prepare_fit(self) -> None:
        if self._fused is None and not self.binded and self._loss_scale is None:
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
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        kept = self.get_params() if self.binded and self.params_initialized else None
        self._exec = None
        self.for_training = for_training
        self.inputs_need_grad = inputs_need_grad
        self._grad_req = grad_req
        self._data_shapes = self._described(data_shapes, self._data_names, "data")
        labels = self._described(label_shapes, self._label_names, "label") if label_shapes else []
        self._label_shapes = labels
        shared = None
        if shared_module is not None:
            shared_module.need(params=True)
            shared = shared_module._executor
        # A fused step cannot be planned before its optimizer is known: until then there is a
        # program without gradients.
        self._exec = self._make_executor(None, plan_gradients=for_training and not self._fused, shared=shared)
        self.binded = True
        if shared_module is not None:
            self.params_initialized = True
        elif kept is not None:
            self.set_params(*kept)
        elif self._preloaded is not None:
            self.set_params(*self._preloaded)
            self._preloaded = None

    def _described(self, shapes: Any, names: list[str], kind: str) -> list[DataDesc]:
        descs = [s if isinstance(s, DataDesc) else DataDesc(*s) for s in shapes]
        known = {*names, *self._label_names, *self._data_names}
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

    def _make_executor(
        self,
        optimizer: Any,
        *,
        plan_gradients: bool,
        extra_fixed: Mapping[str, int] | None = None,
        shared: Executor | None = None,
    ) -> Executor:
        requests: dict[str, str] = {}
        if plan_gradients:
            single = self._grad_req if isinstance(self._grad_req, str) else None
            listed = self._grad_req if isinstance(self._grad_req, Mapping) else {}
            if isinstance(self._grad_req, (list, tuple)):
                listed = dict(zip(self._symbol.list_arguments(), self._grad_req))
            for n in self._param_names:
                requests[n] = "null" if n in self._fixed else single or listed.get(n, "null")
            if self.inputs_need_grad:
                requests |= dict.fromkeys(self._data_names, "write")
        descs = [*self._data_shapes, *self._label_shapes]
        arrays: dict[str, NDArray] = {}
        if self._exec is not None:
            arrays = {**self._exec.arg_dict, **self._exec.aux_dict}
            shapes_now = {d.name: tuple(d.shape) for d in descs}
            arrays = {n: a for n, a in arrays.items() if n not in shapes_now or a.shape == shapes_now[n]}
        # Before its optimizer is known a fused module only holds arrays: no budget applies to that yet.
        budget = self._memory_budget if plan_gradients or not self.for_training else None
        return bind_executor(
            self._symbol.graph,
            self._context,
            {d.name: tuple(d.shape) for d in descs},
            grad_req=requests or "null",
            type_dict={d.name: d.dtype for d in descs},
            memory_budget=budget,
            optimizer=optimizer,
            extra_fixed=extra_fixed,
            shared_exec=shared,
            arrays=arrays,
            amp=self._amp,
            loss_scale=self.loss_scale,
            device=self._device,
            offload=self._offload,
        )

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        """Bind for other input shapes; parameters and states stay."""
        self.need()
        self._data_shapes = self._described(data_shapes, self._data_names, "data")
        self._label_shapes = self._described(label_shapes, self._label_names, "label") if label_shapes else []
        descs = [*self._data_shapes, *self._label_shapes]
        self._exec = self._executor.reshape(
            partial_shaping=True, allow_up_sizing=True, **{d.name: tuple(d.shape) for d in descs}
        )

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
        if isinstance(kvstore, str) and "dist" in kvstore:
            raise MXLiteError(f"kvstore {kvstore!r}: training on several machines is not supported.")
        batch_size = self._data_shapes[0].shape[0]
        names = dict(enumerate(self._param_names))
        if isinstance(optimizer, str):
            params = dict(optimizer_params)
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
        fused = bool(self._fused) and optimizer.update_rule() is not None and not self.inputs_need_grad
        if fused:
            self._exec = self._make_executor(optimizer, plan_gradients=True)
            self._exec.refresh_masters()
            self._updater.states |= states.of_fused_step(self._exec, optimizer, self._param_names)
        else:
            trained = [n for n in self._param_names if n not in self._fixed]
            self._updater.states |= states.create(
                optimizer, self._param_names, trained, self._executor.arg_dict
            )
            nbytes = states.nbytes(list(self._updater.states.values()))
            self._exec = self._make_executor(None, plan_gradients=True, extra_fixed={"optimizer": nbytes})
        self.optimizer_initialized = True
        if self._preload_states is not None:
            self.load_optimizer_states(self._preload_states)
            self._preload_states = None

    # -- running -------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run forward on a batch. Another batch size binds anew by itself."""
        self.need(params=True)
        is_train = self.for_training if is_train is None else is_train
        feed = self._feed(data_batch)
        if is_train and self._is_waiting_for_optimizer():
            raise StateError(
                "this module was made with fused_update=True: call init_optimizer before training."
            )
        self._stepped = False
        self._executor.forward(is_train=is_train, **feed)

    def _is_waiting_for_optimizer(self) -> bool:
        return bool(self._fused) and self.for_training and not self.optimizer_initialized

    def _feed(self, batch: Any) -> dict[str, Any]:
        data = dict(zip(self._data_names_in_order(), batch.data))
        labels = batch.label if batch.label is not None else []
        feed = {**data, **dict(zip([d.name for d in self._label_shapes] or self._label_names, labels))}
        shapes = {d.name: tuple(d.shape) for d in (*self._data_shapes, *self._label_shapes)}
        if any(n in shapes and tuple(a.shape) != shapes[n] for n, a in feed.items()):
            data_shapes = getattr(batch, "provide_data", None) or [
                (d.name, feed[d.name].shape) for d in self._data_shapes
            ]
            label_shapes = getattr(batch, "provide_label", None)
            if label_shapes is None and self._label_shapes:
                if labels:
                    label_shapes = [(d.name, feed[d.name].shape) for d in self._label_shapes]
                else:
                    n = feed[self._data_shapes[0].name].shape[0]
                    label_shapes = [(d.name, (n, *d.shape[1:])) for d in self._label_shapes]
            self.reshape(data_shapes, label_shapes)
        known = self._executor.arg_dict
        return {n: a for n, a in feed.items() if n in known}

    def _data_names_in_order(self) -> list[str]:
        return [d.name for d in self._data_shapes]

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
        for i, name in enumerate(self._param_names):
            grad = grads[name]
            if grad is not None:
                self._updater(i, grad, args[name])

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

    def _hyper(self) -> np.ndarray:
        index = {n: i for i, n in enumerate(self._param_names)}
        rows = [self._optimizer.hyper(index[n]) for n in self._executor.updated]
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
        """Let the metric see the outputs of the last forward."""
        names = [d.name for d in self._label_shapes]
        eval_metric.update_dict(
            dict(zip(names, labels or [])), dict(zip(self._output_names, self._executor.outputs))
        )

    def install_monitor(self, mon: Any) -> None:
        raise StateError("install_monitor is not supported; use Symbol.get_internals() to see inner outputs.")

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
        return self._updater.get_states()

    def _restore_states(self, data: bytes) -> None:
        self.need(params=True, optimizer=True)
        assert self._updater is not None
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
            None if self._loss_scale is None else (self._loss_scale.value, self._loss_scale.good_steps),
        )

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
        found.restore_randomness(train_data, self._context)
        return found.epoch, found.nbatch
