"""A symbol bound on one device: its inputs and outputs, the memory of its steps, its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ..core import BindError, Context, MemoryBudgetError, nearest, ShapeError, StateError, UnknownNameError
from ..core.wanted import wanted
from ..dist.parts import gathered, keep_parts
from ..executor import DeviceMemory, Executor, ExecutorGroup
from ..executor.plan.row_gradients import is_row_sparse
from ..graph import Entry
from ..io import DataDesc
from ..memplan import MemoryPlan
from ..ndarray import concat, NDArray, zeros
from .base_module import BaseModule, BindArguments
from .binding import Binding
from .bound_arrays import BoundArrays
from .evaluation import Evaluation, other_shapes, Shapes, shapes_of
from .initial import parameters
from .initial.initializer import Uniform
from .loop_arguments import as_list
from .training import Training
from .watch.callback_monitor import CallbackMonitor


class BoundModule(BaseModule):
    """A module of one symbol, without training. `training` says which step is planned.

    `budgets` are the bytes of each device, None for no bound.
    """

    def __init__(
        self, binding: Binding, training: Training, budgets: Sequence[int | None], logger: Any
    ) -> None:
        super().__init__(logger)
        self._symbol = binding.symbol
        self._context: list[Context] = [binding.context]
        self._names = binding.names
        # Under MXNet's names, which programs read.
        self._data_names, self._label_names = binding.names.data, binding.names.label
        self._param_names, self._fixed_param_names = binding.names.parameters, binding.names.fixed
        self._aux_names: list[str] = binding.symbol.list_auxiliary_states()
        self._output_names: list[str] = binding.symbol.list_outputs()
        self._budgets = list(budgets)
        self._binding = binding
        self._training = training
        self._evaluation = Evaluation()
        self._only_evaluates = False  # plan no step before training starts
        self._preloaded: tuple[parameters.Given, parameters.Given] | None = None

    # -- what it is ----------------------------------------------------------------------------

    @property
    def data_names(self) -> list[str]:
        return self._names.data

    @property
    def label_names(self) -> list[str]:
        """Names of the labels that a batch feeds."""
        return self._names.label

    @property
    def output_names(self) -> list[str]:
        return self._output_names

    @property
    def data_shapes(self) -> list[DataDesc]:
        self.need()
        return self._present.data_shapes

    @property
    def label_shapes(self) -> list[DataDesc]:
        self.need()
        return self._present.label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        self.need()
        return list(zip(self._output_names, self._present.output_shapes))

    @property
    def memory_plan(self) -> MemoryPlan:
        """The plan of the step that is run for the shapes of the last batch; inference beside training has
        plans of its own.

        Its fixed bytes are all that this module owns outside the arena: parameters, states, and inputs and
        outputs for each of the last shapes. Its arena is the part of the module's that this step needs.
        """
        self.need()
        return self._executor.memory_plan

    @property
    def planned_bytes(self) -> int:
        """Bytes that this module owns, with all modules that share its parameters, once their steps have run.

        Everything that is shared once, inputs and outputs for each of the last shapes, and one arena, as
        large as the largest step needs. `memory_budget` bounds this.
        """
        self.need()
        return self._binding.planned_bytes

    @property
    def measured_bytes(self) -> int:
        """Bytes actually allocated so far: every array, optimizer states included, and the arena."""
        self.need()
        group = self._binding.group
        return group.measured_bytes + sum(group.extra.values())

    @property
    def devices(self) -> list[DeviceMemory]:
        """The plan of each context or device of `group2ctxs`, and the bytes planned and allocated there.

        `memory_plan`, `planned_bytes` and `measured_bytes` are those of the first, which owns the optimizer's
        states, too.
        """
        self.need()
        return [
            memory._replace(
                planned_bytes=group.planned_bytes,
                measured_bytes=group.measured_bytes + sum(group.extra.values()),
            )
            for device, executor in zip(self._binding.devices, self._binding.executors)
            for group, memory in zip(device.group.of_devices, executor.devices)
        ]

    @property
    def _executor(self) -> Executor:
        return self._binding.executor

    @property
    def _present(self) -> Binding:
        """The binding whose program ran last: that of steps, or of inference for other shapes."""
        return self._evaluation.present(self._binding)

    @property
    def _exec_group(self) -> BoundArrays:
        """See `bound_arrays.py`: private in MXNet, too, but used by programs nevertheless."""
        self.need()
        executors = self._binding.executors
        for executor in executors:
            executor.monitor_by(self._monitor_by)
        return BoundArrays(
            executors,
            self._names.parameters,
            self._names.data,
            self._binding.samples,
            self.install_monitor,
        )

    @property
    def _updater(self) -> Any:
        """The updater, None before there is an optimizer."""
        return self._training.updater if self.optimizer_initialized else None

    @property
    def _kvstore(self) -> Any:
        """The key-value store that was given to `init_optimizer`, None without one."""
        return self._training._store

    @property
    def _grad_req(self) -> Any:
        """The `grad_req` that `bind` was given."""
        return self._binding.grad_req

    @property
    def _total_exec_bytes(self) -> int:
        """Bytes that the executor takes for inner results, here the arena; the name is MXNet's."""
        return self.memory_plan.arena_bytes

    @property
    def _arg_params(self) -> dict[str, NDArray] | None:
        """As in MXNet the parameters of `get_params`, None before they have values.

        One whose variable is declared with stype="row_sparse" is so here; a program has no other than dense
        ones.
        """
        if not self.params_initialized:
            return None
        sparse = {n.name for n in self._symbol.graph.arguments if is_row_sparse(Entry(n))}
        params = self.get_params()[0]
        return {n: a.tostype("row_sparse") if n in sparse else a for n, a in params.items()}

    @property
    def _aux_params(self) -> dict[str, NDArray] | None:
        """The auxiliary states, likewise."""
        return self.get_params()[1] if self.params_initialized else None

    @property
    def is_fused(self) -> bool:
        """True if the update is part of the planned step."""
        return self._binding.is_fused

    # -- bind ----------------------------------------------------------------------------------

    def _bind(self, b: BindArguments) -> None:
        """Plan and allocate for these input shapes: lists of (name, shape) or DataDesc."""
        if b.for_training and self._binding.narrow_params:
            raise BindError(
                "bind: with narrow_params no float32 parameters are left to train; bind with "
                "for_training=False, or make the module without."
            )
        kept = self.get_params() if self.binded and self.params_initialized else None
        old = self._binding
        new = self._begun(b.for_training, b.inputs_need_grad, b.grad_req)
        if b.shared_module is not None:
            b.shared_module.need(params=True)
            new.group = b.shared_module._binding.group
            if len(b.shared_module._context) != len(self._context):
                raise BindError(
                    f"Modules that share parameters run on the same devices: {self._context} are not those "
                    f"of shared_module, {b.shared_module._context}."
                )
            if any(own not in (None, g.budget) for own, g in zip(self._budgets, new.group.of_devices)):
                raise BindError(
                    "Modules that share parameters have one memory_budget: give it to the first of them."
                )
        else:
            for group, budget in zip(new.group.of_devices, self._budgets):
                group.budget = budget
            new.group.extras = old.group.extras
        self._training.use(new, b.data_shapes, b.label_shapes, before=old)
        self._binding = new
        self._evaluation.begin()
        self.for_training = b.for_training
        self.inputs_need_grad = b.inputs_need_grad
        self.binded = True
        if b.shared_module is not None:
            self.params_initialized = True
        elif kept is not None:
            self.set_params(*kept)
            self._training.keep_states(new)
            self._training.fill_store(new)
        elif self._preloaded is not None:
            self.set_params(*self._preloaded)
            self._preloaded = None

    def _begun(self, for_training: bool, inputs_need_grad: bool, grad_req: Any) -> Binding:
        """A binding with these options, in a group of its own, with nothing bound."""
        new = self._binding.anew()
        new.inputs_need_grad = inputs_need_grad
        new.grad_req = grad_req
        new.forward_only = for_training and self._only_evaluates
        trains = for_training and not new.forward_only
        new.optimizer = self._training.in_step(inputs_need_grad) if trains else None
        new.waits = trains and self._training.waits
        new.plan_gradients = trains and not new.waits
        return new

    def expect_in(
        self,
        group: ExecutorGroup,
        data_shapes: Any,
        label_shapes: Any,
        for_training: bool,
        inputs_need_grad: bool,
        grad_req: Any,
    ) -> None:
        """Make a group count what `bind` with these arguments will create, and what was declared for it."""
        new = self._begun(for_training, inputs_need_grad, grad_req)
        new.group = group
        self._training.expect(new, data_shapes, label_shapes)
        if self._evaluation.declared is not None:
            self._evaluation.expect(new, self._evaluation.declared, group, new.shapes)

    # -- inference beside training -------------------------------------------------------------

    @contextmanager
    def expecting(self, train_data: Any, eval_data: Any = None) -> Iterator[None]:
        if all(g.budget is None for g in self._binding.group.of_devices):
            yield
            return
        shapes, bound = None if eval_data is None else shapes_of(eval_data), self._binding.shapes
        self._evaluation.begin_anew(self._binding, shapes)
        self._binding.others, before = self._expect, self._binding.others
        try:
            self.train_for(shapes_of(train_data))
            yield
            if shapes is not None:
                self._evaluation.bind(self._binding, shapes)
        except MemoryBudgetError:
            self.train_as_before(bound)
            raise
        finally:
            self._binding.others = before  # which would keep this module alive
            self._training.samples = None
            self._evaluation.forget(self._binding.group)

    def train_for(self, shapes: Shapes) -> None:
        """Select steps for the shapes that an iterator provides; if an optimizer is still to come, the shapes
        before count, and its first batch changes them."""
        if (other := other_shapes(self._binding.shapes, *shapes)) is not None:
            self._training.samples = self._binding.samples
            self._training.use(self._binding, *other)

    def _expect(self, group: ExecutorGroup, steps: Shapes) -> None:
        """Make the group count the declared inference, beside `steps` of these shapes."""
        if self._evaluation.declared is not None:
            self._evaluation.expect(self._binding, self._evaluation.declared, group, steps)

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        """Bind for other input shapes; parameters, states and the arena stay, and what was bound is kept.

        Up to four sets of shapes are kept, the least recently used is given up first.
        """
        self.need()
        self._training.use(self._binding, data_shapes, label_shapes)
        self._evaluation.rest(self._binding)

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Counterpart of the call that loops in the style of MXNet's `fit` make ahead of a batch.

        `sparse_row_id_fn(batch)` gives the rows of row_sparse parameters that the batch needs, by name; all
        rows are there already, so that only the names are looked at.
        """
        self.need()
        if sparse_row_id_fn is None:
            return
        rows = wanted("prepare: what sparse_row_id_fn gives", sparse_row_id_fn(data_batch), "a dict", dict)
        for name in rows:
            if name not in self._names.parameters:
                raise UnknownNameError(
                    f"prepare: sparse_row_id_fn names {name!r}, which is no parameter."
                    f"{nearest(name, self._names.parameters)}"
                )

    def train_as_before(self, shapes: Shapes) -> None:
        """Restore steps for these shapes, if there is still room, after those to come were refused."""
        self._evaluation.begin_anew(self._binding, None)
        if self._binding.shapes != shapes:
            with suppress(MemoryBudgetError):
                self._training.use(self._binding, *shapes)

    def leave(self) -> None:
        """Drop all programs; the arrays that others share stay."""
        self._evaluation.leave()
        self._binding.leave()

    def install_monitor(self, mon: Any) -> None:
        """Have a Monitor look into this module, for all shapes; plans anew, as what it watches is kept."""
        self.need()
        wanted("install_monitor: mon", mon, "a Monitor", has=("install",))
        self._evaluation.leave()
        self._binding.monitor = mon
        self._training.remake(self._binding)

    def _monitor_by(self, callback: Any, watch: Any) -> None:
        """Plan this module anew for a callback of `_exec_group.execs[0].set_monitor_callback`."""
        self.install_monitor(CallbackMonitor(callback, watch))

    # -- parameters ----------------------------------------------------------------------------

    def init_params(
        self,
        initializer: Any = None,
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Give every parameter a value: from `arg_params` and `aux_params`, else by the initializer.

        Names beyond the symbol's are ignored. Raises MXLiteError for one that is not given, unless
        `allow_missing`.
        """
        self.need()
        if self.params_initialized and not force_init:
            return
        initializer = initializer if initializer is not None else Uniform(0.01)
        attrs = self._symbol.attr_dict()
        args, aux = self._written()
        for targets, given in ((args, arg_params), (aux, aux_params)):
            parameters.fill(targets, given, initializer, attrs, allow_missing)
        self._take(args)
        self._binding.refresh_masters()
        self.params_initialized = True

    def _written(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """The arrays that users write, arguments and auxiliary states: those of the first device, and whole
        ones in place of a rank's parts, see `_take`.
        """
        args, aux = self._binding.arg_dict, self._binding.aux_dict
        parts = self._binding.of_ranks
        found = {n: args[n] for n in self._names.parameters}
        return found | {n: zeros(s, dtype=found[n].dtype) for n, s in parts.items() if n in found}, aux

    def _take(self, args: Mapping[str, NDArray]) -> None:
        """Keep this rank's parts of the weights that users have written whole."""
        have = self._binding.arg_dict
        for name in self._binding.of_ranks:
            if name in args:
                keep_parts(args[name], have[name])

    def _parameters(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """The arrays themselves, for reading only; of several devices' auxiliary states the means.

        What ranks share is gathered: then all of them call it.
        """
        args, parts = self._binding.arg_dict, self._binding.of_ranks
        found = {n: gathered(args[n], parts[n]) if n in parts else args[n] for n in self._names.parameters}
        return found, self._binding.mean_aux_dict

    def average_states(self) -> None:
        self._binding.average_states()

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Copies of (arguments, auxiliary states) by name; where ranks share weights, all of them call it."""
        self.need(params=True)
        args, aux = self._parameters()
        return {n: a.copy() for n, a in args.items()}, {n: a.copy() for n, a in aux.items()}

    def set_params(
        self,
        arg_params: parameters.Given,
        aux_params: parameters.Given,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Assign parameters. With `allow_missing` those that are not given stay as they are.

        Without it extra names are ignored, as in MXNet; with it they are a BindError unless
        `allow_extra`. Without `force_init` nothing happens once the parameters have values.
        """
        self.need()
        if self.params_initialized and not force_init:
            self.logger.warning(
                "Parameters are initialised already; set_params(force_init=False) leaves them."
            )
            return
        args, aux = self._written()
        for targets, given, known in (
            (args, arg_params, self._symbol.list_arguments()),
            (aux, aux_params, aux),
        ):
            if not allow_missing:
                parameters.refuse_missing(given, targets)
            elif not allow_extra:
                parameters.refuse_unknown(given, known, targets)
            parameters.copy(given, targets)
        self._take({n: a for n, a in args.items() if arg_params and n in arg_params})
        self._binding.refresh_masters()
        self.params_initialized = True

    # -- states --------------------------------------------------------------------------------

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """The arrays of `state_names`, in that order; as `get_outputs` gives them."""
        self.need(params=True)
        present, names = self._present, self._names.states
        states = [[e.arg_dict[n] for e in present.executors] for n in names]
        return present.parts.merged(states, merge_multi_context, [0] * len(names))

    def set_states(self, states: Any = None, value: float | None = None) -> None:
        """Assign all states: from a list of arrays, as `get_states` or `get_outputs` gives it, or one number.

        They keep what they are given until the next call, for the shapes that are bound now.
        """
        self.need(params=True)
        if (states is None) == (value is None):
            raise StateError("set_states takes either states, a list of arrays, or value, a number.")
        present = self._present
        here = [e.arg_dict for e in present.executors]
        if states is None:
            for name in self._names.states:
                for arrays in here:
                    arrays[name][:] = value
            return
        given = [concat(*s, dim=0) if isinstance(s, (list, tuple)) and s else s for s in as_list(states)]
        if len(given) != len(self._names.states):
            raise StateError(f"set_states: {len(given)} arrays were given for {self._names.states}.")
        for name, state in zip(self._names.states, given):
            wanted(f"set_states: {name!r}", state, "an NDArray", NDArray)
            parts = [present.parts.cut(state, 0, i) for i in range(len(here))]
            if any(part.shape != arrays[name].shape for part, arrays in zip(parts, here)):
                wants = [arrays[name].shape for arrays in here]
                raise ShapeError(
                    f"set_states: {name!r} is {wants[0] if len(wants) == 1 else wants}, but {state.shape} "
                    f"was given."
                )
            for part, arrays in zip(parts, here):
                part.copyto(arrays[name])
