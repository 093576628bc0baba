"""BaseModule: what every kind of module can do, the training loop among it."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from ..core import StateError
from ..core.bytesize import format_bytes
from ..core.disk.files import check_writable, room
from ..core.errors import file_error, FileError, MissingMethodError
from ..core.log import logger_of
from ..core.wanted import wanted, whole
from ..ndarray import NDArray
from . import prediction
from .initial.initializer import Uniform
from .loop_arguments import as_list, call_all, Callbacks, check_callbacks, check_data
from .metrics import metric as metric_module
from .metrics.metric_base import EvalMetric
from .watch.callback import BatchEndParam
from .watch.interrupt import Interrupt


def missing(module: Any, what: str, name: str) -> MissingMethodError:
    """The error of a module that "does not say how to bind", since its class has no `name`."""
    return MissingMethodError(f"{type(module).__name__} {what}: its class must define {name}.")


class BindArguments(NamedTuple):
    """The arguments of a module's `bind`."""

    data_shapes: Any
    label_shapes: Any
    for_training: bool
    inputs_need_grad: bool
    force_rebind: bool
    shared_module: Any
    grad_req: Any


class BaseModule:
    """A module that can be trained: what `fit`, `score` and `predict` need, and they; see Module.

    A subclass has bind, init_params, init_optimizer, forward, backward, update, get_outputs, update_metric,
    get_params, set_params and the three `save_resume_state`, `load_resume_state`, `prepare_fit`.
    """

    def __init__(self, logger: Any = logging) -> None:
        self.logger = logger_of(logger)
        self.binded = False
        self.for_training = False
        self.inputs_need_grad = False
        self.params_initialized = False
        self.optimizer_initialized = False
        self._symbol: Any = None

    # -- what subclasses do --------------------------------------------------------------------

    @property
    def data_names(self) -> Any:
        """Names of the data that a batch feeds."""
        raise missing(self, "does not say what its data is called", "data_names")

    @property
    def output_names(self) -> Any:
        """Names of the outputs."""
        raise missing(self, "does not say what its outputs are called", "output_names")

    @property
    def data_shapes(self) -> Any:
        """The data it is bound for: a DataDesc, or (name, shape), for each of `data_names`."""
        raise missing(self, "does not say what its data is", "data_shapes")

    @property
    def label_shapes(self) -> Any:
        """The labels it is bound for, as in `data_shapes`; nothing if it has none."""
        raise missing(self, "does not say what its labels are", "label_shapes")

    @property
    def output_shapes(self) -> Any:
        """(name, shape) of each output."""
        raise missing(self, "does not say what its outputs are", "output_shapes")

    def bind(
        self,
        data_shapes: Any,
        label_shapes: Any = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Any = None,
        grad_req: Any = "write",
    ) -> None:
        """Plan and allocate for these input shapes: lists of (name, shape) or DataDesc.

        MXNet keeps an existing binding, unless `force_rebind`.
        """
        if not self.stays_bound(force_rebind):
            options = for_training, inputs_need_grad, force_rebind, shared_module, grad_req
            self._bind(BindArguments(data_shapes, label_shapes, *options))

    def _bind(self, b: BindArguments) -> None:
        """`bind`, where there is no binding that stays."""
        raise missing(self, "does not say how to bind", "bind()")

    def init_params(self, *args: Any, **options: Any) -> None:
        """Give every parameter a value."""
        raise missing(self, "does not say how to initialise parameters", "init_params()")

    def init_optimizer(self, *args: Any, **options: Any) -> None:
        """Make what updates the parameters."""
        raise missing(self, "does not say how to make an optimizer", "init_optimizer()")

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run forward on a batch; `is_train` None: as it was bound."""
        raise missing(self, "does not say how to run forward", "forward()")

    def backward(self, out_grads: Any = None) -> None:
        """Run backward, with the gradients of the outputs unless they are losses."""
        raise missing(self, "does not say how to run backward", "backward()")

    def update(self) -> None:
        """Apply the optimizer to all parameters."""
        raise missing(self, "does not say how to update", "update()")

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Outputs of the last forward."""
        raise missing(self, "does not say what its outputs are", "get_outputs()")

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """The arrays named by `state_names`, if the module has any."""
        self.need(params=True)
        return []

    def set_states(self, states: Any = None, value: float | None = None) -> None:
        """Assign them; refused where there are none."""
        self.need(params=True)
        if states or value:
            raise StateError(
                f"set_states: this {type(self).__name__} has no states; name them in state_names."
            )

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Let the metric see the outputs of the last forward."""
        raise missing(self, "does not say how to update a metric", "update_metric()")

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Copies of (arguments, auxiliary states) by name."""
        raise missing(self, "does not say what its parameters are", "get_params()")

    def install_monitor(self, mon: Any) -> None:
        """Have a Monitor look into this module."""
        raise missing(self, "has nothing that a monitor could look into", "install_monitor()")

    def prepare_fit(self, train_data: Any = None) -> None:
        """Called by `fit` before bind."""
        self.await_optimizer()

    def expecting(self, train_data: Any, eval_data: Any = None) -> AbstractContextManager[None]:
        """Inside, `fit` plans its steps: a budget is for those on `train_data` and for inference on
        `eval_data`. What they provide is bound when it ends."""
        return nullcontext()

    def await_optimizer(self) -> None:
        """Called before bind by who is sure to call `init_optimizer`: a budget is for its states too."""

    def resume_moment(self, train_data: Any) -> Any:
        """The positions in random numbers and data, for `save_resume_state`; None if they are not known."""
        return None

    def save_resume_state(
        self, prefix: str, epoch: int, nbatch: int, train_data: Any, moment: Any = None
    ) -> None:
        """Write what `load_resume_state` reads: as things are, or were at a `resume_moment`."""
        raise missing(self, "cannot be resumed", "save_resume_state()")

    def load_resume_state(self, prefix: str, train_data: Any) -> tuple[int, int] | None:
        """Go on from there: (epoch, batches done in it); None if nothing was written."""
        raise missing(self, "cannot be resumed", "load_resume_state()")

    # -- using it ------------------------------------------------------------------------------

    @property
    def symbol(self) -> Any:
        """The network."""
        return self._symbol

    def stays_bound(self, force_rebind: bool) -> bool:
        """True if `bind` has nothing to do, which the log then says: MXNet keeps an existing binding."""
        if not self.binded or force_rebind:
            return False
        self.logger.warning("Already bound, ignoring bind()")
        return True

    def need(self, *, params: bool = False, optimizer: bool = False) -> None:
        """Raise StateError unless bound (and initialised)."""
        if not self.binded:
            raise StateError("call bind first: this module has no arrays yet.")
        if params and not self.params_initialized:
            raise StateError("call init_params first: the parameters have no values yet.")
        if optimizer and not self.optimizer_initialized:
            raise StateError("call init_optimizer first: nothing says how to update.")

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Do nothing: loops written after MXNet's `fit` call this before a batch."""
        self.need()

    def forward_backward(self, data_batch: Any) -> None:
        """Forward in training mode, then backward."""
        self.forward(data_batch, is_train=True)
        self.backward()

    def prepare_metric(self, metric: EvalMetric) -> None:
        """Called by `fit` before there is an optimizer: `metric` is what it will look at."""

    def counting(self) -> AbstractContextManager[None]:
        """Inside, training steps may add to that metric by themselves."""
        return nullcontext()

    def train_step(self, data_batch: Any) -> None:
        """One step of training: forward, backward, update."""
        self.forward_backward(data_batch)
        self.update()

    # -- over data -----------------------------------------------------------------------------

    def score(
        self,
        eval_data: Any,
        eval_metric: Any,
        num_batch: int | None = None,
        batch_end_callback: Callbacks = None,
        score_end_callback: Callbacks = None,
        reset: bool = True,
        epoch: int = 0,
        sparse_row_id_fn: Any = None,
    ) -> list[tuple[str, float]]:
        """Evaluate the metric over `eval_data`; (name, value) pairs."""
        self.need(params=True)
        check_data("score: eval_data", eval_data)
        for what, given in (("batch_end", batch_end_callback), ("score_end", score_end_callback)):
            check_callbacks(f"score: {what}_callback", given)
        num_batch = None if num_batch is None else whole("score: num_batch", num_batch, 0)
        if reset:
            eval_data.reset()
        eval_metric = metric_module.create(eval_metric)
        eval_metric.reset()
        seen = 0
        for nbatch, batch in enumerate(eval_data):
            if num_batch is not None and nbatch == num_batch:
                break
            self.forward(batch, is_train=False)
            self._metric_of_batch(eval_metric, batch)
            seen = nbatch + 1
            call_all(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
        call_all(score_end_callback, BatchEndParam(epoch, seen, eval_metric, locals()))
        return list(eval_metric.get_name_value())

    def _metric_of_batch(self, eval_metric: Any, batch: Any) -> None:
        if isinstance(batch, list):
            self.update_metric(eval_metric, [b.label for b in batch], pre_sliced=True)
        else:
            self.update_metric(eval_metric, batch.label)

    def iter_predict(
        self, eval_data: Any, num_batch: int | None = None, reset: bool = True, sparse_row_id_fn: Any = None
    ) -> Iterator[tuple[list[NDArray], int, Any]]:
        """Yield (outputs, batch number, batch), padding rows cut off."""
        return prediction.iter_predict(self, eval_data, num_batch, reset)

    def predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        merge_batches: bool = True,
        reset: bool = True,
        always_output_list: bool = False,
        sparse_row_id_fn: Any = None,
    ) -> Any:
        """Outputs for all of `eval_data` (an iterator, or an array for one batch).

        Merged over batches: an NDArray, or a list of them for several outputs; else a list per batch.
        """
        return prediction.predict(self, eval_data, num_batch, merge_batches, reset, always_output_list)

    def fit(
        self,
        train_data: Any,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Callbacks = None,
        batch_end_callback: Callbacks = None,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        eval_end_callback: Callbacks = None,
        eval_batch_end_callback: Callbacks = None,
        initializer: Any = None,
        arg_params: Any = None,
        aux_params: Any = None,
        allow_missing: bool = False,
        force_rebind: bool = False,
        force_init: bool = False,
        begin_epoch: int = 0,
        num_epoch: int | None = None,
        validation_metric: Any = None,
        monitor: Any = None,
        sparse_row_id_fn: Any = None,
        checkpoint_prefix: str | None = None,
        resume: bool = False,
    ) -> None:
        """Train for `num_epoch` epochs.

        Binds, initialises parameters (Uniform(0.01) by default) and creates the optimizer unless that is done
        already. Within a `memory_budget` the batches of both iterators, by the shapes they provide, are
        planned for before the first step, also if the module is bound already: none of them is refused later.

        With `checkpoint_prefix`, Ctrl-C finishes the batch at hand, writes `PREFIX.resume` and
        raises KeyboardInterrupt; the file is also written after each epoch. `resume=True` continues from it,
        to bitwise the same weights as a run that was never stopped. A second Ctrl-C stops at once. In
        callbacks at the end of an epoch and in its evaluation the first one does; they are run once more when
        training is resumed.
        If nothing can be written there, FileError is raised before the first step.
        """
        if num_epoch is None:
            raise StateError("fit needs num_epoch: the number of epochs to train.")
        num_epoch = whole("fit: num_epoch", num_epoch, 0)
        begin_epoch = whole("fit: begin_epoch", begin_epoch, 0)
        check_data("fit: train_data", train_data)
        if eval_data is not None:
            check_data("fit: eval_data", eval_data)
        if monitor is not None:
            wanted("fit: monitor", monitor, "a Monitor", has=("install", "tic", "toc_print"))
        for what, given in (
            ("epoch_end", epoch_end_callback),
            ("batch_end", batch_end_callback),
            ("eval_end", eval_end_callback),
            ("eval_batch_end", eval_batch_end_callback),
        ):
            check_callbacks(f"fit: {what}_callback", given)
        if resume and checkpoint_prefix is None:
            raise StateError("fit: resume=True needs the checkpoint_prefix of the run to continue.")
        written = [c.writes for c in as_list(epoch_end_callback) if hasattr(c, "writes")]
        for path in (*written, *(() if checkpoint_prefix is None else (f"{checkpoint_prefix}.resume",))):
            _check_room(path, 0)
        self.prepare_fit(train_data)
        self.bind(
            data_shapes=train_data.provide_data,
            label_shapes=train_data.provide_label,
            for_training=True,
            force_rebind=force_rebind,
        )
        if monitor is not None:
            self.install_monitor(monitor)
        self.init_params(
            initializer=initializer if initializer is not None else Uniform(0.01),
            arg_params=arg_params,
            aux_params=aux_params,
            allow_missing=allow_missing,
            force_init=force_init,
        )
        validation_metric = validation_metric if validation_metric is not None else eval_metric
        eval_metric = metric_module.create(eval_metric)
        self.prepare_metric(eval_metric)
        with self.expecting(train_data, eval_data):
            self.init_optimizer(kvstore=kvstore, optimizer=optimizer, optimizer_params=optimizer_params)

        if checkpoint_prefix is not None:
            _check_room(f"{checkpoint_prefix}.resume", self.resume_bytes)
        done = 0  # batches of the first epoch that an earlier run has done
        if resume:
            assert checkpoint_prefix is not None
            position = self.load_resume_state(checkpoint_prefix, train_data)
            if position is not None:
                begin_epoch, done = position

        with self.counting(), Interrupt() as interrupt:
            for epoch in range(begin_epoch, num_epoch):
                started = time.time()
                eval_metric.reset()
                nbatch = done
                for batch in train_data:
                    if monitor is not None:
                        monitor.tic()
                    self.train_step(batch)
                    self._metric_of_batch(eval_metric, batch)
                    if monitor is not None:
                        monitor.toc_print()
                    call_all(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
                    nbatch += 1
                    if interrupt.asked:
                        self._stop(checkpoint_prefix, epoch, nbatch, train_data)
                        raise KeyboardInterrupt
                if nbatch > done or not done:  # otherwise an earlier run has reported it
                    for name, value in eval_metric.get_global_name_value():
                        self.logger.info("Epoch[%d] Train-%s=%f", epoch, name, value)
                    self.logger.info("Epoch[%d] Time cost=%.3f", epoch, time.time() - started)
                done = 0
                moment = None
                if checkpoint_prefix is not None:  # evaluation may draw random numbers
                    moment = self.resume_moment(train_data)
                try:
                    with interrupt.at_once():
                        self._end_epoch(epoch_end_callback, epoch)
                        if eval_data is not None:
                            result = self.score(
                                eval_data,
                                validation_metric,
                                score_end_callback=eval_end_callback,
                                batch_end_callback=eval_batch_end_callback,
                                epoch=epoch,
                            )
                            for name, value in result:
                                self.logger.info("Epoch[%d] Validation-%s=%f", epoch, name, value)
                except KeyboardInterrupt:
                    self._stop(checkpoint_prefix, epoch, nbatch, train_data, moment)
                    raise
                train_data.reset()
                if checkpoint_prefix is not None:
                    self.save_resume_state(checkpoint_prefix, epoch + 1, 0, train_data)
                if interrupt.asked:
                    raise KeyboardInterrupt

    def _stop(self, prefix: str | None, epoch: int, nbatch: int, train_data: Any, moment: Any = None) -> None:
        """Write the state of training, for `resume=True`."""
        if prefix is not None:
            more = {} if moment is None else {"moment": moment}
            self.save_resume_state(prefix, epoch, nbatch, train_data, **more)
            self.logger.info(
                "Interrupted in epoch %d after batch %d; resume=True continues here.", epoch, nbatch
            )

    def _end_epoch(self, callbacks: Callbacks, epoch: int) -> None:
        """Call the callbacks for the end of an epoch, with copies of the parameters, made once if at all."""
        self.average_states()
        copies: Any = None
        for callback in as_list(callbacks):
            if getattr(callback, "only_reads", False):
                callback(epoch, self.symbol, *self._parameters())
            else:
                copies = self.get_params() if copies is None else copies
                callback(epoch, self.symbol, *copies)

    def average_states(self) -> None:
        """Give all devices the means of their auxiliary states; `fit` does so after each epoch."""

    def _parameters(self) -> tuple[Any, Any]:
        """Parameters as in `get_params`, but the arrays themselves if possible: for reading only."""
        return self.get_params()

    @property
    def resume_bytes(self) -> int:
        """Approximate number of bytes that `save_resume_state` writes; 0 if unknown."""
        return 0


def _check_room(path: str, nbytes: int) -> None:
    """Raise FileError if no file of so many bytes can be written there, as far as can be known beforehand."""
    try:
        check_writable(path)
    except OSError as error:
        told = f"fit could not write its checkpoints: {error.strerror}"
        raise file_error(error, path, told) from None
    free = room(path)
    if free is not None and free < nbytes:
        told = f"fit could not write its checkpoints: they take {format_bytes(nbytes)}, free are"
        raise FileError(errno.ENOSPC, f"{told} {format_bytes(free)}", path)
