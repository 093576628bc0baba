"""The training loop, in terms of what every kind of module can do."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any

import numpy as np

from ..core import StateError
from ..core.wanted import wanted, wanted_function, whole
from ..ndarray import array, concatenate, NDArray
from . import metric as metric_module
from .callback import BatchEndParam
from .initializer import Uniform

Callbacks = Callable[..., Any] | list[Callable[..., Any]] | None


def as_list(value: Any) -> list[Any]:
    """A list or tuple as a list, None as the empty one, anything else as a list of one."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def by_device(arrays: list[Any], merged: bool) -> list[Any]:
    """`arrays`, or as MXNet gives them unmerged: for each a list over devices, of which there is one."""
    return arrays if merged else [[a] for a in arrays]


class BaseModule:
    """What `fit`, `score` and `predict` need; see Module.

    A subclass has bind, init_params, init_optimizer, forward, backward, update, get_outputs, update_metric,
    get_params, set_params and the three `save_resume_state`, `load_resume_state`, `prepare_fit`.
    """

    def __init__(self, logger: Any = logging) -> None:
        self.logger = logger
        self.binded = False
        self.for_training = False
        self.inputs_need_grad = False
        self.params_initialized = False
        self.optimizer_initialized = False
        self._symbol: Any = None

    # -- what subclasses do --------------------------------------------------------------------

    def bind(self, data_shapes: Any, label_shapes: Any = None, **options: Any) -> None:
        raise TypeError(f"{type(self).__name__} does not say how to bind.")

    def init_params(self, *args: Any, **options: Any) -> None:
        raise TypeError(f"{type(self).__name__} does not say how to initialise parameters.")

    def init_optimizer(self, *args: Any, **options: Any) -> None:
        raise TypeError(f"{type(self).__name__} does not say how to make an optimizer.")

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        raise TypeError(f"{type(self).__name__} does not say how to run forward.")

    def backward(self, out_grads: Any = None) -> None:
        raise TypeError(f"{type(self).__name__} does not say how to run backward.")

    def update(self) -> None:
        raise TypeError(f"{type(self).__name__} does not say how to update.")

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        raise TypeError(f"{type(self).__name__} does not say what its outputs are.")

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
        raise TypeError(f"{type(self).__name__} does not say how to update a metric.")

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        raise TypeError(f"{type(self).__name__} does not say what its parameters are.")

    def install_monitor(self, mon: Any) -> None:
        raise TypeError(f"{type(self).__name__} has nothing that a monitor could look into.")

    def prepare_fit(self) -> None:
        """Called by `fit` before bind."""

    def save_resume_state(self, prefix: str, epoch: int, nbatch: int, train_data: Any) -> None:
        raise TypeError(f"{type(self).__name__} cannot be resumed.")

    def load_resume_state(self, prefix: str, train_data: Any) -> tuple[int, int] | None:
        raise TypeError(f"{type(self).__name__} cannot be resumed.")

    # -- using it ------------------------------------------------------------------------------

    @property
    def symbol(self) -> Any:
        """The network."""
        return self._symbol

    def stays_bound(self, force_rebind: bool) -> bool:
        """Whether `bind` has nothing to do, which it says in the log: MXNet keeps an existing binding."""
        if not self.binded or force_rebind:
            return False
        self.logger.warning("Already bound, ignoring bind()")
        return True

    def need(self, *, params: bool = False, optimizer: bool = False) -> None:
        """Raise StateError unless bound (and initialised)."""
        if not self.binded:
            raise StateError("call bind before adding anything else: this module has no arrays yet.")
        if params and not self.params_initialized:
            raise StateError("call init_params first: the parameters have no values yet.")
        if optimizer and not self.optimizer_initialized:
            raise StateError("call init_optimizer first: nothing says how to update.")

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """What loops after MXNet's `fit` call ahead of a batch's turn; nothing has to be done."""
        self.need()

    def forward_backward(self, data_batch: Any) -> None:
        """Forward in training mode, then backward."""
        self.forward(data_batch, is_train=True)
        self.backward()

    def prepare_metric(self, metric: metric_module.EvalMetric) -> None:
        """Called by `fit` before there is an optimizer: `metric` is what it will look at."""

    def counting(self) -> AbstractContextManager[None]:
        """Inside, training steps may add to that metric by themselves."""
        return nullcontext()

    def train_step(self, data_batch: Any) -> None:
        """One step of training: forward, backward, update."""
        self.forward_backward(data_batch)
        self.update()

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
        _check_data("score: eval_data", eval_data)
        for what, given in (("batch_end", batch_end_callback), ("score_end", score_end_callback)):
            _check_callbacks(f"score: {what}_callback", given)
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
            self._call(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
        self._call(score_end_callback, BatchEndParam(epoch, seen, eval_metric, locals()))
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
        self.need(params=True)
        _check_data("predict: eval_data", eval_data)
        if reset:
            eval_data.reset()
        for nbatch, batch in enumerate(eval_data):
            if num_batch is not None and nbatch == num_batch:
                break
            self.forward(batch, is_train=False)
            pad = batch.pad or 0
            yield [out[0 : out.shape[0] - pad] for out in self.get_outputs()], nbatch, batch

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
        self.need(params=True)
        if isinstance(eval_data, (NDArray, np.ndarray)):
            from ..io import DataBatch

            data = eval_data if isinstance(eval_data, NDArray) else array(eval_data)
            self.forward(DataBatch([data]), is_train=False)
            return self.get_outputs()[0]
        batches = [
            [o.copy() for o in outputs] for outputs, _, _ in self.iter_predict(eval_data, num_batch, reset)
        ]
        if not batches or not merge_batches:
            return batches
        if len({len(b) for b in batches}) != 1:
            raise StateError("Batches gave different numbers of outputs; ask for merge_batches=False.")
        merged = [concatenate(list(parts)) for parts in zip(*batches)]
        return merged[0] if len(merged) == 1 and not always_output_list else merged

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

        Binds, initialises parameters (Uniform(0.01) by default) and makes the optimizer unless that is done
        already. With `checkpoint_prefix`, Ctrl-C finishes the batch at hand, writes `PREFIX.resume` and
        raises KeyboardInterrupt; the file is also written after each epoch. `resume=True` continues from it,
        to bitwise the same weights as a run that was never stopped. A second Ctrl-C stops at once.
        """
        if num_epoch is None:
            raise StateError("fit needs num_epoch: the number of epochs to train.")
        num_epoch = whole("fit: num_epoch", num_epoch, 0)
        begin_epoch = whole("fit: begin_epoch", begin_epoch, 0)
        _check_data("fit: train_data", train_data)
        if eval_data is not None:
            _check_data("fit: eval_data", eval_data)
        if monitor is not None:
            wanted("fit: monitor", monitor, "a Monitor", has=("install", "tic", "toc_print"))
        for what, given in (
            ("epoch_end", epoch_end_callback),
            ("batch_end", batch_end_callback),
            ("eval_end", eval_end_callback),
            ("eval_batch_end", eval_batch_end_callback),
        ):
            _check_callbacks(f"fit: {what}_callback", given)
        if resume and checkpoint_prefix is None:
            raise StateError("fit: resume=True needs the checkpoint_prefix of the run to continue.")
        self.prepare_fit()
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
        self.init_optimizer(kvstore=kvstore, optimizer=optimizer, optimizer_params=optimizer_params)

        done = 0  # batches of the first epoch that an earlier run has done
        if resume:
            assert checkpoint_prefix is not None
            position = self.load_resume_state(checkpoint_prefix, train_data)
            if position is not None:
                begin_epoch, done = position

        with self.counting(), _Interrupt() as interrupt:
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
                    self._call(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
                    nbatch += 1
                    if interrupt.asked:
                        if checkpoint_prefix is not None:
                            self.save_resume_state(checkpoint_prefix, epoch, nbatch, train_data)
                            self.logger.info(
                                "Interrupted in epoch %d after batch %d; resume=True continues here.",
                                epoch,
                                nbatch,
                            )
                        raise KeyboardInterrupt
                done = 0
                for name, value in eval_metric.get_global_name_value():
                    self.logger.info("Epoch[%d] Train-%s=%f", epoch, name, value)
                self.logger.info("Epoch[%d] Time cost=%.3f", epoch, time.time() - started)
                if epoch_end_callback is not None:
                    arg, aux = self.get_params()
                    self._call(epoch_end_callback, epoch, self.symbol, arg, aux)
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
                train_data.reset()
                if checkpoint_prefix is not None:
                    self.save_resume_state(checkpoint_prefix, epoch + 1, 0, train_data)

    @staticmethod
    def _call(callbacks: Callbacks, *args: Any) -> None:
        for callback in as_list(callbacks):
            callback(*args)


def _check_data(name: str, value: Any) -> None:
    wanted(name, value, "a DataIter", has=("provide_data", "reset", "__iter__"))


def _check_callbacks(name: str, value: Any) -> None:
    for callback in as_list(value):
        wanted_function(name, callback, "a function or a list of them")


class _Interrupt:
    """While it is open, a first Ctrl-C only sets `asked`; a second one interrupts as usual.

    An update that is cut off in the middle would leave weights that no run without the interrupt has.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> _Interrupt:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before is not None and before is not signal.SIG_IGN:
                self._before = before
                signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.signal(signal.SIGINT, self._before)
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
