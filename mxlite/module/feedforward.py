"""`mx.model.FeedForward`: a network with its parameters, trained or used by a single call."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core import BindError, Context, cpu, MXLiteError, StateError
from ..core.errors import ArgumentError, nearest
from ..core.log import logger_of
from ..ndarray import NDArray
from ..symbol import Symbol
from . import array_data
from .bucketing_module import BucketingModule
from .initial.initializer import Uniform
from .loop_arguments import call_all, Callbacks
from .metrics import metric as metrics
from .module import Module
from .optim import optimizer as optimizers
from .saved.checkpoint import load_checkpoint, save_checkpoint
from .watch.callback import BatchEndParam, LogValidationMetricsCallback

Params = Mapping[str, NDArray]


class FeedForward:
    """A network and, once trained or loaded, its parameters `arg_params` and `aux_params`.

    MXNet's oldest way to train; `mx.mod.Module` does the same and more, and does the work here.

    symbol: the network, or a function from a bucket's key to its network. num_epoch, begin_epoch:
    epochs are those from `begin_epoch` up to `num_epoch`. epoch_size: batches in an epoch; without it an
    epoch ends with the data. numpy_batch_size: batch size for data that are an array. allow_extra_params:
    True if parameters that the network lacks are dropped. memory_budget: as in Module. `kwargs` go to the
    optimizer.
    """

    def __init__(
        self,
        symbol: Any,
        ctx: Context | Sequence[Context] | None = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: Any = "sgd",
        initializer: Any = None,
        numpy_batch_size: int = 128,
        arg_params: Params | None = None,
        aux_params: Params | None = None,
        allow_extra_params: bool = False,
        begin_epoch: int = 0,
        *,
        memory_budget: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        warnings.warn(
            "FeedForward is what MXNet had before Module; mx.mod.Module does more.",
            DeprecationWarning,
            stacklevel=2,
        )
        self.symbol: Any = symbol if isinstance(symbol, Symbol) else None
        self.sym_gen = None if isinstance(symbol, Symbol) else symbol
        if self.sym_gen is not None and not callable(self.sym_gen):
            raise ArgumentError(f"FeedForward takes a symbol, or a function that makes one; got {symbol!r}.")
        self.ctx = [ctx] if isinstance(ctx, Context) else list(ctx or [cpu()])
        self.num_epoch = num_epoch
        self.epoch_size = epoch_size
        self.optimizer = optimizer
        self.initializer = initializer if initializer is not None else Uniform(0.01)
        self.numpy_batch_size = numpy_batch_size
        self.arg_params = arg_params
        self.aux_params = aux_params
        self.allow_extra_params = allow_extra_params
        self.begin_epoch = begin_epoch
        self.memory_budget = memory_budget
        self.kwargs = dict(kwargs)
        self._predictor: Module | None = None
        self._checked = False
        if self.symbol is not None:
            self._check_arguments()

    def _check_arguments(self) -> None:
        """Raise BindError for a name that occurs twice; drop surplus parameters, if allowed."""
        if self._checked:
            return
        arguments, states = self.symbol.list_arguments(), self.symbol.list_auxiliary_states()
        for kind, names in (("argument", arguments), ("auxiliary state", states)):
            if double := [n for n, c in Counter(names).items() if c > 1]:
                raise BindError(f"FeedForward: the network has two {kind}s called {double[0]!r}; rename one.")
        if self.allow_extra_params:
            self.arg_params = _only(self.arg_params, arguments)
            self.aux_params = _only(self.aux_params, states)
        self._checked = True

    # -- training ------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Callbacks = None,
        batch_end_callback: Callbacks = None,
        kvstore: Any = "local",
        logger: Any = None,
        work_load_list: Any = None,
        monitor: Any = None,
        eval_end_callback: Callbacks = LogValidationMetricsCallback(),  # noqa: B008  # it has no state
        eval_batch_end_callback: Callbacks = None,
    ) -> None:
        """Train on X, an iterator, or on arrays X (N, ...) and y (N,), which are shuffled.

        eval_data: an iterator, or a pair of arrays, to be scored after each epoch. Callbacks get what
        they get from Module.fit, but `nbatch` counts from 1. The parameters end up in `arg_params` and
        `aux_params`.
        """
        if self.num_epoch is None:
            raise StateError("FeedForward.fit needs num_epoch, the number of epochs: give it to FeedForward.")
        logger = logger_of(logger)
        data = array_data.iterator(X, y, self.numpy_batch_size, for_training=True)
        held_out = array_data.held_out(eval_data, self.numpy_batch_size)
        if self.sym_gen is not None:
            self.symbol = self.sym_gen(data.default_bucket_key)
            self._checked = False
        self._check_arguments()
        module = self._trainer(data, kvstore, logger, monitor)
        metric = metrics.create(eval_metric)
        module.prepare_metric(metric)
        with module.expecting(data, held_out):
            self._make_optimizer(module, data, kvstore)
        self._predictor = None
        data.reset()
        with module.counting():
            for epoch in range(self.begin_epoch, self.num_epoch):
                started = time.time()
                metric.reset()
                self._epoch(module, data, epoch, metric, batch_end_callback, monitor, logger)
                logger.info("Epoch[%d] Time cost=%.3f", epoch, time.time() - started)
                if epoch_end_callback is not None or epoch + 1 == self.num_epoch:
                    self.arg_params, self.aux_params = module.get_params()
                call_all(epoch_end_callback, epoch, self.symbol, self.arg_params, self.aux_params)
                if held_out is not None:
                    callbacks = eval_batch_end_callback, eval_end_callback
                    module.score(held_out, metric, None, *callbacks, epoch=epoch)
                    held_out.reset()

    def _trainer(self, data: Any, kvstore: Any, logger: Any, monitor: Any) -> Any:
        """A module, bound for the data and with initial values."""
        names = [d[0] for d in data.provide_data], [d[0] for d in data.provide_label]
        options: dict[str, Any] = dict(logger=logger, context=self.ctx, memory_budget=self.memory_budget)
        module: Any
        if self.sym_gen is not None:
            make = self.sym_gen
            module = BucketingModule(lambda key: (make(key), *names), data.default_bucket_key, **options)
        else:
            module = Module(self.symbol, *names, **options)
        if monitor is None:
            module.prepare_fit(data)
        else:
            module.await_optimizer()
        module.bind(data.provide_data, data.provide_label, for_training=True)
        if monitor is not None:
            module.install_monitor(monitor)
        arguments, states = self.symbol.list_arguments(), self.symbol.list_auxiliary_states()
        module.init_params(
            self.initializer,
            _only(self.arg_params, [n for n in arguments if n not in (*names[0], *names[1])]),
            _only(self.aux_params, states),
            allow_missing=True,
        )
        return module

    def _make_optimizer(self, module: Any, data: Any, kvstore: Any) -> None:
        optimizer = self.optimizer
        if isinstance(optimizer, str):
            module.init_optimizer(kvstore, optimizer, self.kwargs)
        elif isinstance(optimizer, optimizers.Optimizer):
            module.init_optimizer(kvstore, optimizer)
        else:
            raise ArgumentError(f"FeedForward: optimizer is a name or an Optimizer, got {optimizer!r}.")

    def _epoch(
        self,
        module: Any,
        data: Any,
        epoch: int,
        metric: Any,
        batch_end_callback: Callbacks,
        monitor: Any,
        logger: Any,
    ) -> None:
        """One epoch: `epoch_size` batches, restarting the data when they end; or one pass over the data."""
        nbatch = 0
        while True:
            for batch in data:
                if monitor is not None:
                    monitor.tic()
                module.train_step(batch)
                if monitor is not None:
                    monitor.toc_print()
                module.update_metric(metric, batch.label)
                nbatch += 1
                call_all(batch_end_callback, BatchEndParam(epoch, nbatch, metric, locals()))
                if self.epoch_size is not None and nbatch >= self.epoch_size:
                    return  # the next epoch continues in the data
            if not nbatch:
                raise StateError("FeedForward.fit: the training data have no batch.")
            logger.info("Epoch[%d] Resetting Data Iterator", epoch)
            data.reset()
            if self.epoch_size is None:
                return

    # -- inference -----------------------------------------------------------------------------

    def predict(
        self, X: Any, num_batch: int | None = None, return_data: bool = False, reset: bool = True
    ) -> Any:
        """The outputs for X, an iterator or an array, as one numpy array; a list of them for several outputs.

        With `return_data`: (outputs, data, labels). Padding rows are cut off.
        """
        data = array_data.iterator(X, None, self.numpy_batch_size)
        if reset:
            data.reset()
        module = self._bound_predictor(data)
        outputs: list[list[np.ndarray]] = []
        inputs: list[list[np.ndarray]] = []
        labels: list[list[np.ndarray]] = []
        for i, batch in enumerate(data):
            if num_batch is not None and i == num_batch:
                break
            module.forward(batch, is_train=False)
            rows = data.batch_size - (batch.pad or 0)
            outputs.append([o[0:rows].asnumpy() for o in module.get_outputs()])
            if return_data:
                inputs.append([a[0:rows].asnumpy() for a in batch.data])
                labels.append([a[0:rows].asnumpy() for a in batch.label or ()])
        if not outputs:
            raise StateError("FeedForward.predict: the data have no batch.")
        if return_data:
            return _joined(outputs), _joined(inputs), _joined(labels)
        return _joined(outputs)

    def score(
        self,
        X: Any,
        eval_metric: Any = "acc",
        num_batch: int | None = None,
        batch_end_callback: Callbacks = None,
        reset: bool = True,
    ) -> Any:
        """The value of a metric over X, an iterator with labels (of several metrics a list)."""
        metric = metrics.create(eval_metric)
        data = array_data.iterator(X, None, self.numpy_batch_size)
        if reset:
            data.reset()
        module = self._bound_predictor(data)
        for i, batch in enumerate(data):
            if num_batch is not None and i == num_batch:
                break
            module.forward(batch, is_train=False)
            metric.update(batch.label, module.get_outputs())
            call_all(batch_end_callback, BatchEndParam(0, i, metric, locals()))
        return metric.get()[1]

    def _bound_predictor(self, data: Any) -> Module:
        """A module for inference with the present parameters; it is kept, and takes data of all shapes."""
        if self.arg_params is None or self.symbol is None:
            raise StateError("FeedForward: there are no parameters yet; call fit, or FeedForward.load.")
        arguments = self.symbol.list_arguments()
        names = [d[0] for d in data.provide_data]
        rest = [n for n in arguments if n not in self.arg_params and n not in names]
        labels = [n for n in rest if n.endswith("label")]
        if missing := [n for n in rest if n not in labels]:
            raise MXLiteError(
                f"FeedForward: {missing[0]!r} is neither among the data {names} nor among the parameters."
                f"{nearest(missing[0], self.arg_params)}"
            )
        for given, known in (
            (self.arg_params, arguments),
            (self.aux_params or {}, self.symbol.list_auxiliary_states()),
        ):
            if extra := [n for n in given if n not in known]:
                raise BindError(
                    f"FeedForward: {extra[0]!r} is no parameter of this network.{nearest(extra[0], known)} "
                    f"allow_extra_params=True drops what is too much."
                )
        kept = self._predictor
        if kept is None or kept.data_names != names:
            kept = Module(self.symbol, names, labels, context=self.ctx[0], memory_budget=self.memory_budget)
            kept.bind(data.provide_data, None, for_training=False)
            kept.set_params(self.arg_params, self.aux_params or {})
            self._predictor = kept
        return kept

    # -- files ---------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_predictor": None}

    def save(self, prefix: str, epoch: int | None = None, remove_amp_cast: bool = True) -> None:
        """Write PREFIX-symbol.json and PREFIX-%04d.params; `epoch` is `num_epoch` if it is not given."""
        epoch = self.num_epoch if epoch is None else epoch
        if epoch is None:
            raise StateError("FeedForward.save needs epoch, the number in the file's name.")
        if self.arg_params is None:
            raise StateError("FeedForward.save: there are no parameters yet; call fit first.")
        save_checkpoint(prefix, epoch, self.symbol, self.arg_params, self.aux_params or {})

    @staticmethod
    def load(prefix: str, epoch: int, ctx: Any = None, **kwargs: Any) -> FeedForward:
        """The model in a checkpoint, to be used or trained on from there. `kwargs` are FeedForward's."""
        symbol, arg_params, aux_params = load_checkpoint(prefix, epoch)
        return FeedForward(
            symbol, ctx=ctx, arg_params=arg_params, aux_params=aux_params, begin_epoch=epoch, **kwargs
        )

    @staticmethod
    def create(
        symbol: Any,
        X: Any,
        y: Any = None,
        ctx: Any = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: Any = "sgd",
        initializer: Any = None,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Callbacks = None,
        batch_end_callback: Callbacks = None,
        kvstore: Any = "local",
        logger: Any = None,
        work_load_list: Any = None,
        eval_end_callback: Callbacks = LogValidationMetricsCallback(),  # noqa: B008  # it has no state
        eval_batch_end_callback: Callbacks = None,
        **kwargs: Any,
    ) -> FeedForward:
        """A model that has been trained: FeedForward(symbol, ...).fit(X, y, ...)."""
        model = FeedForward(
            symbol,
            ctx=ctx,
            num_epoch=num_epoch,
            epoch_size=epoch_size,
            optimizer=optimizer,
            initializer=initializer,
            **kwargs,
        )
        model.fit(
            X,
            y,
            eval_data=eval_data,
            eval_metric=eval_metric,
            epoch_end_callback=epoch_end_callback,
            batch_end_callback=batch_end_callback,
            kvstore=kvstore,
            logger=logger,
            work_load_list=work_load_list,
            eval_end_callback=eval_end_callback,
            eval_batch_end_callback=eval_batch_end_callback,
        )
        return model


def _only(params: Params | None, names: Sequence[str]) -> dict[str, NDArray] | None:
    """Those of the parameters that have one of these names."""
    return None if params is None else {n: a for n, a in params.items() if n in set(names)}


def _joined(batches: list[list[np.ndarray]]) -> Any:
    """Batches of arrays as one array for each place; the array alone if there is one place."""
    arrays = [np.concatenate(parts) for parts in zip(*batches)]
    return arrays[0] if len(arrays) == 1 else arrays
