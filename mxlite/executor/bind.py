"""Binding of a symbol's graph: infer, differentiate, lower, plan; then allocate and link an executor."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..backends import backend_of
from ..core import BindError, Context, current_context, DTypeError, parse_bytes, ShapeError
from ..core.collection import no_collection
from ..graph import Graph, LOSS_SCALE, Shape, UpdateRule
from ..graph.update import HISTORY
from ..memplan import Device, MemoryPlan, Steps, Template
from ..memplan.cost.device import MEASURED
from ..ndarray import NDArray
from .amp import amp_dtype, LossScale, typed
from .calibration import Calibration, with_measured_costs
from .candidates import Candidates
from .executor import Executor
from .given import by_name, check_apart, plain, shared_arrays
from .group import Arrival, ExecutorGroup, Expected
from .infer import known_shapes, shapes_of_variables
from .link import arena_bytes, link
from .lower import Lowered
from .metrics import Counted
from .offload import host_link, Offload
from .planned import Planned
from .planning import Planning, what_helps
from .room import require_room
from .sparse_gradients import SparseGradients
from .step import check_grad_req, Key
from .trials import tried, tried_in_turns
from .watch import Watch

Shapes = Mapping[str, Shape]

MOST_STREAMS = 16  # of kernels


@dataclass(frozen=True)
class Place:
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

    `device` is that of the modelled seconds: a `Device`, text such as "20TFLOP/s,900GB/s", or "measured".
    """
    budget = None if memory_budget is None else parse_bytes(memory_budget)
    more = dict(budget=budget, strategy=strategy, device=device, host=host_link(offload))
    asked = _asked(graph, ctx, shapes, grad_req, type_dict, optimizer, amp, loss_scale, **more)
    planned, _ = Planning(asked).run()
    return planned.train_plan


def calibrate(
    graph: Graph,
    ctx: Context | None,
    shapes: Shapes,
    *,
    again: bool = False,
    budgets: Sequence[int | str] = (),
    grad_req: Any = "write",
    type_dict: Mapping[str, Any] | None = None,
    optimizer: Any = None,
    amp: Any = None,
    loss_scale: float | str | LossScale | None = None,
) -> Calibration:
    """Time the kernel calls of a step and keep the times for plans with `device="measured"`.

    `again`: also those that are known already. With `budgets` the plan of each and the one without a budget
    are tried in turns, in as many bytes as that has. The other arguments are those of `memory_plan`. Raises
    MemoryBudgetError, before anything is tried, where a budget is too small.
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

    more = dict(device=MEASURED, measure=measure)
    asked = _asked(graph, ctx, shapes, grad_req, type_dict, optimizer, amp, loss_scale, **more)
    for budget in (None, *map(parse_bytes, budgets)):
        Planning(replace(asked, budget=budget), attempt=attempt if budgets else tried).run()
    return replace(done[0], plans=tuple(tried_in_turns(chosen)) if chosen else ())


@no_collection()
def expect(
    graph: Graph,
    ctx: Context | None,
    shapes: Shapes,
    *,
    place: Place,
    grad_req: Any = "write",
    type_dict: Mapping[str, Any] | None = None,
    optimizer: Any = None,
    amp: Any = None,
    loss_scale: float | str | LossScale | None = None,
    device: Device | str | None = None,
    offload: Offload = None,
    watch: Watch | None = None,
    forward_only: bool = False,
) -> None:
    """Make the group at `place` count what `simple_bind` with these arguments will create; no allocation."""
    more = dict(budget=place.group.budget, host=host_link(offload), device=device, watch=watch)
    more["forward_only"] = forward_only
    candidates = _asked(graph, ctx, shapes, grad_req, type_dict, optimizer, amp, loss_scale, **more)
    expected = place.group.expected
    if place.owner in expected and expected[place.owner].candidates.is_like(candidates):
        return
    steps = candidates.steps(None, True, False, partial(what_helps, candidates))
    expected[place.owner] = Expected(candidates, steps, candidates.of(steps.first).train)


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
    forward_only: bool = False,
) -> Executor:
    """Plan, then allocate every array the program needs, all zero.

    `arrays` are arguments, auxiliary and optimizer states to be used directly, by name. `amp` is the
    16-bit type of mixed precision, `loss_scale` what 16-bit gradients are multiplied with. With a `place` in
    a group the executor shares the group's parameters, states, arena and budget. `device` is as for
    `memory_plan`. `streams` are for kernels on a GPU. `plan` is run instead of a new one; PlanError if it is
    not sound or not of this step. `metrics` are what a training step adds up besides; see `metrics.py`.
    `watch` says which inner results are kept to be looked at; see `watch.py`. With `forward_only` no step of
    training is planned: forward(is_train=False) is all that may be run.
    """
    budget = None if memory_budget is None else parse_bytes(memory_budget)
    ctx = ctx or current_context()
    backend = backend_of(ctx)
    arrivals: list[Arrival] = []
    templates: tuple[Template | None, Template | None] = (None, None)
    like: Planned | None = None
    choose = None
    if place is not None:
        group, where = place.group, (place.owner, place.key)
        budget = group.budget
        templates = group.templates.get(place.owner, templates)
        like = group.first.get(place.owner)

        def choose(steps: Steps, usual: Lowered) -> MemoryPlan:
            arrivals.append(group.plan(*where, planning.candidates, steps, usual, templates[0]))
            return arrivals[-1].plan

    def there(planned: Planned) -> dict[Key, NDArray]:
        """The arrays that exist already: given ones and those of others."""
        mine = {("var", n): a for n, a in (arrays or {}).items() if ("var", n) in planned.train.step.owned}
        if place is not None:
            return place.group.lent((planned.train, planned.infer)) | mine
        return shared_arrays(shared_exec, planned, {*candidates.given, LOSS_SCALE, HISTORY}) | mine

    def room(planned: Planned) -> None:
        if place is None:
            require_room(planned, backend, there, *arena_bytes(planned, backend, shared_exec))
        else:
            require_room(planned, backend, there, *place.group.arena_bytes(arrivals[-1], backend))

    candidates = _asked(
        graph,
        ctx,
        shapes,
        grad_req,
        type_dict,
        optimizer,
        amp,
        loss_scale,
        budget=budget,
        host=host_link(offload),
        device=device,
        template=templates[1],
        metrics=metrics,
        in_place=shared_exec is None and not arrays and (place is None or place.can_go_away),
        watch=watch,
        like=None if like is None else like.lowered,
        forward_only=forward_only,
    )
    amp, scale, shapes = candidates.amp, candidates.scale, known_shapes(graph, shapes)
    there_is = None if place is None else group.expected.get(place.owner)
    if there_is is not None and there_is.candidates.is_like(candidates):
        planning = Planning(there_is.candidates, plan=plan, choose=choose, room=room, steps=there_is.steps)
    else:
        planning = Planning(candidates, plan=plan, choose=choose, room=room)
    planned, requests = planning.run()
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
    """Link arrays of the user: `args`, `args_grad` and `aux_states` are lists in the symbol's order,
    or dicts.

    Arguments without an array in `args_grad` get no gradient. Sparse arrays there are written after each
    backward pass from dense ones that the program has, and counts.
    """
    budget = None if memory_budget is None else parse_bytes(memory_budget)
    ctx = ctx or current_context()
    backend = backend_of(ctx)
    arguments = [n.name for n in graph.arguments]
    auxiliary = [n.name for n in graph.auxiliary]
    given = plain(by_name(args, arguments, "args", complete=True))
    states = plain(by_name(aux_states, auxiliary, "aux_states", complete=True))
    requests = check_grad_req(graph, grad_req)
    grads = {
        k: v for k, v in by_name(args_grad, arguments, "args_grad", complete=False).items() if v is not None
    }
    requests = {n: r if n in grads or optimizer is not None else "null" for n, r in requests.items()}
    everything = {**given, **states}
    amp, scale = _amp(amp, loss_scale, optimizer)
    shapes, types = {n: a.shape for n, a in everything.items()}, {n: a.dtype for n, a in everything.items()}
    inferred, stored = typed(graph, shapes, types, amp)
    for name, grad in grads.items():
        if grad.shape != given[name].shape:
            raise ShapeError(f"args_grad: {name!r} is {given[name].shape}, its gradient {grad.shape}.")
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

    planned, requests = Planning(
        Candidates(
            inferred=inferred,
            ctx=ctx,
            given=frozenset(data),
            grad_req=requests,
            budget=budget,
            rule=update_rule(optimizer),
            amp=amp,
            scale=scale,
            stored=stored,
            device=device,
            host=host_link(offload),
            in_place=False,  # the arrays are the user's
            knows_inputs=bool(data),
        ),
        plan=plan,
        room=room,
    ).run()
    shapes = {n: a.shape for n, a in given.items()}
    settings = locals_of(shapes, requests, None, budget, optimizer, amp, scale, device, offload, streams)
    settings["inputs"] = data or set(shapes)  # without gradients, inputs cannot be told from parameters
    executor = link(planned, ctx, arrays, requests, shared_exec, settings)
    executor.show_sparse(sparse)
    return executor


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
    """Arguments of binding that an executor keeps. Raises BindError."""
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


def _asked(
    graph: Graph,
    ctx: Context | None,
    shapes: Shapes,
    grad_req: Any,
    type_dict: Mapping[str, Any] | None,
    optimizer: Any,
    amp: Any,
    loss_scale: Any,
    **more: Any,
) -> Candidates:
    """Candidates for a request, with `more` of its fields by name."""
    named, shapes = shapes, shapes_of_variables(graph, shapes)
    amp, scale = _amp(amp, loss_scale, optimizer)
    inferred, stored = typed(graph, shapes, type_dict, amp, named)
    return Candidates(
        inferred=inferred,
        ctx=ctx,
        given=frozenset(shapes),
        grad_req=grad_req,
        rule=update_rule(optimizer),
        amp=amp,
        scale=scale,
        stored=stored,
        **more,
    )


def _amp(amp: Any, loss_scale: Any, optimizer: Any) -> tuple[Any, LossScale | None]:
    """Both options in the form that is kept."""
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
