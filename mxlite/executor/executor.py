"""The executor: a symbol with its arrays, ready to run inside its memory plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends import Backend
from ..core import Context, nearest, ShapeError, StateError, UnknownNameError
from ..core.process.collection import no_collection
from ..core.wanted import wanted, wanted_function
from ..graph import Entry, LOSS_SCALE, Node, output_name, Shape, state_name
from ..graph.update import HISTORY, HYPER, MASTER
from ..memplan import MemoryPlan, RUN, Template
from ..ndarray import NDArray
from ..ndarray.sparse_arrays.row_gradient import RowGradient
from .plan.candidates import Planned
from .plan.listing import listing, totals
from .plan.lower import Lowered
from .plan.metrics import sums_key, taken_key
from .plan.row_gradients import is_row_sparse
from .plan.sparse_gradients import SparseGradients
from .plan.step import Key
from .request.anew import Anew
from .request.bind_request import BindRequest
from .request.masters import follow, Masters, note
from .request.modes import is_alike_in_training
from .request.rates import Rates
from .request.watch import Watch
from .run.arena import Arena
from .run.devices_program import DevicesProgram
from .run.feed import Feed
from .run.graph_program import GraphProgram, make_program
from .run.program import Program
from .run.storage import plan_in_errors
from .share import DeviceMemory, Share


class Executor:
    """Arguments, gradients, auxiliary states and outputs of one symbol, and the program that links them.

    `arg_arrays`, `grad_arrays`, `aux_arrays` are in the order of the symbol's lists, `outputs` are always the
    same arrays: an old handle shows the newest values. `memory_plan` is the plan that training runs.
    """

    def __init__(
        self,
        planned: Planned,
        request: BindRequest,
        backend: Backend,
        arrays: Mapping[Key, NDArray],
        grad_req: Mapping[str, str],
        arena: Arena,
        anew: Anew,
    ) -> None:
        context = request.ctx
        assert context is not None
        self._planned = planned
        self._request = request  # `shapes` are those of inputs; `grad_req` is kept as it was checked
        self._ctx = context
        self._anew = anew
        self.is_grouped = False  # it is a Module's
        self.arguments_are_given = False  # in arrays of the user that hold values
        self._monitor_by: Callable[[Any, Watch], None] | None = None
        self._backend = backend
        self._arrays = dict(arrays)
        self._grad_req = dict(grad_req)
        self._arena = arena
        self._masters = Masters()
        for one in arena.of_devices:
            one.tenants.add(self)
        self._templates: tuple[Template, Template] | None = None
        self._states: dict[Node | int, dict[str, Any]] = {}
        graph = planned.graph
        self._arguments = dict.fromkeys(n.name for n in graph.arguments)
        self._auxiliary = [n.name for n in graph.auxiliary]
        self._output_names = [output_name(e) for e in graph.outputs]
        self.arg_arrays: list[NDArray] = [arrays["var", n] for n in self._arguments]
        self.grad_arrays: list[NDArray | None] = [self._gradient(n) for n in graph.arguments]
        self.aux_arrays: list[NDArray] = [arrays["var", n] for n in self._auxiliary]
        self.outputs: list[NDArray] = [arrays["out", i] for i in range(len(graph.outputs))]
        self._feed = Feed(planned, context, backend, self._arrays)
        self._train: Program | DevicesProgram | None = None
        self._infer: Program | DevicesProgram | None = None
        self._with_masters = self._masters_here()
        if self.updated:
            self._rates = Rates(arrays["var", HYPER].shape)
        self.has_run = False  # a forward pass, so that outputs have values
        self.has_gradients = False
        problems = [one.train.problem for one in planned.of_devices]
        self._has_backward = any(p.num_forward < len(p.tasks) for p in problems)
        self._monitor: Callable[[str, NDArray], Any] | None = None
        self._sparse: SparseGradients | None = None
        self._loss_scale: float | None = None
        if ("var", LOSS_SCALE) in arrays:
            assert request.scale is not None
            self.loss_scale = request.scale.value

    def _gradient(self, argument: Node) -> NDArray | None:
        """The gradient that users see: row_sparse if there are flags of its rows."""
        grad = self._arrays.get(("grad", argument.name))
        flags = self._arrays.get(("rows", argument.name))
        return (
            grad
            if grad is None or flags is None
            else RowGradient(grad, flags, is_row_sparse(Entry(argument)))
        )

    def show_sparse(self, gradients: SparseGradients) -> None:
        """Show these gradients of the user instead of the dense ones that are written."""
        if gradients.sparse:
            self._sparse = gradients
            self.grad_arrays = [gradients.sparse.get(n, g) for n, g in zip(self._arguments, self.grad_arrays)]

    # -- contents ------------------------------------------------------------------------------

    @property
    def shares(self) -> list[Share]:
        """Its share on each device, the first on `context`."""
        return [Share(self, d) for d in range(len(self._planned.of_devices))]

    @property
    def devices(self) -> list[DeviceMemory]:
        """The devices that it runs on, each with its plan, and the bytes planned and allocated there."""
        return [share.memory for share in self.shares]

    @property
    def memory_plan(self) -> MemoryPlan:
        """The plan of a training step (of inference, if nothing asks for a gradient), that of `devices[0]`.

        While a view of a weight exists that inference keeps in another layout, the copy that
        this requires is included.
        """
        return self.shares[0].memory_plan

    @property
    def memory_plans(self) -> list[MemoryPlan]:
        """The plan of each of `devices`."""
        return [share.memory_plan for share in self.shares]

    @property
    def copied_bytes(self) -> int:
        """Bytes of copies of weights in a kernel's layout, while views of their originals exist."""
        return 0 if self._infer is None else sum(k.nbytes for k in self._infer.kept)

    @property
    def measured_bytes(self) -> int:
        """Bytes actually allocated on `devices[0]`: every array this executor owns, and the arena."""
        return self.shares[0].measured_bytes

    @property
    def measured_host_bytes(self) -> int:
        """Bytes allocated in host memory for arrays that leave the device: the plan's `host_bytes`."""
        return self._arena.measured_host_bytes

    @property
    def guard_bytes(self) -> int:
        """Bytes that MXLITE_GUARD=1 has taken beyond the plan for guarded copies of the arena; else 0."""
        return self._arena.guard_bytes

    @property
    def context(self) -> Context:
        """The device that it is bound to."""
        return self._ctx

    @property
    def arg_dict(self) -> dict[str, NDArray]:
        """The arguments by name: the arrays that the program reads."""
        return dict(zip(self._arguments, self.arg_arrays))

    def has_argument(self, name: str) -> bool:
        """True if an argument has that name."""
        return name in self._arguments

    @property
    def grad_dict(self) -> dict[str, NDArray | None]:
        """Their gradients by name; None if none was requested."""
        return dict(zip(self._arguments, self.grad_arrays))

    @property
    def aux_dict(self) -> dict[str, NDArray]:
        """The auxiliary states by name."""
        return dict(zip(self._auxiliary, self.aux_arrays))

    @property
    def output_dict(self) -> dict[str, NDArray]:
        """The last forward's outputs by name."""
        return dict(zip(self._output_names, self.outputs))

    @property
    def optimizer_states(self) -> dict[str, NDArray]:
        """State arrays of a fused update by name, `parameter:state`."""
        rest = (HYPER, HISTORY, LOSS_SCALE)
        kinds = [kind for one in self._planned.of_devices for kind in one.train.step.category.items()]
        return {k[1]: self._arrays[k] for k, c in kinds if c == "optimizer" and k[1] not in rest}

    @property
    def shares_states(self) -> bool:
        """True if each rank has a part of the optimizer's states, not all of them."""
        return not self.parts.keys().isdisjoint(self.optimizer_states)

    @property
    def parts(self) -> Mapping[str, Shape]:
        """Weights and states of the optimizer of which each rank has a part, with the shapes of the whole.

        Such an array has `comm.shard_length` elements: `comm.own_parts` of the whole, one after another.
        """
        return self._planned.train.step.parts

    @property
    def amp(self) -> np.dtype[Any] | None:
        """The 16-bit type of mixed precision, None without."""
        kind: np.dtype[Any] | None = self._request.amp
        return kind

    @property
    def loss_scale(self) -> float | None:
        """Factor of 16-bit gradients; None if it was not requested when binding.

        It may be set to another number between two steps. `grad_arrays` hold the true gradients. If the
        update is part of the step, the step itself changes it, and this waits for the last one.
        """
        if ("var", HISTORY) in self._arrays:
            return float(self._arrays["var", LOSS_SCALE].asnumpy()[0])
        return self._loss_scale

    @loss_scale.setter
    def loss_scale(self, scale: float) -> None:
        key = ("var", LOSS_SCALE)
        if key not in self._arrays:
            raise StateError("This executor was bound without loss_scale=, so there is none to be set.")
        target, values = self._arrays[key], np.array([scale, 1 / scale], np.float32)
        self._loss_scale = float(scale)
        self._feed.send(target, values, "loss scale", known=("var", HISTORY) not in self._arrays)

    @property
    def history(self) -> NDArray | None:
        """The array of `scale_history`; executors that share it share the loss scale."""
        return self._arrays.get(("var", HISTORY))

    @property
    def scale_history(self) -> tuple[int, int, int] | None:
        """(good steps since the loss scale changed, updates made, updates skipped because a gradient
        overflowed).

        None if the step does not decide that: without loss_scale= or optimizer=. Waits for the last step.
        """
        if ("var", HISTORY) not in self._arrays:
            return None
        good, made, left_out = self._arrays["var", HISTORY].asnumpy()
        return int(good), int(made), int(left_out)

    def set_scale_history(self, good_steps: int) -> None:
        """Set the count of good steps. The other counts stay; waits for the last step."""
        _, made, left_out = self.scale_history or (0, 0, 0)
        values = np.array([good_steps, made, left_out], np.float64)
        self._feed.send(self._arrays["var", HISTORY], values, "loss scale history", known=False)

    def metric_sums(self, number: int) -> tuple[NDArray, NDArray] | None:
        """(sums, taken) of one of the metrics given when binding; None if the step does not add to it."""
        sums = self._arrays.get(sums_key(number))
        return None if sums is None else (sums, self._arrays[taken_key(number)])

    @property
    def updated(self) -> tuple[str, ...]:
        """Parameters that a fused update changes, in the order of the rows that `step` takes."""
        return self._planned.train.step.updated

    # -- running -------------------------------------------------------------------------------

    def forward(self, is_train: bool = False, **inputs: Any) -> list[NDArray]:
        """Push the forward pass and return `outputs`.

        `inputs` (NDArray or numpy) are copied into the arguments of these names first. With `is_train` the
        values that backward needs are kept as the memory plan says.
        """
        self._feed.inputs(inputs)
        self.has_run = True
        if is_train:
            program = self._training_program(anew=True)
        else:
            program = self._inference_program()
        self._feed.draw(program)
        program.push_forward(self._feed.take())
        self._show(backward=False)
        return self.outputs

    def forward_backward(self, out_grads: Any = None, **inputs: Any) -> list[NDArray]:
        """forward(is_train=True) and backward at once, which on a GPU is one launch."""
        if not self._has_backward:
            return self.forward(is_train=True, **inputs)
        self._check_backward()
        self._feed.inputs(inputs)
        self._feed.heads(out_grads)
        if self._sparse is not None:
            self._sparse.before()
        outputs = self._push_step()
        if self._sparse is not None:
            self._sparse.after()
        return outputs

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Push the backward pass: gradients go to `grad_arrays` as `grad_req` says.

        `out_grads` are head gradients, one for each output that is not a loss (or for each output). If no
        output depends on an argument with a gradient, there is nothing to do: binding has set gradients to 0.

        A second backward after the same forward recomputes the forward pass, from the current arguments
        and with the same random numbers; auxiliary states stay as the first pass left them. So does
        one after a forward(is_train=False) that gives the same as one for training, and one of an executor of
        `bind` before any forward pass, as its arrays have values: StateError if a node depends on the mode,
        draws random numbers or has an auxiliary state, or if another forward pass waits in the arena for its
        own backward; and before the first forward pass of an executor of `simple_bind`. `is_train` is
        accepted for compatibility with MXNet.
        """
        if not self._has_backward:
            return
        self._check_backward()
        if not self.has_run and not (self.arguments_are_given and is_alike_in_training(self._planned.graph)):
            raise StateError(
                "backward: call forward(is_train=True) first; there are no values to go back from."
            )
        self._feed.heads(out_grads)
        moved: list[NDArray] = []
        holder = self._arena.holder
        inferred = self._infer is not None and holder is self._infer
        if holder is None or (inferred and is_alike_in_training(self._planned.graph)):
            program = self._training_program(anew=True)
            self._feed.draw(program, again=True)
            moved = [a.copy() for a in self.aux_arrays]
            program.push_forward(self._feed.take())
        if self._sparse is not None:
            self._sparse.before()
        self._push_backward()
        for state, before in zip(self.aux_arrays, moved):
            before.copyto(state)  # the plan may move statistics in either pass
        if self._sparse is not None:
            self._sparse.after()

    def step(self, hyper: Any, **inputs: Any) -> list[NDArray]:
        """One fused training step: forward, backward and update, gradients dying on the way.

        hyper: (parameters, 2) learning rate and weight decay for each of `updated`; a third column counts its
        updates from 1 if the optimizer's rule needs that (FTML, LAMB).
        """
        if not self._planned.train.step.updated:
            raise StateError("This executor was bound without an optimizer: there is no fused step.")
        values = self._rates.checked(hyper)
        self._feed.inputs(inputs)
        self._prepare_update(values)
        outputs = self._push_step()
        self._note_masters()
        return outputs

    def finish_step(self, hyper: Any) -> None:
        """The rest of a fused step after forward(is_train=True): backward and update; see `step`."""
        if not self.updated:
            raise StateError("This executor was bound without an optimizer: there is no fused step.")
        self._prepare_update(self._rates.checked(hyper))
        self._push_backward()
        self._note_masters()

    @property
    def unlearned(self) -> tuple[str, ...]:
        """The arguments with a gradient request, if no output gives any of them one; else nothing."""
        step = self._planned.train.step
        return () if step.learns else step.no_gradient

    @property
    def read_in_backward(self) -> frozenset[str]:
        """The arguments that the backward pass reads, also where it recomputes."""
        read: set[Key | None] = set()
        for one in self._planned.of_devices:
            schedule, tasks = one.train_plan.schedule, one.train_plan.problem.tasks
            later = range(schedule.num_forward, len(schedule.task))
            ran = (tasks[schedule.task[s]] for s in later if schedule.kinds[s] == RUN)
            read |= {one.train.key[v] for task in ran for v in task.inputs}
        return frozenset(n for n in self._arguments if ("var", n) in read)

    def _prepare_update(self, hyper: np.ndarray) -> None:
        self._feed.refuse_heads()
        self.refresh_masters()
        self._feed.send(self._arrays["var", HYPER], hyper, "hyper", merged=True)

    def _push_step(self) -> list[NDArray]:
        self.has_run = self.has_gradients = True
        program = self._training_program(anew=True)
        self._feed.draw(program)
        program.push_step(self._feed.take())
        self._show(backward=False)
        self._show(backward=True)
        return self.outputs

    def refresh_masters(self) -> None:
        """Make the float32 copies of 16-bit weights follow writes to the weights; see `masters.py`.

        Each step does so by itself.
        """
        for weight, master in self._with_masters:
            if self._masters.made:
                follow(weight, master)
            else:
                weight.astype("float32").copyto(master)
                note(weight, master)
        self._masters.made = True  # all of them: an interrupt may come while a push waits for room

    def _note_masters(self) -> None:
        """Note that a step has been pushed: weights and masters agree."""
        for weight, master in self._with_masters:
            note(weight, master)

    def _masters_here(self) -> list[tuple[NDArray, NDArray]]:
        """The weights that have masters, with these."""
        pairs = ((n, self._arrays.get(("var", state_name(n, MASTER)))) for n in self.updated)
        return [(self._arrays["var", n], master) for n, master in pairs if master is not None]

    def _check_backward(self) -> None:
        if self.updated:
            raise StateError(
                "This executor's backward pass includes the optimizer's update: call step() instead."
            )

    def _push_backward(self) -> None:
        program = self._training_program()
        if self._arena.holder is not program:
            raise StateError(
                "backward() needs a forward(is_train=True) of this executor right before it: "
                "its forward values are not there, as it was interrupted, or another forward pass has used "
                "the arena since."
            )
        program.push_backward(self._feed.take())
        self.has_gradients = True
        self._show(backward=True)

    def templates(self) -> tuple[Template, Template]:
        """Templates of training's plan and of inference's, for other shapes, which reuse their results."""
        planned, made = self._planned, self._templates
        if made is None or made[0].first is not planned.train_plan or made[1].first is not planned.infer_plan:
            made = self._templates = Template(planned.train_plan), Template(planned.infer_plan)
        return made

    def adopt(self, plan: MemoryPlan, device: int = 0) -> None:
        """Run `plan`, another one for the same training step, from the next forward pass on."""
        parts = list(self._planned.of_devices)
        old = parts[device].train_plan
        parts[device] = replace(parts[device], train_plan=plan)
        self._planned = replace(parts[0], others=tuple(parts[1:]))
        if plan.schedule.task is not old.schedule.task or plan.offsets is not old.offsets:
            self._train = None

    def leave(self) -> None:
        """Drop the programs, whose block is not the arena's any more; they are created anew when needed."""
        self._train = self._infer = None

    def _training_program(self, anew: bool = False) -> Program | DevicesProgram:
        """The program; with `anew` one in the arena's future block, without the old block's content."""
        if self._train is None or (anew and self._train.is_outdated):
            self._train = self._program([(one.train, one.train_plan) for one in self._planned.of_devices])
        return self._train

    def _inference_program(self) -> Program | DevicesProgram:
        if self._infer is None or self._infer.is_outdated:
            self._infer = self._program([(one.infer, one.infer_plan) for one in self._planned.of_devices])
        return self._infer

    def _program(self, of_devices: Sequence[tuple[Lowered, MemoryPlan]]) -> Program | DevicesProgram:
        arrays, streams, found = self._arrays, self._request.streams, []
        for (lowered, plan), arena, drawn in zip(of_devices, self._arena.of_devices, self._feed.random):
            random, var = (drawn, self._feed.random_var) if lowered.uses_rng else (None, None)
            with plan_in_errors(plan, lowered.backend), no_collection():
                program = make_program(lowered, plan, arrays, arena, random, var, self._states, streams)
            found.append(program)
        return found[0] if len(found) == 1 else DevicesProgram(found)

    # -- inspection ----------------------------------------------------------------------------

    def set_monitor_callback(
        self,
        callback: Callable[[str, NDArray], Any] | None,
        monitor_all: bool = False,
        pattern: str | None = None,
    ) -> None:
        """Call `callback(name, array)` for every inner result after each pass; None: no longer.

        Names are `fc1_output` for what nodes give, `bn1_mean` and `bn1_var` (1 / std) for the statistics of
        BatchNorm, with `monitor_all` also `fc1_data` for what they read (`relu1_input0` where MXNet has no
        name for it), before it `data` if that is a variable, and `fc1_backward_output1` for the gradient of
        what fc1 reads in second place. The array holds that result until the next pass overwrites it.

        Arrays whose names `pattern` (None: any) matches from the start are kept outside the arena, and the
        program is planned anew for that: `memory_plan` counts them as outputs. So a selective pattern costs
        few bytes and little time. A change of pattern loses the values of a forward pass that waits for
        its backward. With mixed precision 16-bit results are shown as such, gradients times the loss scale.
        """
        if callback is not None:
            wanted_function("set_monitor_callback: callback", callback)
            watch = Watch(".*" if pattern is None else pattern, monitor_all)
            watched = self._request.watch
            kept = pattern is None and self.is_grouped and watched is not None
            if watched != watch and not kept:
                if self._monitor_by is not None:
                    self._monitor_by(callback, watch)
                    return
                self._anew.rewatch(self, watch)
        self._monitor = callback

    def monitor_by(self, through: Callable[[Any, Watch], None]) -> None:
        """Let `through(callback, watch)` replace `set_monitor_callback`, which cannot plan a module's
        executors anew.
        """
        self._monitor_by = through

    def _show(self, backward: bool) -> None:
        if self._monitor is None:
            return
        for seen in self._planned.shown:
            if seen.backward == backward:
                self._monitor(seen.name, self._arrays[seen.key])

    def replan(self, planned: Planned, arrays: Mapping[Key, NDArray], watch: Watch | None) -> None:
        """Run the programs in `planned`, with these arrays, from the next pass on."""
        self._planned = planned
        self._arrays = dict(arrays)
        self._with_masters = self._masters_here()
        self._feed.renew(planned, self._arrays)
        self._request = replace(self._request, watch=watch)
        self._train = self._infer = None

    # -- parameters, shapes, text --------------------------------------------------------------

    def copy_params_from(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray] | None = None,
        allow_extra_params: bool = False,
    ) -> None:
        """Copy values into arguments and auxiliary states by name."""
        for given, have in ((arg_params, self.arg_dict), (aux_params or {}, self.aux_dict)):
            wanted("copy_params_from: parameters", given, "a dict of names and arrays", Mapping)
            for name, value in given.items():
                if name in have:
                    wanted(f"copy_params_from: {name!r}", value, "an NDArray", NDArray)
                    if value.shape != have[name].shape:
                        raise ShapeError(f"{name!r} is {have[name].shape} here, but {value.shape} was given.")
                    value.astype(have[name].dtype).copyto(have[name])
                elif not allow_extra_params:
                    raise UnknownNameError(f"{name!r} is no parameter of this symbol.{nearest(name, have)}")
        self.refresh_masters()

    def reshape(
        self, partial_shaping: bool = False, allow_up_sizing: bool = False, **shapes: Shape
    ) -> Executor:
        """An executor for other input shapes that shares the arena, and all arrays that are not larger here.

        A smaller array is a view of the first elements of the existing one, with other axes.
        """
        return self._anew.reshape(self, shapes, partial_shaping, allow_up_sizing)

    def debug_str(self) -> str:
        """The steps of the training program with kernels and places, the plan's table, and last MXNet's two
        lines:
        the arena in whole MB (2**20 bytes), and how many of the steps have scratch of their own in it.
        """
        lines: list[str] = []
        for device in self.devices:
            lines += [f"{device.context}:"] if len(self._planned.of_devices) > 1 else []
            lines += listing(device.memory_plan)
        for program in (self._train, self._infer):
            if isinstance(program, GraphProgram):
                lines += program.describe()
        return "\n".join([*lines, *totals(self.memory_plan)])
