"""Modules in a row: the outputs of one are the data of the next."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, ExitStack
from typing import Any

from ..core import BindError, MemoryBudgetError, MXLiteError, nearest, StateError
from ..core.wanted import wanted
from ..io import DataBatch
from ..ndarray import NDArray
from ..symbol import Symbol
from .base_module import BaseModule, BindArguments
from .evaluation import shapes_of


class SequentialModule(BaseModule):
    """`SequentialModule().add(first).add(second, take_labels=True, auto_wiring=True)`.

    take_labels: the module gets the labels of the batch, and metrics look at its outputs.
    auto_wiring: the outputs of the previous module are fed under this module's own data names.

    Each module has a plan and a budget of its own; only inside one of them can bytes be shared.
    """

    META_TAKE_LABELS = "take_labels"
    META_AUTO_WIRING = "auto_wiring"

    def __init__(self, logger: Any = logging) -> None:
        super().__init__(logger)
        self._modules: list[Any] = []
        self._metas: list[dict[str, Any]] = []
        self._label_shapes: Any = None

    def add(self, module: Any, **kwargs: Any) -> SequentialModule:
        """Put a module at the end; gives itself back, so that calls can be chained. Bind anew afterwards."""
        wanted("SequentialModule.add: module", module, "a module", BaseModule)
        known = (self.META_TAKE_LABELS, self.META_AUTO_WIRING)
        for key in kwargs:
            if key not in known:
                raise BindError(f"SequentialModule.add knows {known}, not {key!r}.{nearest(key, known)}")
        self._modules.append(module)
        self._metas.append(kwargs)
        self.binded = self.params_initialized = self.optimizer_initialized = False
        return self

    # -- what it is ----------------------------------------------------------------------------

    @property
    def data_names(self) -> list[str]:
        return self._modules[0].data_names if self._modules else []

    @property
    def output_names(self) -> list[str]:
        return self._modules[-1].output_names if self._modules else []

    @property
    def data_shapes(self) -> Any:
        self.need()
        return self._modules[0].data_shapes

    @property
    def label_shapes(self) -> Any:
        """The label shapes it was bound with; None if no module takes labels."""
        self.need()
        return self._label_shapes

    @property
    def output_shapes(self) -> Any:
        self.need()
        return self._modules[-1].output_shapes

    # -- bind ----------------------------------------------------------------------------------

    def _bind(self, b: BindArguments) -> None:
        """Bind one module after another, each for the output shapes of the one before."""
        if b.inputs_need_grad and not b.for_training:
            raise StateError("bind: inputs_need_grad is for training; for_training is False.")
        if b.shared_module is not None:
            raise MXLiteError("SequentialModule.bind: shared_module is not supported.")
        if not self._modules:
            raise StateError("bind: this SequentialModule has no modules; add some.")
        shapes = b.data_shapes
        for i, (module, meta) in enumerate(zip(self._modules, self._metas)):
            if meta.get(self.META_AUTO_WIRING):
                shapes = self._rewired(i, shapes)
            module.bind(
                data_shapes=shapes,
                label_shapes=b.label_shapes if meta.get(self.META_TAKE_LABELS) else None,
                for_training=b.for_training,
                inputs_need_grad=b.inputs_need_grad or (b.for_training and i > 0),
                force_rebind=b.force_rebind,
                grad_req=b.grad_req,
            )
            shapes = module.output_shapes
        takes = any(meta.get(self.META_TAKE_LABELS) for meta in self._metas)
        self._label_shapes = b.label_shapes if takes else None
        self.for_training = b.for_training
        self.inputs_need_grad = b.inputs_need_grad
        self.binded = True

    def _rewired(self, number: int, shapes: Any) -> list[tuple[str, Any]]:
        """The shapes under the data names of module `number`."""
        names = self._modules[number].data_names
        if len(names) != len(shapes):
            raise BindError(
                f"auto_wiring: module {number} has the data {names}, but gets {len(shapes)} arrays, "
                f"{[s[0] for s in shapes]}."
            )
        return [(name, s[1]) for name, s in zip(names, shapes)]

    @contextmanager
    def expecting(self, train_data: Any, eval_data: Any = None) -> Iterator[None]:
        train = self._fed_by(train_data)
        held_out = [None] * len(train) if eval_data is None else self._fed_by(eval_data)
        with ExitStack() as all_of_them:
            for module, trained, evaluated in zip(self._modules, train, held_out):
                all_of_them.enter_context(module.expecting(trained, evaluated))
            yield

    def _fed_by(self, data: Any) -> list[DataBatch]:
        """Shapes of each module's batches for an iterator's data, as far as they can be inferred."""
        shapes, labels = shapes_of(data)
        found = []
        for i, (module, meta) in enumerate(zip(self._modules, self._metas)):
            shapes = self._rewired(i, shapes) if meta.get(self.META_AUTO_WIRING) else shapes
            found.append(DataBatch([], provide_data=shapes))
            found[-1].provide_label = labels if meta.get(self.META_TAKE_LABELS) else None
            if not isinstance(module.symbol, Symbol):
                break  # further shapes are unknown
            outputs = module.symbol.infer_shape_partial(**{d[0]: d[1] for d in shapes})[1]
            if outputs is None or not all(outputs):
                break
            shapes = list(zip(module.output_names, outputs))
        return found

    def await_optimizer(self) -> None:
        for module in self._modules:
            module.await_optimizer()

    # -- parameters and optimizer --------------------------------------------------------------

    def init_params(
        self,
        initializer: Any = None,
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Give every parameter of every module a value; see Module.init_params. A name may occur once."""
        self.need()
        if self.params_initialized and not force_init:
            return
        for module in self._modules:
            module.init_params(initializer, arg_params, aux_params, allow_missing, force_init, allow_extra)
        self._all_params()  # refuses a name that occurs twice
        self.params_initialized = True

    def _all_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        found: tuple[dict[str, NDArray], dict[str, NDArray]] = {}, {}
        owner: dict[str, int] = {}
        for i, module in enumerate(self._modules):
            for mine, theirs in zip(found, module.get_params()):
                for name, value in theirs.items():
                    if name in owner:
                        raise BindError(f"Modules {owner[name]} and {i} both have a parameter {name!r}.")
                    owner[name] = i
                    mine[name] = value
        return found

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Copies of (arguments, auxiliary states) of all modules by name."""
        self.need(params=True)
        return self._all_params()

    def set_params(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray],
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Assign parameters; see Module.set_params. With `allow_missing`, extra names are ignored here."""
        self.need()
        for module in self._modules:
            module.set_params(arg_params, aux_params, allow_missing, force_init, True)
        self._all_params()
        self.params_initialized = True

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Make an optimizer for each module."""
        self.need(params=True)
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        refused: list[tuple[int, MemoryBudgetError]] = []
        for i, module in enumerate(self._modules):
            try:
                module.init_optimizer(kvstore, optimizer, optimizer_params, force_init)
            except MemoryBudgetError as error:
                refused.append((i, error))
        if refused:
            # Each module has a budget of its own: the error names all that must be raised.
            most, worst = max(refused, key=lambda r: r[1].least_feasible_bytes)
            named = ", ".join(f"module {i} {e.least_feasible_bytes} bytes" for i, e in refused)
            worst.remark(f"This is module {most} of the SequentialModule. Budgets that do work: {named}.")
            raise worst
        self.optimizer_initialized = True

    # -- running -------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run all modules, each on the outputs of the one before."""
        self.need(params=True)
        batch = copy.copy(data_batch)
        for i, module in enumerate(self._modules):
            if i:
                before = self._modules[i - 1]
                batch.data = before.get_outputs()
                shapes = [(n, o.shape) for n, o in zip(before.output_names, batch.data)]
                wired = self._metas[i].get(self.META_AUTO_WIRING)
                batch.provide_data = self._rewired(i, shapes) if wired else shapes
            module.forward(batch, is_train)

    def backward(self, out_grads: Any = None) -> None:
        """Run all modules backward, each with the gradients of the next one's data."""
        self.need(params=True)
        for i, module in reversed(list(enumerate(self._modules))):
            module.backward(out_grads)
            if i:
                out_grads = module.get_input_grads()

    def update(self) -> None:
        """Apply the optimizer in all modules."""
        self.need(params=True, optimizer=True)
        for module in self._modules:
            module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Outputs of the last module; see Module.get_outputs."""
        self.need(params=True)
        outputs: list[Any] = self._modules[-1].get_outputs(merge_multi_context)
        return outputs

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Gradients of the data, if bound with inputs_need_grad."""
        self.need(params=True)
        if not self.inputs_need_grad:
            raise StateError("get_input_grads: bind with inputs_need_grad=True.")
        grads: list[Any] = self._modules[0].get_input_grads(merge_multi_context)
        return grads

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Let the metric see the outputs of the modules that take labels."""
        self.need(params=True)
        for module, meta in zip(self._modules, self._metas):
            if meta.get(self.META_TAKE_LABELS):
                module.update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        """Have a Monitor look into every module."""
        self.need()
        for module in self._modules:
            module.install_monitor(mon)
