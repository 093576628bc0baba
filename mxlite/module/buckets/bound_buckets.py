"""The buckets of a BucketingModule, their parameters and their optimizer, without running them.

They run one after another: parameters, gradients and optimizer states exist once, and one arena serves all
buckets, as large as the largest bucket met so far needs (see executor/group.py). `memory_budget` holds for
everything together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...core import BindError, Context, MemoryBudgetError, MXLiteError, nearest, StateError
from ...core.errors import ArgumentError
from ...core.wanted import found, wanted, wanted_function
from ...executor import ExecutorGroup
from ...executor.request.bind_request import Offload
from ...memplan import Device
from ...symbol.naming import NameManager
from ..base_module import BaseModule, BindArguments
from ..device_arguments import Budgets
from ..evaluation import Shapes
from ..initial import parameters
from ..module import Module
from .declared_buckets import Buckets, declared, DeclaredBuckets
from .handed_over import handed_over
from .named_bucket import NamedBucket

Generator = Callable[[Any], tuple[Any, Sequence[str] | None, Sequence[str] | None]]


class BoundBuckets(BaseModule):
    """Modules by bucket key, which share as much as they can; see BucketingModule."""

    def __init__(
        self,
        sym_gen: Generator,
        default_bucket_key: Any = None,
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
        buckets: Buckets | None = None,
    ) -> None:
        super().__init__(logger)
        if default_bucket_key is None:
            raise StateError("BucketingModule needs default_bucket_key: the bucket to bind first.")
        self._sym_gen = wanted_function("BucketingModule: sym_gen", sym_gen)
        self._default_bucket_key = default_bucket_key
        self._budget = memory_budget  # of each device
        self._fused = fused_update
        self._options: dict[str, Any] = dict(
            logger=logger,
            context=context,
            work_load_list=work_load_list,
            fixed_param_names=fixed_param_names,
            state_names=state_names,
            group2ctxs=group2ctxs,
            compression_params=compression_params,
            amp=amp,
            loss_scale=loss_scale,
            device=device,
            offload=offload,
            streams=streams,
            records=records,
        )
        self._grad_req: Any = "write"
        self._monitor: Any = None
        self._loaded: dict[Any, Any] = {}  # symbols of a checkpoint by key
        self._preloaded: tuple[parameters.Given, parameters.Given] | None = None
        self._buckets: dict[Any, Module] = {}
        self._asked = None if buckets is None else declared("BucketingModule: buckets", buckets)
        self._declared = self._asked or {}
        self._to_come: dict[Any, Shapes] = {}  # by key, in this binding
        self._to_evaluate: dict[Any, Shapes] = {}  # by key, for inference beside training
        self._coming: dict[Any, Module] = {}  # those of them that the group expects
        self._curr_bucket_key: Any = default_bucket_key
        self._first = self._new_first()  # at once, so that wrong names are found here

    def _new_first(self) -> Module:
        first = self._new_module(self._default_bucket_key, memory_budget=self._budget)
        first._binding.others = self._expect
        return first

    def _new_bucket(self, key: Any) -> Module:
        """The module of a bucket that is not the default. Raises BindError."""
        module, first = self._new_module(key), self._first
        if missing := [n for n in module._param_names if n not in first._param_names]:
            raise BindError(
                f"Bucket {key!r} has a parameter {missing[0]!r}, which the default bucket "
                f"{self._default_bucket_key!r} has not.{nearest(missing[0], first._param_names)}"
            )
        module._binding.monitor = self._monitor
        return module

    def _new_module(self, key: Any, **options: Any) -> Module:
        with NameManager():
            made = self._sym_gen(key)
        if not isinstance(made, (list, tuple)) or len(made) != 3:
            raise ArgumentError(
                f"BucketingModule: sym_gen({key!r}) must give (symbol, data_names, label_names), "
                f"got {found(made)}."
            )
        symbol, data_names, label_names = made
        symbol = self._loaded.get(key, symbol)
        module = Module(
            symbol, data_names or (), label_names, fused_update=self._fused, **self._options, **options
        )
        module._training.in_buckets = True
        return module

    # -- what it is ----------------------------------------------------------------------------

    @property
    def _current(self) -> Module:
        return self._buckets.get(self._curr_bucket_key, self._first)

    @property
    def _curr_module(self) -> Module:
        return self._current  # its name in MXNet, whose programs use it

    symbol = handed_over("symbol", "_current")
    data_names = handed_over("data_names", "_current")
    label_names = handed_over("label_names", "_current")
    output_names = handed_over("output_names", "_current")
    data_shapes = handed_over("data_shapes", "_current", bound=True)
    label_shapes = handed_over("label_shapes", "_current", bound=True)
    output_shapes = handed_over("output_shapes", "_current", bound=True)
    memory_plan = handed_over("memory_plan", "_current", bound=True)
    planned_bytes = handed_over("planned_bytes", "_first", bound=True)
    measured_bytes = handed_over("measured_bytes", "_first", bound=True)
    loss_scale = handed_over("loss_scale", "_first")

    @property
    def bucket_key(self) -> Any:
        """The bucket of the last batch."""
        return self._curr_bucket_key

    @property
    def bucket_keys(self) -> list[Any]:
        """The buckets bound so far."""
        return list(self._buckets)

    # -- bind ----------------------------------------------------------------------------------

    def prepare_fit(self, train_data: Any = None) -> None:
        if not self.binded:
            self._first.prepare_fit()
            self._fused = self._first._training.fused
        if self._asked is None:
            provided = getattr(train_data, "provide_buckets", None) or {}
            self._declared = declared("fit: train_data.provide_buckets", provided)

    await_optimizer = handed_over("await_optimizer", "_first")

    def _named(self, key: Any, data_shapes: Any) -> NamedBucket:
        return NamedBucket(key, data_shapes, self._buckets, [*self._to_come, *self._to_evaluate])

    def _expect(self, group: ExecutorGroup, steps: Shapes) -> None:
        """Make the group count the buckets that are to come beside `steps` of the default bucket."""
        training = self._first._training
        bound = {**self._buckets, self._default_bucket_key: self._first}
        for key, shapes in {**self._to_evaluate, **self._to_come}.items():
            if key in bound:
                continue
            module = self._coming.pop(key, None) or self._new_bucket(key)
            if training.optimizer is not None:
                module._training.borrow(training)
            how = self.for_training, self.inputs_need_grad, self._grad_req
            module._only_evaluates = key not in self._to_come
            module._evaluation.declared = self._to_evaluate.get(key)
            module.expect_in(group, *shapes, *how)
            self._coming[key] = module
        for key, module in bound.items():
            module._evaluation.declared = self._to_evaluate.get(key)
            module._expect(group, steps if module is self._first else module._binding.shapes)

    @contextmanager
    def expecting(self, train_data: Any, eval_data: Any = None) -> Iterator[None]:
        if self._budget is None:
            yield
            return
        first, key, before = self._first, self._default_bucket_key, self._to_come
        bound = first._binding.shapes
        to_come = DeclaredBuckets.of(train_data, eval_data, self._asked, key)
        self._to_come, self._to_evaluate = dict(to_come.trained), dict(to_come.evaluated)
        try:
            self._give_way(to_come)
            if (shapes := self._to_come.get(key)) is not None:
                with self._named(key, shapes[0]):
                    first.train_for(shapes)
            yield
            self._expect(first._binding.group, first._binding.shapes)
            self._bind_all()
        except BaseException as error:
            self._to_come, self._to_evaluate = before, {}
            if isinstance(error, MemoryBudgetError):
                first.train_as_before(bound)
            raise
        finally:
            first._training.samples = None
            self._forget()

    def _give_way(self, to: DeclaredBuckets) -> None:
        """Drop the buckets that will come with other shapes than they are bound for, or not at all."""
        for key, module in list(self._buckets.items()):
            if module is self._first or to.keeps(key, module._binding):  # the first has all parameters
                module._evaluation.begin_anew(module._binding, to.evaluated.get(key))
            else:
                module.leave()
                del self._buckets[key]
        if self._curr_bucket_key not in self._buckets:
            self._curr_bucket_key = self._default_bucket_key

    def _forget(self) -> None:
        """Withdraw expectations: they are bound, or do not come."""
        self._to_evaluate = {}
        group = self._first._binding.group
        for module in (self._first, *self._buckets.values(), *self._coming.values()):
            module._evaluation.forget(group)
        for module in self._coming.values():
            group.forget(module._binding.owner)
        self._coming = {}

    def _bind_all(self) -> None:
        """Bind buckets before their first batches, so that no budget fails then; the present one stays."""
        key = self._curr_bucket_key
        try:
            for other, shapes in {**self._to_come, **self._to_evaluate}.items():
                self._have(other, self._to_come.get(other, shapes), other not in self._to_come)
            for other, shapes in self._to_evaluate.items():
                module = self._buckets[other]
                with self._named(other, shapes[0]):
                    module._evaluation.bind(module._binding, shapes)
        finally:
            self._curr_bucket_key = key

    def _bind(self, b: BindArguments) -> None:
        """Bind the default bucket for these shapes; other buckets follow when their batches come."""
        if b.shared_module is not None:
            raise MXLiteError("BucketingModule.bind: shared_module is not supported.")
        before = dict(vars(self))
        self._buckets, self._coming, self._to_come = {}, {}, dict(self._declared)
        self._curr_bucket_key = self._default_bucket_key
        self.for_training = b.for_training
        self.inputs_need_grad = b.inputs_need_grad
        self._grad_req = b.grad_req
        try:
            with self._named(self._default_bucket_key, b.data_shapes):
                self._first.bind(*b)
        except BaseException:
            vars(self).update(before)  # a former binding is restored
            raise
        self._buckets[self._default_bucket_key] = self._first
        self.binded = True
        if self._preloaded is not None:
            self.set_params(*self._preloaded)
            self._preloaded = None

    def switch_bucket(self, bucket_key: Any, data_shapes: Any, label_shapes: Any = None) -> None:
        """Make a bucket the present one; bind it for these shapes if it is new."""
        self._have(bucket_key, (data_shapes, label_shapes))

    def _have(self, key: Any, shapes: Shapes, only_evaluates: bool = False) -> None:
        """Make a bucket the present one. A new one is bound for these shapes, including steps, or for
        inference only until training starts on it."""
        self.need()
        if key not in self._buckets:
            self.need(params=True)
            module = self._coming.get(key) or self._new_bucket(key)
            first = self._first
            module._only_evaluates = only_evaluates
            if self.optimizer_initialized:
                module.borrow_optimizer(first)
            module.share_metric(first)
            how = self.for_training, self.inputs_need_grad
            with self._named(key, shapes[0]):
                module.bind(*shapes, *how, shared_module=first, grad_req=self._grad_req)
            self._buckets[key] = module
            self._coming.pop(key, None)
        self._curr_bucket_key = key

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Bind a batch's bucket ahead of its use, if it is new; the present one stays."""
        self.need(params=True)
        before = self._curr_bucket_key
        self._switch_to(data_batch, self.for_training)
        self._curr_bucket_key = before

    def _switch_to(self, batch: Any, is_train: bool | None) -> None:
        """Make a batch's bucket the present one."""
        key = getattr(batch, "bucket_key", None)
        key = self._default_bucket_key if key is None else key
        wanted("forward: the batch", batch, "a DataBatch", has=("data", "provide_data", "provide_label"))
        data_shapes, label_shapes = batch.provide_data, batch.provide_label
        if key not in self._buckets and data_shapes is None:
            raise BindError(
                f"The first batch of bucket {key!r} must have provide_data: its names and shapes."
            )
        self._have(key, (data_shapes, label_shapes), is_train is not None and not is_train)

    # -- parameters and optimizer --------------------------------------------------------------

    init_params = handed_over("init_params", "_first", then="_have_params", bound=True)
    set_params = handed_over("set_params", "_first", then="_have_params", bound=True)
    average_states = handed_over("average_states", "_first")
    get_params = handed_over("get_params", "_first", params=True)

    def _have_params(self) -> None:
        self.params_initialized = True
        if not self.for_training and self._budget is not None:
            self._bind_all()

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Create the optimizer for all buckets; `rescale_grad` is 1 / batch size of the default bucket."""
        self.need(params=True)
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        # Buckets that are bound already are planned anew with the optimizer.
        others = {k: m for k, m in self._buckets.items() if m is not self._first}
        idle = {k: m for k, m in others.items() if m._binding.forward_only}
        met, seen = _shapes({k: m for k, m in others.items() if k not in idle}), _shapes(idle)
        to_evaluate = self._to_evaluate
        self._to_come = {**self._to_come, **met} if self._budget is not None else met
        self._to_evaluate = {**seen, **to_evaluate}
        for module in others.values():
            module.leave()
        self._buckets = {self._default_bucket_key: self._first}
        try:
            with self._named(self._default_bucket_key, self._first.data_shapes):
                self._first.init_optimizer(kvstore, optimizer, optimizer_params, force_init)
            self.optimizer_initialized = True
            self._bind_all()
        finally:
            self._to_evaluate = to_evaluate
            if not to_evaluate:
                self._forget()


def _shapes(modules: Mapping[Any, Module]) -> dict[Any, Shapes]:
    """Shapes that modules are bound for."""
    return {k: (m.data_shapes, m.label_shapes) for k, m in modules.items()}
