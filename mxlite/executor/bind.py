"""Binding of a symbol's graph: infer, differentiate, lower, plan; then allocate and link an executor."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..backends import backend_of
from ..core import BindError, Context, current_context, DTypeError, parse_bytes, ShapeError
from ..core.process.collection import no_collection
from ..graph import LOSS_SCALE
from ..graph.update import HISTORY
from ..memplan import MemoryPlan, Template
from ..memplan.cost.device import MEASURED
from ..ndarray import NDArray
from .executor import Executor
from .group import Arrival, ExecutorGroup, Expected
from .measure.calibration import Calibration, with_measured_costs
from .measure.trials import tried, tried_in_turns
from .plan.candidates import Candidates, Planned
from .plan.lazy_steps import LazySteps
from .plan.lower import Lowered
from .plan.planning import Planning, what_helps
from .plan.sparse_gradients import SparseGradients
from .plan.step import check_grad_req, Key
from .request.amp import typed
from .request.anew import Anew
from .request.bind_request import BindRequest
from .request.given import by_name, check_apart, plain, shared_arrays, told_apart
from .request.infer import known_shapes
from .request.reshape import rebind
from .request.rewatch import rewatch
from .run.link import arena_bytes, link
from .run.room import require_room

ANEW = Anew(rebind, rewatch)


@dataclass(frozen=True)
class GroupPlace:
    """An executor's key in a group: (owner, key), where it replaces the present member.

    `for_now`: another one will replace it, whose parameters it only uses until then.
    """

    group: ExecutorGroup
    owner: Hashable
    key: Hashable
    for_now: bool = False

    @property
    def can_go_away(self) -> bool:
        """True if the executor may keep parameters in another, possibly larger form in place."""
        return not self.for_now and self.group.can_go_away


def memory_plan(request: BindRequest) -> MemoryPlan:
    """The plan that binding as `request` says would run; allocates no array."""
    planned, _ = Planning(Candidates.of_inputs(request)).run()
    return planned.train_plan


def memory_plans(request: BindRequest) -> dict[Context, MemoryPlan]:
    """The plan of each device; allocates no array."""
    planned, _ = Planning(Candidates.of_inputs(request)).run()
    return {one.asked.context: one.train_plan for one in planned.of_devices}


def calibrate(request: BindRequest, *, again: bool = False, budgets: Sequence[int | str] = ()) -> Calibration:
    """Time the kernel calls of a step and keep the times for plans with `device="measured"`.

    `again`: also those that are known already. With `budgets` the plan of each and the one without a budget
    are tried in turns, in as many bytes as that has. Raises MemoryBudgetError, before anything is tried,
    where a budget is too small.
    """
    done: list[Calibration] = []
    chosen: list[tuple[Lowered, MemoryPlan]] = []

    def measure(lowered: Lowered, budget: int | None) -> Lowered:
        lowered, calibration = with_measured_costs(lowered, again and not done, budget)
        done.append(calibration)
        return lowered

    def attempt(lowered: Lowered, plan: MemoryPlan) -> MemoryPlan:
        chosen.append((lowered, plan))
        return plan

    asked = Candidates.of_inputs(replace(request, device=MEASURED), measure=measure)
    for budget in (None, *map(parse_bytes, budgets)):
        Planning(asked.asking(memory_budget=budget), attempt=attempt if budgets else tried).run()
    return replace(done[0], plans=tuple(tried_in_turns(chosen)) if chosen else ())


@no_collection()
def expect(request: BindRequest, place: GroupPlace) -> None:
    """Let the group at `place` count what `simple_bind` with this request will make; makes no array."""
    candidates = Candidates.of_inputs(replace(request, memory_budget=place.group.budget))
    expected = place.group.expected
    if place.owner in expected and expected[place.owner].candidates.is_like(candidates):
        return
    for group, asked in zip(place.group.on(request.devices.contexts), candidates.of_devices):
        with asked.share_of_threads():
            steps = asked.steps(None, True, False, partial(what_helps, asked))
            group.expected[place.owner] = Expected(asked, steps, asked.of(steps.first).train)


@no_collection()
def simple_bind(
    request: BindRequest,
    *,
    shared_exec: Executor | None = None,
    arrays: Mapping[str, NDArray] | None = None,
    place: GroupPlace | None = None,
    plan: MemoryPlan | None = None,
) -> Executor:
    """Plan, then allocate every array the program needs, all zero.

    `arrays` are arguments, auxiliary and optimizer states to be used as they are, by name. With a `place` in
    a group the executor shares the group's parameters, states, arena and budget. `plan` is run instead of a
    new one; PlanError if it is not sound or not of this step.
    """
    ctx = request.ctx or current_context()
    request = replace(request, ctx=ctx)
    request.devices.check_runnable()
    backend = backend_of(ctx)
    arrivals: dict[int, Arrival] = {}  # by the number of the device
    groups: list[ExecutorGroup] = []
    templates: tuple[Template | None, Template | None] = (None, None)
    like: Planned | None = None
    choose = None
    if place is not None:
        where = place.owner, place.key
        groups = place.group.on(request.devices.contexts)
        request = replace(request, memory_budget=place.group.budget)
        templates = place.group.templates.get(place.owner, templates)
        like = place.group.first.get(place.owner)

        def choose(asked: Candidates, steps: LazySteps, usual: Lowered) -> MemoryPlan:
            group = groups[asked.part]
            template, _ = group.templates.get(where[0], (None, None))
            arrivals[asked.part] = group.plan(*where, asked, steps, usual, template)
            return arrivals[asked.part].plan

    def there(planned: Planned) -> dict[Key, NDArray]:
        """The arrays that exist already: given ones and those of others."""
        owned = planned.train.step.owned
        mine = {("var", n): a for n, a in (arrays or {}).items() if ("var", n) in owned}
        if place is not None:
            return groups[planned.asked.part].lent(planned.lowered) | mine
        if shared_exec is None:
            return mine
        return shared_arrays(shared_exec, planned, {*candidates.given, LOSS_SCALE, HISTORY}) | mine

    def room(planned: Planned) -> None:
        if place is None:
            require_room(planned, backend, there, *arena_bytes(planned, backend, shared_exec))
        else:
            part = planned.asked.part
            require_room(planned, backend, there, *groups[part].arena_bytes(arrivals[part], backend))

    candidates = Candidates.of_inputs(
        request,
        template=templates[1],
        in_place=shared_exec is None and not arrays and (place is None or place.can_go_away),
        like=None if like is None else like.lowered,
    )
    there_is = None if place is None else place.group.expected.get(place.owner)
    if there_is is not None and there_is.candidates.is_like(candidates):
        planning = Planning(there_is.candidates, plan=plan, choose=choose, room=room, steps=there_is.steps)
    else:
        planning = Planning(candidates, plan=plan, choose=choose, room=room)
    planned, requests = planning.run()
    kept = replace(request, shapes=dict(known_shapes(request.graph, request.shapes)))
    shared = {k: a for one in planned.of_devices for k, a in there(one).items()}
    if place is None:
        return link(planned, kept, shared, requests, shared_exec, ANEW)
    stay = set.intersection(*({*arrival.plans} for arrival in arrivals.values()))  # on all devices
    for arrival in arrivals.values():
        arrival.plans = {key: of for key, of in arrival.plans.items() if key in stay}
    arena, *peers = [
        group.arena_for(arrivals[d], one.asked.backend)
        for d, (group, one) in enumerate(zip(groups, planned.of_devices))
    ]
    arena.peers = tuple(peers)
    lender = next((m.executor for m in place.group.members.values() if m.executor.updated), None)
    executor = link(planned, kept, shared, requests, lender, ANEW, arena)
    executor.is_grouped = True
    for group, share in zip(groups, executor.shares):
        group.admit(arrivals[share.device], share)
    return executor


@no_collection()
def bind(
    request: BindRequest,
    args: Any,
    *,
    args_grad: Any = None,
    aux_states: Any = None,
    shared_exec: Executor | None = None,
    plan: MemoryPlan | None = None,
) -> Executor:
    """Link arrays of the user's: `args`, `args_grad` and `aux_states` are lists in the symbol's order,
    or dicts. The request has no shapes: they are those of the arrays.

    Variables of one name can be bound by a list alone, and are called `data[0]`, `data[1]` then.
    Arguments without an array in `args_grad` get no gradient. Sparse arrays there are written after each
    backward pass from dense ones that the program has, and counts.
    """
    graph, ctx = request.graph, request.ctx or current_context()
    backend = backend_of(ctx)
    if not isinstance(args, Mapping):
        graph = told_apart(graph)
    arguments = [n.name for n in graph.arguments]
    auxiliary = [n.name for n in graph.auxiliary]
    given = plain(by_name(args, arguments, "args", complete=True))
    states = plain(by_name(aux_states, auxiliary, "aux_states", complete=True))
    requests = check_grad_req(graph, request.grad_req)
    grads = {
        k: v for k, v in by_name(args_grad, arguments, "args_grad", complete=False).items() if v is not None
    }
    requests = {n: r if n in grads or request.rule is not None else "null" for n, r in requests.items()}
    everything = {**given, **states}
    request = replace(request, ctx=ctx, lying={n: a.context for n, a in everything.items()})
    request.devices.check_runnable()
    shapes, types = {n: a.shape for n, a in everything.items()}, {n: a.dtype for n, a in everything.items()}
    inferred, stored = typed(graph, shapes, types, request.amp)
    for name, grad in grads.items():
        if grad.shape != given[name].shape:
            raise ShapeError(f"args_grad: {name!r} is {given[name].shape}, its gradient {grad.shape}.")
        if request.devices.are_several and grad.context != given[name].context:
            raise BindError(
                f"args_grad: {name!r} is on {given[name].context}, its gradient on {grad.context}: a "
                f"gradient lies where its argument is."
            )
        if grad.dtype != given[name].dtype:
            raise DTypeError(f"args_grad: {name!r} is {given[name].dtype}, its gradient {grad.dtype}.")
    sparse = SparseGradients(grads, requests)
    grads |= sparse.dense
    check_apart(grads, requests, everything)
    data = (
        {n for n, r in requests.items() if r == "null"}
        if any(r != "null" for r in requests.values())
        else set()
    )
    arrays: dict[Key, NDArray] = {("var", n): a for n, a in everything.items()}
    arrays |= {("grad", n): g for n, g in grads.items()}

    def room(planned: Planned) -> None:
        require_room(planned, backend, lambda _: arrays, *arena_bytes(planned, backend, shared_exec))

    # Without gradients, nothing tells which of the arguments are inputs.
    shapes = {n: a.shape for n, a in given.items() if n in data or not data}
    request = replace(request, graph=graph, ctx=ctx, shapes=shapes, grad_req=requests)
    planned, requests = Planning(
        Candidates(
            request=request,
            inferred=inferred,
            given=frozenset(data),
            stored=stored,
            in_place=False,  # the arrays are the user's
            knows_inputs=bool(data),
        ),
        plan=plan,
        room=room,
    ).run()
    executor = link(planned, request, arrays, requests, shared_exec, ANEW)
    executor.arguments_are_given = True
    executor.show_sparse(sparse)
    return executor
