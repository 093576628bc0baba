"""Training state of a module's parameters: the optimizer, its states, and the progress.

The update is part of the planned step, which then owns the states (**fused**), or it follows the step, by an
Updater that has them. The executor of a binding says which; everything here holds for both.
"""

from __future__ import annotations

import hashlib
from functools import partial
from math import prod
from typing import Any

import numpy as np

from .. import dist
from ..comm import current
from ..core import BindError, MemoryBudgetError, OpAttributeError, StateError
from ..core.wanted import wanted
from ..dist.exchange import broadcast_into
from ..dist.job import differing
from ..executor import Executor
from ..executor.request.amp import LossScale as Asked
from ..memplan import Ranks
from .argument_names import ArgumentNames
from .binding import Binding
from .kvstore import KVStore
from .optim import optimizer as optimizers, states
from .optim.loss_scale import are_finite, LossScale
from .optim.updater import get_updater, Updater


class Training:
    """The optimizer of a module, its states, KVStore and loss scale. `index` numbers its parameters.

    `fused` is the user's choice, None if that is left to `fit`. `awaits`: True if an optimizer will
    certainly come before a step is run. `samples`: batch size for `rescale_grad`, if it is not that of
    the binding.
    """

    def __init__(
        self,
        names: ArgumentNames,
        fused: bool | None,
        scale: LossScale | None,
        logger: Any,
    ) -> None:
        self.parameters = names.parameters
        self.fixed = names.fixed
        self.fused = fused
        # Programs for MXNet may call get_params on one rank alone: without a word weights stay whole.
        self.asked_ranks = Ranks(shard="auto-optimizer")
        self.in_buckets = False  # of a BucketingModule: ranks may be in different ones
        self.awaits = False
        self.samples: int | None = None
        self.scale = scale
        self.logger = logger
        self.index = {n: i for i, n in enumerate(names.parameters)}
        self._numbers: tuple[tuple[str, ...], tuple[int, ...]] = (), ()  # see `_updated`
        self.optimizer: Any = None
        self._updater: Updater | None = None
        self._store: KVStore | None = None
        self._sums: dist.Sums | None = None  # of gradients that are visible

    @property
    def updater(self) -> Updater:
        assert self._updater is not None
        return self._updater

    # -- planning ------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """True if the step must not be planned yet: the optimizer, which is part of it or owns states beside
        it, is not known."""
        return (bool(self.fused) or self.awaits) and self.optimizer is None

    def in_step(self, inputs_need_grad: bool) -> Any:
        """The optimizer, if its update can be, and is to be, part of the step; else None."""
        if self.optimizer is None or not self.fused or inputs_need_grad or self._compression is not None:
            return None
        if self.in_buckets and self.ranks > 1:
            return None  # gradients of another rank's bucket arise in another order
        return None if self.optimizer.update_rule() is None else self.optimizer

    def plan(self, binding: Binding) -> None:
        """Plan training with this optimizer."""
        binding.train_with(self.in_step(binding.inputs_need_grad), self._asked(binding))
        self._give(binding)
        if (unlearned := binding.executor.unlearned) and self.optimizer is not None:
            self.logger.warning(
                "Nothing will be learnt: no output gives %r or any other parameter a gradient. Is everything "
                "in BlockGrad, or behind an operator such as argmax that has none? A loss, such as "
                "SoftmaxOutput, gives gradients.",
                unlearned[0],
            )

    def remake(self, binding: Binding) -> None:
        """Plan the step anew, after its options have changed."""
        binding.remake(self._asked(binding))
        self._give(binding)

    def use(
        self, binding: Binding, data_shapes: Any, label_shapes: Any, before: Binding | None = None
    ) -> None:
        """Select a program for these shapes; the last step was one of `before`."""
        binding.use(data_shapes, label_shapes, self._asked(before or binding))
        self._give(binding)

    def expect(self, binding: Binding, data_shapes: Any, label_shapes: Any) -> None:
        """Make the binding's group count the program for these shapes, which is to come."""
        binding.expect(data_shapes, label_shapes, self._asked(binding))

    # -- updates -------------------------------------------------------------------------------

    def named(self, optimizer: Any, params: Any, binding: Binding, workers: int = 1) -> Any:
        """An optimizer by its name, or a given one, which gets the names of its parameters."""
        names = {i: n for n, i in self.index.items()}
        if isinstance(optimizer, str):
            try:
                samples = workers * (self.samples or binding.samples)
                given = {"rescale_grad": 1.0 / samples, **dict(params)}
            except (TypeError, ValueError):
                raise OpAttributeError(
                    f"init_optimizer: optimizer_params must be a dict or (name, value) pairs, got {params!r}."
                ) from None
            return optimizers.create(optimizer, sym=binding.symbol, param_idx2name=names, **given)
        wanted("init_optimizer: optimizer", optimizer, "an Optimizer or its name", optimizers.Optimizer)
        if not optimizer.idx2name:
            optimizer.idx2name = names
            optimizer.set_lr_mult({})
            optimizer.set_wd_mult({})
        return optimizer

    def start(self, optimizer: Any, store: KVStore | None, binding: Binding) -> None:
        """Train with this optimizer from now on, with new states. Nothing changes if no plan has room."""
        if shared := [n for n in binding.of_ranks if n in self.index]:
            raise StateError(
                f"Ranks share {len(shared)} weights of this module, {shared[0]!r} among them: for another "
                f"optimizer or store bind it anew, with what get_params gives."
            )
        before = self.optimizer, self._updater, binding.group.extras, self._store
        options, self._store = dict(binding.options), store
        asked, count = self.asked_ranks, self.ranks
        if asked.count not in (1, count):
            raise BindError(f"Module: ranks is for {asked.count} ranks, but the store has {count}.")
        shard = "none" if asked.shard.startswith("auto") and not binding.group.budget else asked.shard
        binding.options["ranks"] = Ranks(count, asked.link, shard)
        try:
            self._start(optimizer, binding)
        except MemoryBudgetError:
            self.optimizer, self._updater, binding.group.extras, self._store = before
            binding.options |= options
            raise
        # Programs for other shapes have the same arrays as this one.
        parts = binding.executor.parts
        shard = "none" if not parts else "optimizer" if parts.keys().isdisjoint(self.index) else "weights"
        binding.options["ranks"] = Ranks(count, asked.link, shard)
        binding.options["parts"] = frozenset(n for n in parts if n in self.index)  # for evaluation
        states_of = (n for n in binding.executor.optimizer_states if n in parts)
        self.updater.shared = {self.index[n.rpartition(":")[0]]: parts[n] for n in states_of}
        self.fill_store(binding)
        if self.ranks > 1:
            self._join_ranks(binding)

    @property
    def ranks(self) -> int:
        """The processes that train together."""
        return 1 if self._store is None else self._store.num_workers

    @property
    def _compression(self) -> Any:
        """How gradients travel, if they are compressed: those of a step that has the update never are."""
        return None if self._store is None or self.ranks == 1 else self._store.compression

    @property
    def rank(self) -> int:
        """The number of this process among them."""
        return 0 if self._store is None else self._store.rank

    def have_in_common(self, text: str) -> bool:
        """True if several ranks train together, and `text` is the same on all."""
        return self.ranks > 1 and not differing(text)

    def agree(self, what: str, *texts: str) -> None:
        """Raise BindError on all ranks that train together unless they have the same texts."""
        if self.ranks > 1:
            dist.agree(what, *texts)

    def _join_ranks(self, binding: Binding) -> None:
        """Begin as all other ranks do: with the same plan, and with the parameters of rank 0."""
        self.agree("The step", *self._in_common(binding))
        for name in self.parameters:
            broadcast_into(binding.whole.get(name, binding.arg_dict[name]))
        for state in binding.aux_dict.values():
            broadcast_into(state)
        binding.take_parts()
        binding.refresh_masters()

    def _in_common(self, binding: Binding) -> list[str]:
        """Texts that all ranks must have in common: batch, parameters, the optimizer's settings, the plan.

        Names of nodes are left out: automatic ones count the networks that a process has made.
        """
        plan, rule = binding.executor.memory_plan, self.optimizer
        shapes = [binding.arg_dict[n].shape for n in self.parameters]
        tasks = [(t.op, t.inputs, t.outputs, t.workspace) for t in plan.problem.tasks]
        sizes = [v.nbytes for v in plan.problem.values]
        runs = plan.schedule.task, plan.schedule.kinds, plan.offsets
        return [
            *(f"{d.name} {d.shape}" for d in (*binding.data_shapes, *binding.label_shapes)),
            f"parameters of {sum(map(prod, shapes)):,} elements, shapes {_digest(shapes)}",
            type(rule).__name__,
            *(f"{n} {x}" for n, x in sorted(vars(rule).items()) if isinstance(x, (bool, int, float))),
            f"gradient compression {self._compression}",
            f"memory_budget {binding.group.budget}",
            f"{plan.peak_bytes:,} bytes",
            f"plan {_digest(sizes, tasks, runs)}",
        ]

    def _start(self, optimizer: Any, binding: Binding) -> None:
        if self.scale is None and binding.options.get("amp") == np.dtype("float16"):
            self.logger.warning(
                "amp='float16' without a loss scale: gradients below 6e-8 count as 0, so that deep layers "
                "may learn nothing. Give loss_scale='dynamic', or amp='bfloat16', which needs none."
            )
        if self.scale is not None and self._compression is not None:
            raise BindError(
                "Compressed gradients do not show whether any overflows, which a loss scale looks for: train "
                "without loss_scale, with amp='bfloat16' say, or without gradient compression."
            )
        if self.in_buckets and self._compression is not None:
            raise BindError(
                "What compression leaves of a gradient belongs to one network: gradients of buckets are not "
                "compressed."
            )
        self.optimizer, self._updater = optimizer, get_updater(optimizer)
        if self.in_step(binding.inputs_need_grad) is not None:
            binding.group.extras = [{} for _ in binding.group.of_devices]
            self.plan(binding)
            for state in binding.executor.optimizer_states.values():
                state[...] = 0  # perhaps of a previous optimizer
            binding.refresh_masters()
            self.updater.states |= self._states_of(binding)
        else:
            trained = [n for n in self.parameters if n not in self.fixed]
            made = states.create(optimizer, self.parameters, trained, binding.arg_dict)
            self.updater.states |= made
            lanes = [group.lane for group in binding.group.of_devices]
            where = {i: str(binding.arg_dict[n].context) for n, i in self.index.items()}
            beside: list[list[Any]] = [[] for _ in lanes]
            for i, state in made.items():
                beside[lanes.index(where[i], 1) if where[i] in lanes[1:] else 0].append(state)
            binding.group.extras = [{"optimizer": states.nbytes(of_device)} for of_device in beside]
            if self.ranks > 1:
                weights = [binding.arg_dict[n] for n in trained]
                staging = dist.Sums.nbytes_of(weights, self._compression)
                binding.group.extra = {**binding.group.extra, "staging": staging}
            self.plan(binding)

    def borrow(self, other: Training) -> None:
        """Share another module's optimizer and states: those of a common parameter are shared."""
        if missing := [n for n in self.parameters if n not in other.index]:
            raise BindError(f"borrow_optimizer: the other module has no parameter {missing[0]!r}.")
        self.optimizer, self._updater, self._store = other.optimizer, other._updater, other._store
        self.index, self.scale = other.index, other.scale
        if self.ranks > 1 and len(self.parameters) < len(self.index):
            unused = next(n for n in self.index if n not in self.parameters)
            raise BindError(
                f"All {self.ranks} ranks sum the gradients of all parameters at each step, but this bucket "
                f"has no {unused!r}: with several ranks every bucket needs every parameter."
            )
        self._numbers = (), ()

    def keep_states(self, binding: Binding) -> None:
        """Copy states after binding anew: a fused step then has new arrays for the same values."""
        if self._updater is None or not binding.is_fused:
            return
        fresh = self._states_of(binding)
        for i, state in fresh.items():
            if i in self._updater.states:
                for old, new in states.pairs(self._updater.states[i], state, self.parameters[i]):
                    old.copyto(new)
        self._updater.states |= fresh

    def _states_of(self, binding: Binding) -> dict[int, Any]:
        return states.of_fused_step(binding.executor, self.optimizer, self.index)

    def fill_store(self, binding: Binding) -> None:
        """Make a KVStore hold the parameters themselves, and update by this module's optimizer."""
        if self._store is not None:
            arrays = binding.arg_dict
            for name, index in self.index.items():
                self._store.adopt(name, arrays[name], index)
            self._store._set_updater(self.updater, partial(self.restore_states, binding=binding))

    def update(self, binding: Binding) -> None:
        """Apply the optimizer to the gradients of the last step; with a loss scale, if all are finite."""
        binding.sum_gradients()
        if self.ranks > 1:
            self._sum_over_ranks(binding)
        if self.scale is not None and not self._may_update(self.scale, binding):
            return
        grads, args = binding.executor.grad_dict, binding.executor.arg_dict
        for name in self.parameters:
            grad = grads[name]
            if grad is not None:
                self.updater(self.index[name], grad, args[name])

    def _sum_over_ranks(self, binding: Binding) -> None:
        """Replace each gradient by its sum over all ranks."""
        current().step += 1
        names = sorted(self.parameters, key=self.index.__getitem__)
        grads = [g for n in names if (g := binding.executor.grad_dict[n]) is not None]
        if self._sums is None or any(a is not b for a, b in zip(self._sums.arrays, grads)):
            self._sums = dist.Sums(grads, self._compression)
        self._sums.push()

    def _may_update(self, scale: LossScale, binding: Binding) -> bool:
        """True if all gradients are finite; the loss scale is adjusted accordingly."""
        grads = binding.executor.grad_dict
        finite = are_finite(g for n in self.parameters if (g := grads[n]) is not None)
        scale.learn(finite)
        self.follow(binding)
        if not finite:
            self.logger.info("Gradients overflow: no update; the loss scale is %g now.", scale.value)
        return finite

    def hyper(self, binding: Binding) -> np.ndarray:
        """Rates for the next fused step, a row for each parameter that it updates."""
        executor = binding.executor
        current().step += 1
        if self.scale is not None:
            if self.optimizer.rates_follow_count or self.scale.has_other(executor):
                self.settle(binding)
            self.scale.expect(executor, self.optimizer.progress)
        rows = self.optimizer.hypers(self._updated(executor))
        return rows if rows.ndim == 2 else rows.reshape(-1, self.optimizer.update_rule().rates)

    def _updated(self, executor: Executor) -> tuple[int, ...]:
        """Numbers of the parameters that a fused step updates, cached while the executor's are the same."""
        if self._numbers[0] is not executor.updated:
            self._numbers = executor.updated, tuple(self.index[n] for n in executor.updated)
        return self._numbers[1]

    # -- the loss scale ------------------------------------------------------------------------

    def _asked(self, binding: Binding) -> Asked | None:
        """Loss scale request for binding an executor."""
        self.settle(binding)
        return None if self.scale is None else self.scale.asked()

    def _give(self, binding: Binding) -> None:
        """Pass the loss scale's state on to a new executor."""
        if self.scale is not None and binding.is_fused:
            self.scale.give(binding.executor)

    def follow(self, binding: Binding) -> None:
        """Set the current scale in a program without the update: it may have changed with other shapes."""
        has = binding.executor.loss_scale  # None: nothing of this network is in 16 bits
        if self.scale is not None and has not in (None, self.scale.value):
            binding.executor.loss_scale = self.scale.value

    def settle(self, binding: Binding) -> None:
        """Learn the last step's decision whether to update, if it decided by itself."""
        if self.scale is None:
            return
        found = self.scale.settle(binding.executor if binding.is_fused else None)
        if found is not None:
            self.optimizer.set_progress(found.progress)
            self.optimizer.count(self._updated(found.executor), found.made)
            self.logger.info("Gradients overflow: no update; the loss scale is %g now.", self.scale.value)

    def scale_state(self, binding: Binding) -> tuple[float, int] | None:
        """The loss scale and its count of good steps, for resuming."""
        self.settle(binding)
        return None if self.scale is None else (self.scale.value, self.scale.good_steps)

    def restore_scale(self, state: tuple[float, int] | None, binding: Binding) -> None:
        """Continue from the result of `scale_state`."""
        if self.scale is not None and state is not None:
            self.scale.value, self.scale.good_steps = state
            binding.executor.loss_scale = self.scale.value
            self._give(binding)

    # -- states in files -----------------------------------------------------------------------

    def state_tree(self, binding: Binding) -> dict[str, Any]:
        """The states in the form of a file."""
        self.settle(binding)
        return self.updater.tree()

    def restore_states(self, tree: Any, binding: Binding) -> None:
        """Restore the states from the tree of a file."""
        self.settle(binding)
        if binding.is_fused:  # the arrays of the step are kept, their values change
            self.updater.take_states(tree, self.updater.states, self.parameters)
            binding.refresh_masters()
        else:
            self.updater.take_states(tree)


def _digest(*what: Any) -> str:
    return hashlib.blake2b(repr(what).encode(), digest_size=6).hexdigest()
