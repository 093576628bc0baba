"""Trainer: an optimizer for the parameters of a network."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from ..comm import current
from ..core import StateError
from ..core.errors import ArgumentError, FormatError, OpAttributeError, RangeError
from ..core.wanted import number, wanted
from ..dist import add_devices, Sums
from ..dist.exchange import broadcast_into
from ..module import kvstore as kvstores
from ..module.kvstore import DistributedStore
from ..module.optim import optimizer as opt
from ..module.saved import shards
from ..ndarray import NDArray
from .blocks.deferred_call import deferred_step
from .parameters.parameter import Parameter
from .parameters.parameter_dict import ParameterDict


class Trainer:
    """Updates parameters with their gradients: `trainer.step(batch_size)` after each backward pass.

    params: `net.collect_params()`, or a list of parameters.  optimizer: a name with `optimizer_params`, or an
    Optimizer.  kvstore: None, 'local', 'device' or a KVStore: with one machine, copies on several devices are
    summed here in any case.  update_on_kvstore: False keeps gradients after a step, where it could be one
    program that needs none.

    With kvstore='dist_sync', or a store of that kind, all ranks begin with the parameters of rank 0, and a
    step is by the sum of their gradients: `batch_size` is then that of all ranks together.
    compression_params: how gradients travel, see `KVStore.set_gradient_compression`.
    """

    # MXNet's names, which Sockeye reads: nothing waits to be initialized, and updates are by `_updaters`.
    _kv_initialized, _params_to_init, _update_on_kvstore = True, (), False

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Mapping[str, Any] | None = None,
        kvstore: Any = "device",
        compression_params: Any = None,
        update_on_kvstore: bool | None = None,
    ) -> None:
        if isinstance(params, (ParameterDict, Mapping)):
            params = [params[k] for k in sorted(params.keys())]
        wanted("Trainer: params", params, "a ParameterDict or a list of Parameters", list, tuple)
        for p in params:
            wanted("Trainer: each of params", p, "a Parameter", Parameter)
        self._store = _shared_store(kvstore)
        self._sums: Sums | None = None
        if compression_params is not None:
            if self._store is None:
                raise OpAttributeError("Trainer: compression_params are for several machines; there is one.")
            self._store.set_gradient_compression(compression_params)
        self._params: list[Parameter] = list(dict.fromkeys(params))
        self._names = dict(enumerate(self._params))
        arguments = dict(optimizer_params or {})
        if isinstance(optimizer, opt.Optimizer):
            if arguments:
                raise ArgumentError(
                    "Trainer: optimizer_params come too late for an Optimizer that is made already."
                )
            self._optimizer = optimizer
        else:
            self._optimizer = opt.create(optimizer, **arguments)
        self._scale = self._optimizer.rescale_grad
        self._optimizer.param_dict = self._names  # type: ignore[attr-defined]
        self._updaters = [opt.get_updater(self._optimizer)]
        self._keeps_gradients = update_on_kvstore is False
        self._number = {p: i for i, p in enumerate(self._params)}
        for p in self._params:
            p.trainer = weakref.ref(self)
            if not p.is_deferred:
                self.begin(p)

    @property
    def ranks(self) -> int:
        """The processes that train together."""
        return 1 if self._store is None else self._store.num_workers

    def begin(self, parameter: Parameter) -> None:
        """Give a parameter that has just been initialized the values of rank 0."""
        if self.ranks > 1 and parameter.is_initialized:
            for array in parameter.list_data():
                broadcast_into(array)

    @property
    def optimizer(self) -> Any:
        """The optimizer."""
        return self._optimizer

    @property
    def learning_rate(self) -> float:
        """The rate before multipliers."""
        return float(self._optimizer.learning_rate)

    def set_learning_rate(self, lr: float) -> None:
        """Set the rate. ScheduledRateError if a scheduler decides it."""
        self._optimizer.set_learning_rate(lr)

    # -- a step --------------------------------------------------------------------------------

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sum the gradients of all devices, and update all parameters with them / `batch_size`.

        StateError for a gradient that no backward pass has written since the last step, unless
        `ignore_stale_grad`, which leaves the parameter as it is.

        Behind a hybridized network and a hybridized loss the update is part of their program, which runs now:
        gradients die in it. MemoryBudgetError if it does not fit in the network's budget.
        """
        self._prepare(batch_size)
        waiting = deferred_step([g for p in self._params if p.grad_req != "null" for g in p.list_grad()])
        if waiting is not None and waiting.step(self):
            return
        self.allreduce_grads()
        self._update(ignore_stale_grad)

    def joins(self, parameters: Iterable[Parameter]) -> bool:
        """True if a program may update these: they are all that it has of its own, on one device, and its
        optimizer's update can be part of a step.
        """
        if type(self) is not Trainer or self._keeps_gradients or self._optimizer.update_rule() is None:
            return False
        if self._store is not None:
            return False  # a rank that reads a gradient would run its sums in another order than the others
        count = 0
        for p in parameters:
            if p.grad_req == "null":
                continue
            if p not in self._number or p.grad_req != "write" or not p.is_plain or len(p.list_ctx()) != 1:
                return False
            count += 1
        return count == sum(p.grad_req != "null" for p in self._params)

    def number_of(self, parameter: Parameter) -> int:
        """The number of a parameter, by which the optimizer and its states know it."""
        return self._number[parameter]

    @property
    def updater(self) -> opt.Updater:
        """The optimizer with its states, of the first device."""
        return self._updaters_for(1)[0]

    def allreduce_grads(self) -> None:
        """Sum the gradients of each parameter over its devices and over all ranks, and give each the sum."""
        firsts: list[tuple[int, NDArray]] = []
        others: list[tuple[NDArray, NDArray]] = []
        for parameter in self._params:
            if parameter.grad_req == "null":
                continue
            first, *rest = parameter.list_grad()
            add_devices(first, rest)
            firsts.append((self._number[parameter], first))
            others += [(first, g) for g in rest]
        if self._store is not None:
            self._sum_over_ranks(self._store, firsts)
        for first, g in others:
            first.copyto(g)

    def _sum_over_ranks(self, store: DistributedStore, gradients: Sequence[tuple[int, NDArray]]) -> None:
        if store.num_workers == 1 and store.compression is None:
            return
        current().step += 1
        dense = [g for _, g in gradients if g.stype == "default"]
        if self._sums is None or any(a is not b for a, b in zip_longest(self._sums.arrays, dense)):
            self._sums = Sums(dense, store.compression)
        self._sums.push()
        for index, g in gradients:
            if g.stype != "default":
                store.of_all_workers(index, g).copyto(g)

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """`step` without the sum, after `allreduce_grads`: gradients may be changed in between."""
        self._prepare(batch_size)
        self._update(ignore_stale_grad)

    def _prepare(self, batch_size: float) -> None:
        batch_size = number("Trainer: batch_size", batch_size)
        if not batch_size:
            raise RangeError("Trainer: gradients are divided by batch_size, which is 0.")
        self._optimizer.rescale_grad = self._scale / batch_size
        self._optimizer.set_lr_mult({i: p.lr_mult for i, p in self._names.items() if p.lr_mult != 1.0})
        self._optimizer.set_wd_mult({i: p.wd_mult for i, p in self._names.items() if p.wd_mult != 1.0})

    def _update(self, ignore_stale_grad: bool) -> None:
        rows: list[tuple[list[int], list[NDArray], list[NDArray]]] = []
        for i, parameter in enumerate(self._params):
            if parameter.grad_req == "null":
                continue
            arrays = parameter.list_data()
            while len(rows) < len(arrays):
                rows.append(([], [], []))
            for (indices, grads, weights), array in zip(rows, arrays):
                if not array._fresh_grad:
                    if ignore_stale_grad:
                        continue
                    raise StateError(
                        f"The gradient of {parameter.name!r} on {array.context} was not written by backward "
                        f"since the last step: either its block took no part in the loss, or a step is one "
                        f"too many. ignore_stale_grad=True leaves such parameters as they are."
                    )
                grad = array.grad
                assert grad is not None
                array._fresh_grad = False
                indices.append(i)
                grads.append(grad)
                weights.append(array)
        for updater, (indices, grads, weights) in zip(self._updaters_for(len(rows)), rows):
            updater(indices, grads, weights)

    def _updaters_for(self, count: int) -> Sequence[opt.Updater]:
        """An updater for each device. Each counts the updates from where the others stood."""
        while len(self._updaters) < count:
            made = opt.get_updater(_twin(self._optimizer))
            self._updaters.append(made)
        for updater in self._updaters[1:]:
            for name in ("rescale_grad", "lr", "lr_mult", "wd_mult", "wd", "lr_scheduler"):
                setattr(updater.optimizer, name, getattr(self._optimizer, name))
        return self._updaters

    # -- files ---------------------------------------------------------------------------------

    def save_states(self, fname: str) -> None:
        """Write the optimizer's states, counts and settings."""
        shards.write(fname, self.updater.tree(dump_optimizer=True))

    def load_states(self, fname: str) -> None:
        """Continue from `save_states`. FormatError if the file is damaged, or of another optimizer."""
        updater = self.updater
        updater.take_states(shards.read(fname).tree)
        if unknown := [i for i in updater.states if i not in self._names]:
            raise FormatError(
                f"{fname} has states of parameter {unknown[0]}, and there are {len(self._params)}."
            )
        for other in self._updaters[1:]:
            other.take_states(shards.read(fname).tree)


def _shared_store(kvstore: Any) -> DistributedStore | None:
    """The store that other ranks share, if `kvstore` is one or names one."""
    if isinstance(kvstore, str) and kvstore.lower() not in kvstores.TYPES:
        kvstore = kvstores.create(kvstore)
    return kvstore if isinstance(kvstore, DistributedStore) else None


def _twin(optimizer: Any) -> Any:
    """An optimizer like this one, with counts of its own."""
    twin = copy.copy(optimizer)
    twin.set_progress(optimizer.progress())
    return twin
