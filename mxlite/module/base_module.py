"""The training loop, in terms of the operations that every kind of module has."""

from __future__ import annotations

import errno
import time
from typing import Any

from ..core import StateError
from ..core.bytesize import format_bytes
from ..core.errors import file_error, FileError
from ..core.files import check_writable, room
from ..core.wanted import wanted, whole
from .initial.initializer import Uniform
from .metrics import metric as metric_module
from .module_contract import as_list
from .scored_module import Callbacks, check_callbacks, check_data, ScoredModule
from .watch.callback import BatchEndParam
from .watch.interrupt import Interrupt


class BaseModule(ScoredModule):
    """A module that can be trained, with `fit`, `score` and `predict`; see Module.

    ModuleContract lists what a subclass defines.
    """

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
                    self._call(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
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
        copies: Any = None
        for callback in as_list(callbacks):
            if getattr(callback, "only_reads", False):
                callback(epoch, self.symbol, *self._parameters())
            else:
                copies = self.get_params() if copies is None else copies
                callback(epoch, self.symbol, *copies)

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
