"""From a symbol's graph to an executor: infer, differentiate, lower, plan; then allocate and link."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from ..backends import backend_of, guard
from ..backends.gpu import planning_backend
from ..core import BindError, Context, current_context, DTypeError, nearest, parse_bytes, ShapeError
from ..core.collection import no_collection
from ..core.errors import DeviceError, MemoryBudgetError
from ..graph import Entry, Graph, LOSS_SCALE, Shape, UpdateRule
from ..graph.update import HISTORY
from ..memplan import Device, HostLink, MemoryPlan, plan_memory, Problem, Steps, STRATEGIES, Template
from ..memplan.device import DEFAULT, device_of, MEASURED
from ..ndarray import NDArray
from .adopt import adopted, is_of
from .amp import amp_dtype, LossScale, mixed, typed
from .calibration import Calibration, tried, with_measured_costs
from .constants import constant_bytes
from .executor import Executor
from .given import by_name, check_apart, shared_arrays
from .group import Arrival, ExecutorGroup
from .infer import shapes_of_variables
from .link import arena_bytes, link
from .lower import lower, Lowered
from .metrics import Counted, with_metrics
from .offload import host_link, Offload
from .planned import Planned
from .remedies import advice, Question
from .room import require_room
from .step import check_grad_req, forward_step, input_names, Key, Step, training_step
from .watch import Seen, Watch, watched

Shapes = Mapping[str, Shape]

MOST_STREAMS = 16  # of kernels


@dataclass(frozen=True)
class Place:
    """Where in a group an executor belongs: (owner, key), in the place of who has that now.

    Without `bounded` the group's budget does not apply yet: the executor only holds arrays for another one.
    """

    group: ExecutorGroup
    owner: Hashable
    key: Hashable
    bounded: bool = True

    @property
    def can_go_away(self) -> bool:
        """Whether the executor may keep parameters in another form, which may be larger, where they are."""
        return self.bounded and self.group.can_go_away


def memory_plan(
    graph: Graph,
    ctx: Context | None,
    shapes: Shapes,
    *,
    grad_req: Any = "write",
    type_dict: Mapping[str, Any] | None = None,
    memory_budget: int | str | None = None,
    optimizer: Any = None,
    strategy: str = "sharing",
    amp: Any = None,
    loss_scale: float | str | LossScale | None = None,
    device: Device | str | None = None,
    offload: Offload = None,
) -> MemoryPlan:
    """The plan that binding with these arguments would run; allocates no array.

    `device` is what seconds are reckoned for: a `Device`, text such as "20TFLOP/s,900GB/s", or "measured".
    """
    budget = None if memory_budget is None else parse_bytes(memory_budget)
    asked, shapes = shapes, shapes_of_variables(graph, shapes)
    amp, scale = _amp(amp, loss_scale, optimizer)
    inferred, stored = typed(graph, shapes, type_dict, amp, asked)
    planned, _ = _plan(
        inferred,
        ctx,
        set(shapes),
        grad_req,
        budget,
        update_rule(optimizer),
        strategy,
        amp=amp,
        scale=scale,
        stored=stored,
        device=device,
        host=host_link(offload),
    )
    return planned.train_plan


def calibrate(
    graph: Graph,
    ctx: Context | None,
    shapes: Shapes,
    *,
    again: bool = False,
    grad_req: Any = "write",
    type_dict: Mapping[str, Any] | None = None,
    optimizer: Any = None,
    amp: Any = None,
    loss_scale: float | str | LossScale | None = None,
) -> Calibration:
    """Time the kernel calls of a step and keep the times for plans with `device="measured"`.

    `again`: also those that are known already. The other arguments are those of `memory_plan`.
    """
    done: list[Calibration] = []

    def measure(lowered: Lowered, budget: int | None) -> Lowered:
        lowered, calibration = with_measured_costs(lowered, again, budget)
        done.append(calibration)
        return lowered

    asked, shapes = shapes, shapes_of_variables(graph, shapes)
    amp, scale = _amp(amp, loss_scale, optimizer)
    inferred, stored = typed(graph, shapes, type_dict, amp, asked)
    rule = update_rule(optimizer)
    _plan(
        inferred,
        ctx,
        set(shapes),
        grad_req,
        None,
        rule,
        amp=amp,
        scale=scale,
        stored=stored,
        device=MEASURED,
        measure=measure,
    )
    return done[0]


@no_collection()
def simple_bind(
    graph: Graph,
    ctx: Context | None,
    shapes: Shapes,
    *,
    grad_req: Any = "write",
    type_dict: Mapping[str, Any] | None = None,
    shared_exec: Executor | None = None,
    memory_budget: int | str | None = None,
    optimizer: Any = None,
    arrays: Mapping[str, NDArray] | None = None,
    amp: Any = None,
    loss_scale: float | str | LossScale | None = None,
    place: Place | None = None,
    device: Device | str | None = None,
    plan: MemoryPlan | None = None,
    offload: Offload = None,
    streams: int = 1,
    metrics: Sequence[Counted] = (),
    watch: Watch | None = None,
) -> Executor:
    """Plan, then allocate every array the program needs, all zero.

    `arrays` are arguments, auxiliary and optimizer states to be used as they are, by name. `amp` is the
    16-bit type of mixed precision, `loss_scale` what 16-bit gradients are multiplied with. With a `place` in
    a group the executor shares the group's parameters, states, arena and budget. `device` is as for
    `memory_plan`. `streams` are for kernels on a GPU. `plan` is run instead of a new one; PlanError if it is
    not sound or not of this step. `metrics` are what a training step adds up besides; see `metrics.py`.
    `watch` says which inner results are kept to be looked at; see `watch.py`.
    """
    budget = None if memory_budget is None else parse_bytes(memory_budget)
    ctx = ctx or current_context()
    backend = backend_of(ctx)
    asked, shapes = shapes, shapes_of_variables(graph, shapes)
    amp, scale = _amp(amp, loss_scale, optimizer)
    inferred, stored = typed(graph, shapes, type_dict, amp, asked)
    arrivals: list[Arrival] = []
    templates: tuple[Template | None, Template | None] = (None, None)
    like: Planned | None = None
    choose = None
    if place is not None:
        group, where = place.group, (place.owner, place.key)
        budget = group.budget if place.bounded else None
        templates = group.templates.get(place.owner, templates)
        like = group.first.get(place.owner)

        def choose(steps: Steps, usual: Lowered) -> MemoryPlan:
            arrivals.append(group.plan(*where, steps, usual, templates[0], place.bounded))
            return arrivals[-1].plan

    def there(planned: Planned) -> dict[Key, NDArray]:
        """The arrays that are not to be made: given ones and those of others."""
        mine = {("var", n): a for n, a in (arrays or {}).items() if ("var", n) in planned.train.step.owned}
        if place is not None:
            return place.group.lent((planned.train, planned.infer)) | mine
        return shared_arrays(shared_exec, planned, {*shapes, LOSS_SCALE, HISTORY}) | mine

    def room(planned: Planned) -> None:
        if place is None:
            require_room(planned, backend, there, *arena_bytes(planned, backend, shared_exec))
        else:
            require_room(planned, backend, there, *place.group.arena_bytes(arrivals[-1], backend))

    planned, requests = _plan(
        inferred,
        ctx,
        set(shapes),
        grad_req,
        budget,
        update_rule(optimizer),
        amp=amp,
        scale=scale,
        stored=stored,
        host=host_link(offload),
        device=device,
        plan=plan,
        choose=choose,
        template=templates[1],
        metrics=metrics,
        in_place=shared_exec is None and not arrays and (place is None or place.can_go_away),
        watch=watch,
        room=room,
        like=like,
    )
    given = locals_of(shapes, grad_req, type_dict, budget, optimizer, amp, scale, device, offload, streams)
    given |= {"watch": watch, "grouped": place is not None}
    shared = there(planned)
    if place is None:
        return link(planned, ctx, shared, requests, shared_exec, given)
    arena = group.arena_for(arrivals[-1], backend)
    lender = next((m for m in group.members.values() if m.updated), None)
    executor = link(planned, ctx, shared, requests, lender, given, arena)
    group.admit(arrivals[-1], executor)
    return executor


@no_collection()
def bind(
    graph: Graph,
    ctx: Context | None,
    args: Any,
    *,
    args_grad: Any = None,
    grad_req: Any = "write",
    aux_states: Any = None,
    shared_exec: Executor | None = None,
    memory_budget: int | str | None = None,
    optimizer: Any = None,
    amp: Any = None,
    loss_scale: float | str | LossScale | None = None,
    device: Device | str | None = None,
    plan: MemoryPlan | None = None,
    offload: Offload = None,
    streams: int = 1,
) -> Executor:
    """Link arrays of the user's: `args`, `args_grad` and `aux_states` are lists in the symbol's order,
    or dicts.

    Arguments without an array in `args_grad` get no gradient.
    """
    budget = None if memory_budget is None else parse_bytes(memory_budget)
    ctx = ctx or current_context()
    backend = backend_of(ctx)
    arguments = [n.name for n in graph.arguments]
    auxiliary = [n.name for n in graph.auxiliary]
    given = by_name(args, arguments, "args", complete=True)
    states = by_name(aux_states, auxiliary, "aux_states", complete=True)
    requests = check_grad_req(graph, grad_req)
    grads = {
        k: v for k, v in by_name(args_grad, arguments, "args_grad", complete=False).items() if v is not None
    }
    requests = {n: r if n in grads or optimizer is not None else "null" for n, r in requests.items()}
    everything = {**given, **states}
    amp, scale = _amp(amp, loss_scale, optimizer)
    shapes, types = {n: a.shape for n, a in everything.items()}, {n: a.dtype for n, a in everything.items()}
    inferred, stored = typed(graph, shapes, types, amp)
    for n in inferred.variables:
        if everything[n.name].shape != inferred.shapes[Entry(n)]:
            raise ShapeError(
                f"{n.name!r} must be {inferred.shapes[Entry(n)]}, but it is {everything[n.name].shape}."
            )
    for name, grad in grads.items():
        if grad.shape != given[name].shape:
            raise ShapeError(f"args_grad: {name!r} is {given[name].shape}, its gradient {grad.shape}.")
        if grad.dtype != given[name].dtype:
            raise DTypeError(f"args_grad: {name!r} is {given[name].dtype}, its gradient {grad.dtype}.")
    check_apart(grads, requests)
    data = (
        {n for n, r in requests.items() if r == "null"}
        if any(r != "null" for r in requests.values())
        else set()
    )
    arrays: dict[Key, NDArray] = {("var", n): a for n, a in everything.items()}
    arrays |= {("grad", n): g for n, g in grads.items()}

    def room(planned: Planned) -> None:
        require_room(planned, backend, lambda _: arrays, *arena_bytes(planned, backend, shared_exec))

    planned, requests = _plan(
        inferred,
        ctx,
        data,
        requests,
        budget,
        update_rule(optimizer),
        amp=amp,
        scale=scale,
        stored=stored,
        device=device,
        plan=plan,
        host=host_link(offload),
        room=room,
    )
    shapes = {n: a.shape for n, a in given.items()}
    settings = locals_of(shapes, requests, None, budget, optimizer, amp, scale, device, offload, streams)
    settings["inputs"] = data or set(shapes)  # where no gradient is asked for, nothing tells which is which
    return link(planned, ctx, arrays, requests, shared_exec, settings)


def check_streams(streams: int) -> None:
    """Raise BindError if there cannot be so many."""
    if isinstance(streams, bool) or not isinstance(streams, int) or not 1 <= streams <= MOST_STREAMS:
        raise BindError(f"streams must be a number from 1 to {MOST_STREAMS}, got {streams!r}.")


def locals_of(
    shapes: Shapes,
    grad_req: Any,
    type_dict: Any,
    budget: int | None,
    optimizer: Any,
    amp: Any,
    loss_scale: LossScale | None,
    device: Device | str | None = None,
    offload: Offload = None,
    streams: int = 1,
) -> dict[str, Any]:
    """What an executor remembers of how it was bound. Raises BindError."""
    check_streams(streams)
    return dict(
        shapes=dict(shapes),
        inputs=set(shapes),
        grad_req=grad_req,
        type_dict=dict(type_dict or {}),
        budget=budget,
        optimizer=optimizer,
        amp=amp,
        loss_scale=loss_scale,
        device=device,
        offload=offload,
        streams=streams,
        watch=None,
        grouped=False,
    )


def _amp(amp: Any, loss_scale: Any, optimizer: Any) -> tuple[Any, LossScale | None]:
    """Both as they are kept."""
    dtype = amp_dtype(amp)
    return dtype, LossScale.of(loss_scale, dtype, optimizer is not None)


def update_rule(optimizer: Any) -> UpdateRule | None:
    """The rule of an optimizer for updates inside the step, or None for no optimizer."""
    if optimizer is None or isinstance(optimizer, UpdateRule):
        return optimizer
    if not hasattr(optimizer, "update_rule"):
        raise BindError(
            f"optimizer must be an Optimizer such as mx.optimizer.SGD(momentum=0.9), got {optimizer!r}."
        )
    rule = optimizer.update_rule()
    if rule is None:
        raise BindError(
            f"{type(optimizer).__name__} has no update that can be part of the step; bind without optimizer=."
        )
    assert isinstance(rule, UpdateRule)
    return rule


def _measured(lowered: Lowered, budget: int | None) -> Lowered:
    return with_measured_costs(lowered, budget=budget)[0]


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Bytes by category."""
    return {c: one.get(c, 0) + other.get(c, 0) for c in {**one, **other}}


@no_collection()
def _plan(
    inferred: Graph,
    ctx: Context | None,
    given: set[str],
    grad_req: Any,
    budget: int | None,
    rule: UpdateRule | None,
    strategy: str = "sharing",
    amp: Any = None,
    scale: LossScale | None = None,
    stored: frozenset[str] = frozenset(),
    device: Device | str | None = None,
    measure: Callable[[Lowered, int | None], Lowered] = _measured,
    plan: MemoryPlan | None = None,
    host: HostLink | None = None,
    choose: Callable[[Steps, Lowered], MemoryPlan] | None = None,
    template: Template | MemoryPlan | None = None,
    metrics: Sequence[Counted] = (),
    in_place: bool = True,
    watch: Watch | None = None,
    room: Callable[[Planned], None] = lambda planned: None,
    like: Planned | None = None,
) -> tuple[Planned, dict[str, str]]:
    """Everything there is before arrays. `choose` makes the training step's plan, where its maker wants to;
    `template` is a plan of inference for other shapes. `in_place`: whether all parameters will be arrays that
    nobody else has, or arrays that can be away. `room` raises MemoryBudgetError where they have no room.
    `stored`: arguments that have the type `amp` themselves.
    `like` is what was planned for other shapes.
    """
    if strategy not in STRATEGIES:
        raise BindError(
            f"strategy must be one of {STRATEGIES}, got {strategy!r}.{nearest(strategy, STRATEGIES)}"
        )
    described = device_of(device)
    try:
        backend = backend_of(ctx or current_context())
    except DeviceError:
        if described is None:
            raise
        backend = planning_backend()
    data = input_names(inferred, list(given))
    requests = check_grad_req(inferred, grad_req)
    if rule is not None:
        requests = {n: "null" if n in data else r for n, r in requests.items()}
        if added := [n for n, r in requests.items() if r == "add"]:
            raise BindError(
                f"grad_req of {added[0]!r} is 'add', which needs a gradient to add to; "
                f"an update inside the step (optimizer=) leaves none."
            )
    computed = mixed(inferred, amp, data, scale is not None, stored)
    wanted = [Entry(n) for n in computed.arguments if requests.get(n.name, "null") != "null"]
    looked = watched(computed, watch, [n.name for n in inferred.nodes], wanted)
    data |= {LOSS_SCALE} if scale is not None and rule is None else set()  # else the step changes it
    no_gradients = all(r == "null" for r in requests.values())
    like_train, like_infer = (None, None) if like is None else (like.train, like.infer)
    simple = backend.simplify(looked.training, True)
    sharing = in_place and not guard.on
    made: list[tuple[Lowered, Lowered, MemoryPlan]] = []  # a step, inference beside it, the plan of that

    @cache
    def inference(constants: bool) -> tuple[Lowered, MemoryPlan]:
        step = forward_step(backend.simplify(looked.forward, False), data, train=False)
        found = lower(step, backend, constants=constants, in_place=sharing, like=like_infer)
        return found, plan_memory(found.problem, strategy=strategy, template=template)

    def step_of(graph: Graph) -> Step:
        if no_gradients:
            return forward_step(graph, data, train=True)
        scaling = None if scale is None else scale.in_step()
        step = training_step(graph, data, requests, rule, scaling, looked.count, looked.points)
        return with_metrics(step, metrics, backend)

    @cache
    def usual_step() -> Step:
        return step_of(simple)

    def lowered(step: Step, order: Lowered | None, light: bool) -> Lowered:
        # What inference keeps of its constants costs as much as the weights: not within a budget, nor to
        # train.
        infer_lowered, infer_plan = inference(light and watch is None and no_gradients)
        held = constant_bytes(infer_lowered.step)
        found = lower(
            step,
            backend,
            {"arguments": held} if held else None,
            infer_plan.placed_bytes,
            device=described or DEFAULT,
            # Where nobody wants gradients, the step of training is often that of inference: it has its order.
            like=infer_lowered if like_train is None else order,
            light=light,
        )
        if described is None:
            found = measure(found, budget)
        found = replace(found, problem=replace(found.problem, host=host))
        made.append((found, infer_lowered, infer_plan))
        return found

    def within(order: Lowered | None, light: bool) -> Iterator[Problem]:
        """The quickest first: a small step that keeps less may be that, as it also moves less."""
        first, instead = lowered(usual_step(), order, light).problem, backend.spared
        if (spared := backend.spare(simple)) is simple:
            yield first
            return
        other = lowered(step_of(spared), order, light).problem
        if other.step_seconds < first.step_seconds:
            first, other, instead = other, first, f"no {instead}"
        yield first
        yield against(other, first, instead)

    def against(problem: Problem, first: Problem, instead: str) -> Problem:
        """`problem` whose times count from those of `first`."""
        at = next(i for i, m in enumerate(made) if m[0].problem is problem)
        found, infer_lowered, infer_plan = made[at]
        found = replace(found, problem=replace(problem, base_seconds=first.step_seconds, instead=instead))
        made[at] = found, infer_lowered, infer_plan
        return found.problem

    def ask(
        within: int,
        besides: Mapping[str, int],
        graph: Graph,
        requests: Mapping[str, str],
        update: UpdateRule | None,
        amp: Any,
        host: HostLink | None,
    ) -> MemoryPlan:
        kind = amp_dtype(amp)
        scaling = None if kind is None else scale
        asked = graph, ctx, given, requests, within, update, strategy, kind, scaling, stored, described
        if update is not rule:  # whose states are no longer beside the step
            besides = {c: n for c, n in besides.items() if c != "optimizer"}

        def choose(steps: Steps, usual: Lowered) -> MemoryPlan:
            return plan_memory(steps.owning(_sum(usual.problem.fixed_bytes, besides)), within)

        more: dict[str, Any] = dict(metrics=metrics, in_place=in_place, watch=watch, choose=choose)  # untimed
        return _plan(*asked, host=host, **more)[0].train_plan

    def of(problem: Problem) -> tuple[Lowered, Lowered, MemoryPlan]:
        return next(m for m in made if m[0].problem.tasks is problem.tasks)

    def advise(error: MemoryBudgetError, besides: Mapping[str, int]) -> str:
        apart = (ctx or current_context()).device_type == "gpu"
        least = min((m[0] for m in made), key=lambda train: train.problem.lower_bound_bytes)
        problem = replace(least.problem, fixed_bytes=_sum(least.problem.fixed_bytes, besides))
        known = inferred, frozenset(given), requests, rule, amp, host, apart, replace(least, problem=problem)
        return advice(Question(*known, error, partial(ask, error.budget_bytes, besides)))

    def planned(steps: Steps) -> Planned:
        may_advise = choose is None  # else who chooses knows what is beside the step
        try:
            usual = steps.free if budget is None else steps.first
            if plan is not None:
                mine = (p for p in (usual, steps.free, *steps) if is_of(plan, p))
                found = replace(adopted(plan, next(mine, usual), budget), steps=steps)
            elif choose is not None:
                found = choose(steps, of(usual)[0])
            else:
                found = plan_memory(steps, budget)
            train, infer_lowered, infer_plan = of(found.problem)
            if described is None and plan is None:
                found = tried(train, found)
            shown = (*looked.shown, *(Seen(name, key, True) for name, key in train.step.points))
            result = Planned(inferred, infer_lowered, infer_plan, train, found, shown)
            may_advise = True
            room(result)
        except MemoryBudgetError as error:
            if may_advise:
                steps.explain(error)
            raise
        return result

    def steps_of(order: Lowered | None, free: bool, bounded: bool) -> Steps:
        """Without a budget and within one; each says whether its step is light."""

        def usual() -> Problem:
            return lowered(usual_step(), order, free).problem

        return Steps(usual, within(order, bounded), strategy, advise)

    if like_train is not None:
        light = like_train.light
        with suppress(MemoryBudgetError):  # an order of these sizes' own may take less
            return planned(steps_of(like_train, light, light and budget is not None)), requests
    return planned(steps_of(None, True, False)), requests
