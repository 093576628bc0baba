"""BucketingModule: one set of parameters for networks that are unrolled to several lengths.

Sentences have different lengths; padding all of them to the longest wastes most of the work. So batches are
made of sentences of about one length, a bucket, and each bucket has a network of its own, unrolled so far.
All of them are the same function with the same parameters.

bound_buckets.py has how they share parameters and memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ..core import MXLiteError, StateError
from ..core.wanted import wanted
from ..formats import load_params, stored_params
from ..ndarray import array, load as load_arrays, NDArray, save as save_arrays
from ..symbol import load as load_symbol
from .buckets.bound_buckets import BoundBuckets
from .buckets.handed_over import handed_over
from .metrics.metric import EvalMetric


class BucketingModule(BoundBuckets):
    """A trainable family of symbols: `sym_gen(bucket_key)` gives (symbol, data names, label names).

    `default_bucket_key` is the bucket that `bind` binds; its symbol must have every parameter that any bucket
    has. Give the largest: then the arena does not have to grow. A batch says by `bucket_key`, `provide_data`
    and `provide_label` which bucket it is for and with which shapes; one without a key is for the default.

    `memory_budget` bounds all buckets together: parameters, gradients, auxiliary and optimizer states once,
    the inputs and outputs of every bucket met so far, and one arena. A bucket that does not fit beside the
    others raises MemoryBudgetError with its key and a budget that would do for all of them.

    `buckets` declares those that will come: key -> (data shapes, label shapes), as batches have them in
    `provide_data` and `provide_label`. Where it is not given, `fit` takes its iterator's `provide_buckets`.
    With a budget, declared buckets count in the first plan already, so that its refusal names a budget for
    all of them, and are bound before the first step: with `init_optimizer`, or with `init_params` if there is
    no training.
    `fused_update`, `amp`, `loss_scale`, `device`, `offload`, `streams` and `records` are as in Module.
    """

    # -- running -------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run forward on a batch in its bucket, which is bound if it is new."""
        self.need(params=True)
        self._switch_to(data_batch, is_train)
        with self._named(self._curr_bucket_key, data_batch.provide_data):
            self._current.forward(data_batch, is_train)

    def forward_backward(self, data_batch: Any) -> None:
        """See Module.forward_backward; in the batch's bucket."""
        self.need(params=True)
        self._switch_to(data_batch, True)
        with self._named(self._curr_bucket_key, data_batch.provide_data):
            self._current.forward_backward(data_batch)

    backward = handed_over("backward", "_current", params=True)
    update = handed_over("update", "_current", params=True, optimizer=True)
    get_outputs = handed_over("get_outputs", "_current", params=True)
    get_states = handed_over("get_states", "_current", params=True)
    set_states = handed_over("set_states", "_current", params=True)
    get_input_grads = handed_over("get_input_grads", "_current", params=True)
    update_metric = handed_over("update_metric", "_current", params=True)

    def prepare_metric(self, metric: EvalMetric) -> None:
        """Let all buckets' steps count what the default bucket's can count, to the same sums."""
        if type(self).update_metric is not BucketingModule.update_metric:
            return
        self._first.prepare_metric(metric)
        for module in self._buckets.values():
            if module is not self._first:
                module.share_metric(self._first)

    def counting(self) -> AbstractContextManager[None]:
        return self._first.counting_in(lambda: self._current)

    def install_monitor(self, mon: Any) -> None:
        """Have a Monitor look into all buckets, those to come included."""
        self.need()
        self._monitor = wanted("install_monitor: mon", mon, "a Monitor", has=("install",))
        for module in self._coming.values():
            module._binding.monitor = mon
        for module in self._buckets.values():
            module.install_monitor(mon)

    # -- files ---------------------------------------------------------------------------------

    save_params = handed_over("save_params", "_first", params=True)
    save_optimizer_states = handed_over("save_optimizer_states", "_first")
    load_optimizer_states = handed_over("load_optimizer_states", "_first")
    resume_bytes = handed_over("resume_bytes", "_first")
    resume_moment = handed_over("resume_moment", "_first")
    save_resume_state = handed_over("save_resume_state", "_first")
    load_resume_state = handed_over("load_resume_state", "_first")
    _parameters = handed_over("_parameters", "_first")

    def load_params(self, fname: str) -> None:
        """Read what `save_params`, or MXNet, wrote."""
        self.set_params(*stored_params(fname))

    def save_checkpoint(self, prefix: str, epoch: int, remove_amp_cast: bool = False) -> None:
        """Write PREFIX-%04d.params, PREFIX-KEY-symbol.json for each bucket met so far, and PREFIX.buckets,
        their keys, as MXNet does: keys are whole numbers.
        """
        self.need(params=True)
        keys = list(self._buckets)
        if wrong := [k for k in keys if isinstance(k, bool) or not isinstance(k, (int, np.integer))]:
            raise MXLiteError(
                f"save_checkpoint: the file of buckets has room for whole numbers, not for {wrong[0]!r}."
            )
        self.save_params(f"{prefix}-{epoch:04d}.params")
        for key, module in self._buckets.items():
            module.symbol.save(f"{prefix}-{key}-symbol.json")
        save_arrays(f"{prefix}.buckets", [array(np.array(keys, np.int32), dtype="int32")])

    @staticmethod
    def load(
        prefix: str, epoch: int, sym_gen: Any = None, default_bucket_key: Any = None, **kwargs: Any
    ) -> BucketingModule:
        """A module from what `save_checkpoint`, or MXNet, wrote; `kwargs` go to the constructor."""
        if sym_gen is None:
            raise StateError("BucketingModule.load needs sym_gen: it names each bucket's data and labels.")
        found = load_arrays(f"{prefix}.buckets")
        arrays = list(found.values()) if isinstance(found, dict) else found
        keys = [int(k) for k in arrays[0].asnumpy().ravel()] if arrays else []
        symbols = {k: load_symbol(f"{prefix}-{k}-symbol.json") for k in keys}
        return BucketingModule.load_dict(
            symbols, sym_gen, default_bucket_key, *load_params(f"{prefix}-{epoch:04d}.params"), **kwargs
        )

    @staticmethod
    def load_dict(
        sym_dict: Mapping[Any, Any] | None = None,
        sym_gen: Any = None,
        default_bucket_key: Any = None,
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        **kwargs: Any,
    ) -> BucketingModule:
        """A module whose buckets have the symbols in `sym_dict`, with these parameters, to be bound."""
        if sym_gen is None or arg_params is None or aux_params is None:
            raise StateError("BucketingModule.load_dict needs sym_gen, arg_params and aux_params.")
        module = BucketingModule(sym_gen, default_bucket_key, **kwargs)
        module._loaded = dict(sym_dict or {})
        module._first = module._new_first()
        module._preloaded = dict(arg_params), dict(aux_params)
        return module
