"""Module: a symbol with its data names, parameters and optimizer, trained on one device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..core import BindError, Context, StateError
from ..core.log import logger_of
from ..core.wanted import wanted, wanted_path
from ..executor.request.amp import amp_dtype
from ..executor.request.bind_request import check_streams, host_link, Offload
from ..formats import save_params, stored_params
from ..io import DataDesc
from ..memplan import Device, Ranks
from ..memplan.cost.device import device_of
from ..symbol import load as load_symbol, Symbol
from . import kvstore as kvstores
from .argument_names import ArgumentNames
from .binding import Binding
from .bound_module import BoundModule
from .device_arguments import Budgets, budgets_of, contexts_of, groups_of, work_loads_of
from .metrics.counting import Counting
from .metrics.metric_base import EvalMetric
from .optim import states
from .optim.loss_scale import LossScale
from .parallel_binding import ParallelBinding
from .saved import resume, shards
from .training import Training


class Module(BoundModule):
    """A trainable symbol.

    `memory_budget` (bytes or text such as "512MiB") bounds everything this module owns on its device:
    parameters, gradients, states, optimizer states, inputs, outputs, activations, workspaces;
    `memory_plan` shows it.

    `offload` ("auto", or bytes): within the budget, arrays that backward needs may wait in host memory; on
    mx.cpu() a simulation that saves nothing.

    `fused_update`: True if the optimizer's update is part of the planned step, so that each gradient's
    bytes are free right after its update. None: `fit` fuses, hand-written loops of forward,
    backward and update do not (they can inspect gradients). When fused, `forward_backward` runs the
    whole step and `update` finishes it.

    `amp`: 'bfloat16' or 'float16' for mixed precision (docs/mixed_precision.md); parameters stay float32.
    `narrow_params`: for inference alone, keep in 16 bits the parameters that are read in 16 bits; loaded
    values are rounded once, and `get_params` returns the rounded ones.
    `loss_scale`: a number, or 'dynamic', that 16-bit gradients are multiplied with while they are 16-bit; an
    update whose gradients are not all finite is skipped, and 'dynamic' then halves the scale. bfloat16
    needs none. With float16 and none, gradients of 16-bit results below 6e-8 count as 0. All gradients are
    checked before the first update, so with a loss scale they all live until then.

    `device`: the device that the plan's seconds are modelled for: a `mx.memplan.Device`, text such as
    "20TFLOP/s,900GB/s", or "measured". It decides what is worth recomputing.

    `state_names`: arguments that are neither fed nor trained: they hold what `set_states` gives them.

    `streams`: number of kernels that a GPU may run concurrently, where the plan leaves them unordered.

    `records`: a file of schedules that `mxlite tune` has measured, as in `simple_bind`.

    `ranks`: what joins the processes of a job that train together, and what they share, as in
    `mx.memplan.Ranks(link="10Gbit/s")`. How many there are is the store's to say. Without it ranks may share
    the states of the optimizer within a budget, but not the weights: where they share these, all ranks call
    `get_params`, `save_params`, `forward` and `score`.
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
        memory_budget: Budgets = None,
        fused_update: bool | None = None,
        amp: Any = None,
        loss_scale: Any = None,
        device: Device | str | None = None,
        offload: Offload = None,
        streams: int = 1,
        records: str | None = None,
        narrow_params: bool = False,
        ranks: Ranks | int | None = None,
    ) -> None:
        contexts = contexts_of(context)
        work_loads = work_loads_of(work_load_list, len(contexts))
        wanted("Module: symbol", symbol, "a Symbol", Symbol)
        names = ArgumentNames.of(symbol, data_names, label_names, state_names, fixed_param_names)
        budgets = budgets_of(memory_budget, len(contexts))
        if len(contexts) > 1:
            if fused_update:
                raise BindError(
                    f"Module: fused_update=True is for one device: the gradients of {len(contexts)} contexts "
                    f"are summed before the update, which stands behind their steps."
                )
            fused_update = False
        device_of(device)  # these raise now what binding would raise later
        host_link(offload)
        check_streams(streams)
        training = Training(names, fused_update, LossScale.of(loss_scale, amp), logger_of(logger))
        options = dict(
            amp=amp_dtype(amp),
            device=device,
            offload=offload,
            streams=streams,
            records=records,
            ranks=Ranks(),
            group2ctx=groups_of(group2ctxs, contexts),
        )
        if narrow_params and amp is None:
            raise BindError("Module: narrow_params is for mixed precision; give amp='bfloat16' as well.")
        if len(contexts) == 1:
            binding = Binding(symbol, contexts[0], names, **options)
        else:
            binding = ParallelBinding(symbol, contexts, work_loads, names, **options)
        binding.narrow_params = narrow_params
        if ranks is not None:
            training.asked_ranks = Ranks.of(ranks)
        super().__init__(binding, training, budgets, logger)
        self._compression_params = compression_params  # of gradients, where other ranks share the store
        self._context = contexts  # a list in MXNet, whose programs read it
        self._stepped = False
        self._fed: dict[str, Any] | None = None  # arrays of the last batch
        self._counting = Counting()
        self._preload_states: str | None = None  # of a checkpoint, for the optimizer to come

    @property
    def _optimizer(self) -> Any:
        return self._training.optimizer  # its name in MXNet, whose programs change its rate

    @property
    def loss_scale(self) -> float | None:
        """The current factor of 16-bit gradients; None if there is none. Waits for the last step if that
        decides about it."""
        found = self._training.scale_state(self._binding)
        return None if found is None else found[0]

    # -- optimizer -----------------------------------------------------------------------------

    def prepare_fit(self, train_data: Any = None) -> None:
        self.await_optimizer()
        if self._training.fused is None and not self.binded:
            self._training.fused = True

    def await_optimizer(self) -> None:
        self._training.awaits = not self.binded

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Create the optimizer; `rescale_grad` is 1 / batch size of all workers unless given.

        With a store that other ranks share, such as 'dist_sync', all ranks begin with the parameters of rank
        0, and every update is by the sum of their gradients, inside the planned step if that has the update.
        BindError if the ranks differ in version, shapes or plan.

        Plans anew: optimizer states count against the budget, and a fused update changes live ranges.
        """
        self.need(params=True)
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        store = kvstores.create(kvstore) if isinstance(kvstore, str) else kvstore
        if store is not None:
            wanted("init_optimizer: kvstore", store, "a KVStore, its name, or None", kvstores.KVStore)
        workers = 1 if store is None else store.num_workers
        if store is not None and workers > 1 and self._compression_params is not None:
            store.set_gradient_compression(self._compression_params)
        optimizer = self._training.named(optimizer, optimizer_params, self._binding, workers)
        if not self.for_training:
            raise StateError("init_optimizer: this module was bound with for_training=False.")
        if isinstance(kvstore, str) and len(self._context) == 1 and workers == 1:
            store = None  # several devices have one in MXNet, whose programs look for its updater
        self._training.start(optimizer, store, self._binding)
        self.optimizer_initialized = True
        if self._preload_states is not None:
            self.load_optimizer_states(self._preload_states)
            self._preload_states = None

    def borrow_optimizer(self, shared_module: Module) -> None:
        """Update by another module's optimizer and states, which both share for equal parameters."""
        if not shared_module.optimizer_initialized:
            raise StateError("borrow_optimizer: the other module has no optimizer; call its init_optimizer.")
        self._training.borrow(shared_module._training)
        if self.binded:
            self._training.plan(self._binding)
        self.optimizer_initialized = True

    # -- metrics -------------------------------------------------------------------------------

    def prepare_metric(self, metric: EvalMetric) -> None:
        if self._binding.context.device_type != "gpu" or type(self).update_metric is not Module.update_metric:
            return
        labels = {d.name: d.shape for d in self._binding.label_shapes}
        counting = Counting()
        counting.plan(metric, labels, dict(self.output_shapes))
        self._count(counting)

    def share_metric(self, other: Module) -> None:
        """Count in steps what another module's steps count, to the same sums, if names of arrays agree."""
        same = (other._names.label, other._output_names) == (self._names.label, self._output_names)
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
        """As `counting`; `present` gives the module of the next or the last step."""
        return self._counting.going_on(lambda: present()._executor)

    # -- running -------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run forward on a batch. Another batch size is bound automatically."""
        is_train = self.for_training if is_train is None else is_train
        feed = self._prepared(data_batch, is_train)
        self._present.forward(feed, is_train)

    def forward_backward(self, data_batch: Any) -> None:
        """Forward in training mode and backward, pushed together, so that on a GPU they are one launch."""
        cls = type(self)
        if cls.forward is not Module.forward or cls.backward is not Module.backward:
            super().forward_backward(data_batch)  # a subclass has overridden it
            return
        feed = self._prepared(data_batch, True)
        if self._executor.updated:
            self._executor.step(self._training.hyper(self._binding), **feed)
            self._stepped = True
        else:
            self._binding.forward_backward(feed)

    def _prepared(self, data_batch: Any, is_train: bool) -> dict[str, Any]:
        """Feed of the executor for this batch, after everything is ready to run."""
        self.need(params=True)
        feed = self._binding.feed(data_batch)
        self._turn_to(data_batch, feed, is_train)
        feed = self._fed = {n: a for n, a in feed.items() if self._present.executor.has_argument(n)}
        if is_train:
            self._have_steps()
        self._stepped = False
        if is_train and self.for_training:
            self._counting.step()
        else:
            self._counting.other()
        if not self.is_fused:
            self._training.follow(self._binding)
        return feed

    def _have_steps(self) -> None:
        """Plan training, if no step has been planned yet."""
        if not self.for_training or self._binding.plan_gradients:
            return
        if self._training.fused and self._training.optimizer is None:
            raise StateError(
                "this module was made with fused_update=True: call init_optimizer before training."
            )
        self._training.plan(self._binding)  # without an optimizer: the user updates himself

    @property
    def _ran_inference_alone(self) -> bool:
        """True if the last program has no backward pass."""
        return self._present is not self._binding or self._binding.forward_only

    def _turn_to(self, data_batch: Any, feed: Mapping[str, Any], is_train: bool) -> None:
        """Select a program for a batch: one for training, or that of steps if there is one."""
        training = self._binding
        shapes = training.other_shapes(data_batch, feed)
        if shapes is None:
            self._evaluation.rest(training)
        elif is_train or not training.plan_gradients:
            self.reshape(*shapes)
        elif training.has(*shapes) and not self._evaluation.has(*shapes):
            self.reshape(*shapes)
        else:
            self._evaluation.turn_to(training, shapes, data_batch, feed)

    def backward(self, out_grads: Any = None) -> None:
        """Run backward; with a fused update this runs the update as well."""
        self.need(params=True)
        if self._fed is not None and not self.is_fused and self._ran_inference_alone:
            # A step for these shapes, which checks itself if this forward pass was one for backward.
            self.reshape(self._present.data_shapes, self._present.label_shapes)
            self._have_steps()
            if not self.is_fused:
                self._binding.forward(self._fed, False)
        executor = self._executor
        if executor.updated:
            if out_grads is not None:
                raise StateError(
                    "backward: a fused step takes no out_grads; make the module with fused_update=False."
                )
            executor.finish_step(self._training.hyper(self._binding))
            self._stepped = True
        elif self._fed is None:
            raise StateError("backward: run forward first.")
        else:
            self._binding.backward(out_grads)

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
        """Outputs of the last forward; without `merge_multi_context` each as a list of the devices' parts."""
        self.need(params=True)
        present = self._present
        if not present.executor.has_run:
            raise StateError("get_outputs: call forward first; there are no outputs yet.")
        parts = list(zip(*(e.outputs for e in present.executors)))
        return present.parts.merged(parts, merge_multi_context, present.output_axes)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Gradients of the data, if bound with inputs_need_grad; None where grad_req is 'null'."""
        self.need(params=True)
        if not self.inputs_need_grad:
            raise StateError("get_input_grads: bind with inputs_need_grad=True.")
        executors = self._binding.executors
        grads = [[e.grad_dict[name] for e in executors] for name in self._names.data]
        if any(parts[0] is not None for parts in grads) and not executors[0].has_gradients:
            raise StateError("get_input_grads: call forward and backward first; there are no gradients yet.")
        axes = [DataDesc.get_batch_axis(d.layout) for d in self._binding.data_shapes]
        return self._binding.parts.merged(grads, merge_multi_context, axes)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Add the outputs of the last forward to the metric, device by device; it may complete after
        the return.

        pre_sliced: `labels` are a list for each device.
        """
        wanted("update_metric: eval_metric", eval_metric, "an EvalMetric", has=("update_later",))
        if labels is not None:
            wanted("update_metric: labels", labels, "a list of NDArrays", list, tuple)
        present, fed = self._present, self._fed or {}
        described = self._binding.label_shapes
        for i, executor in enumerate(present.executors):
            # Fed arrays are read from beside the outputs: on a GPU that saves copies.
            here, there = executor.arg_dict, {}
            mine = labels[i] if pre_sliced and labels is not None and len(self._context) > 1 else labels
            for d, a in zip(described, mine or []):
                is_cut = mine is not labels
                part = a if is_cut else present.parts.cut(a, DataDesc.get_batch_axis(d.layout), i)
                there[d.name] = here[d.name] if fed.get(d.name) is a else part
            eval_metric.update_later(there, dict(zip(self._output_names, executor.outputs)))

    # -- files ---------------------------------------------------------------------------------

    def save_params(self, fname: str) -> None:
        """Write parameters as MXNet's container with `arg:` and `aux:` names. No copy of them is made."""
        self.need(params=True)
        save_params(fname, *self._parameters())

    def load_params(self, fname: str) -> None:
        """Read what `save_params`, or MXNet, wrote: a piece at a time into the arrays that are there."""
        self.set_params(*stored_params(fname))

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

    def save_optimizer_states(self, fname: str) -> None:
        """Write the optimizer's states (mxlite's own form; never a pickle).

        Where ranks share the states, all of them call it, and each writes its part beside `fname`.
        """
        shards.write(fname, self._state_tree())

    def load_optimizer_states(self, fname: str) -> None:
        """Read what `save_optimizer_states` wrote, on any number of ranks; MXNet's pickles are refused."""
        path = wanted_path("load_optimizer_states: fname", fname)
        self.need(params=True, optimizer=True)
        self._training.restore_states(shards.read(path).tree, self._binding)

    def _state_tree(self) -> dict[str, Any]:
        self.need(params=True, optimizer=True)
        return self._training.state_tree(self._binding)

    # -- going on after a stop -----------------------------------------------------------------

    @property
    def resume_bytes(self) -> int:
        args, aux = self._binding.arg_dict, self._binding.mean_aux_dict
        return states.nbytes(
            [
                *(args[n] for n in self._names.parameters),
                *aux.values(),
                *self._training.updater.states.values(),
            ]
        )

    def resume_moment(self, train_data: Any) -> resume.Moment:
        return resume.Moment.of(train_data, self._context)

    def save_resume_state(
        self, prefix: str, epoch: int, nbatch: int, train_data: Any, moment: Any = None
    ) -> None:
        """Write PREFIX.resume: all that decides how training goes on. One file, replaced whole.

        Ranks that train together and have one prefix make one checkpoint: see `saved/shards.py`.
        """
        moment = self.resume_moment(train_data) if moment is None else moment
        state, scale = self._state_tree(), self._training.scale_state(self._binding)
        together = self._training.have_in_common(prefix)
        if together:
            self._training.agree("The position to go on from", f"epoch {epoch}, batch {nbatch}")
        have, parts, aux = self._binding.arg_dict, self._binding.of_ranks, self._binding.mean_aux_dict
        args = {n: shards.Shard(have[n], parts[n]) if n in parts else have[n] for n in self._names.parameters}
        resume.save(prefix, epoch, nbatch, args, aux, state, moment, scale, together)

    def load_resume_state(self, prefix: str, train_data: Any) -> tuple[int, int] | None:
        """Continue from PREFIX.resume: (epoch, batches done in it); None if there is no such file.

        If another number of ranks has written it, an epoch that was begun is begun again. BindError if other
        ranks would go on from another position.
        """
        ranks = self._training.ranks
        own = ranks > 1 and not self._training.have_in_common(prefix)
        found = resume.load(prefix, self._training.rank, None if own else ranks)
        where = "none" if found is None else f"epoch {found.epoch}, batch {found.nbatch}"
        self._training.agree("The position to go on from", where)
        if found is None:
            self.logger.info("There is no %s.resume to go on from; starting anew.", prefix)
            return None
        self.set_params(found.args, found.aux)
        self._training.restore_states(found.state_tree(), self._binding)
        self._training.restore_scale(found.loss_scale, self._binding)
        found.restore_randomness(train_data, self._context)
        return found.epoch, found.nbatch

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """A module from a checkpoint; `kwargs` go to the constructor. Bind it before use."""
        module = Module(load_symbol(f"{prefix}-symbol.json"), **kwargs)
        module._preloaded = stored_params(f"{prefix}-{epoch:04d}.params")
        if load_optimizer_states:
            module._preload_states = f"{prefix}-{epoch:04d}.states"
        return module
