"""Linking of planned programs to an executor: its arrays, its arena."""

from __future__ import annotations

from collections.abc import Mapping

from ...backends import Backend, backend_of
from ...comm import current
from ...core import BindError
from ...core.dtype import is_floating
from ...core.wanted import wanted
from ...graph import state_name
from ...graph.update import MASTER
from ...ndarray import NDArray
from ..executor import Executor
from ..plan.candidates import Planned
from ..plan.step import Key
from ..request.anew import Anew
from ..request.bind_request import BindRequest
from .arena import Arena
from .away import Resident
from .storage import Allocator, plan_in_errors, unmade


def arena_bytes(planned: Planned, backend: Backend, shared_exec: Executor | None) -> tuple[int, int]:
    """Size that the arena is to have, its own or that of `shared_exec`, and the size it has now."""
    arena = _arena_of(shared_exec, planned)
    return (
        (planned.arena_bytes, 0)
        if arena is None
        else (max(planned.arena_bytes, arena.nbytes), arena.measured_bytes)
    )


def _arena_of(shared_exec: Executor | None, planned: Planned) -> Arena | None:
    """The arena of `shared_exec`, if it is on that device and, at the size that its largest program needs,
    within the budget of each. On several devices that holds for each of them.
    """
    if shared_exec is None:
        return None
    arena = wanted("shared_exec", shared_exec, "an Executor", Executor)._arena
    theirs = [arena.backend, *((a.backend, a.lane) for a in arena.peers)]
    if theirs != [planned.asked.backend, *((p.asked.backend, p.lane) for p in planned.others)]:
        return None
    for d, (one, mine) in enumerate(zip(arena.of_devices, planned.of_devices)):
        need = max(mine.arena_bytes, one.nbytes)
        plans = [mine.train_plan, *(t.memory_plans[d] for t in arena.tenants)]
        bounded = [(p.problem.fixed_total, p.budget_bytes) for p in plans if p.budget_bytes is not None]
        if not all(fixed + need <= budget for fixed, budget in bounded):
            return None
    return arena


def _arenas(planned: Planned, shared: Arena | None) -> Arena:
    """The arena of a program, with those of other devices: a new one, or a shared one, which may grow."""
    found: list[Arena] = []
    for d, one in enumerate(planned.of_devices):
        need, host = one.arena_bytes, one.train_plan.host_bytes
        if shared is None:
            found.append(Arena(one.asked.backend, need, host, one.lane))
            continue
        found.append(shared.of_devices[d])
        if found[d].nbytes < need or found[d].host_nbytes < host:
            found[d].resize(max(need, found[d].nbytes), max(host, found[d].host_nbytes))
    first, *others = found
    if shared is None:
        first.peers = tuple(others)
    return first


def link(
    planned: Planned,
    request: BindRequest,
    arrays: Mapping[Key, NDArray],
    requests: Mapping[str, str],
    shared_exec: Executor | None,
    anew: Anew,
    arena: Arena | None = None,
) -> Executor:
    """Allocate what is missing and make the executor, in `arena` or that of `shared_exec`, which may grow.

    It runs on `request.ctx`, and keeps the request for when it is planned anew.
    """
    assert request.ctx is not None
    backend = backend_of(request.ctx)
    if request.ranks.count > 1:
        _check_job(request, backend)
    result = dict(arrays)
    for one in planned.of_devices:
        _allocate(one, result, requests)
    if planned.infer.step.forms:
        for key, array in result.items():
            # All that another program may keep in another form; nothing else refers to them yet.
            if key not in arrays and key[0] == "var" and array.ndim >= 2 and is_floating(array.dtype):
                form = planned.infer.step.forms.get(key)
                Resident(array, 0 if form is None else form.nbytes)
    arena = _arenas(planned, _arena_of(shared_exec, planned)) if arena is None else arena
    executor = Executor(planned, request, backend, result, requests, arena, anew)
    if shared_exec is not None and _have_masters_in_common(executor, shared_exec):
        executor._masters = shared_exec._masters
    return executor


def _allocate(planned: Planned, result: dict[Key, NDArray], requests: Mapping[str, str]) -> None:
    """Add to `result` the arrays of one device that are missing."""
    backend, step = planned.asked.backend, planned.train.step
    backend.prepare()
    allocator = Allocator(planned.asked.context, backend, unmade(planned, result))
    with plan_in_errors(planned.train_plan, backend):
        for lowered in planned.lowered:
            for key, (shape, dtype) in lowered.step.owned.items():
                if key not in result:
                    result[key] = allocator.make(key, shape, dtype, lowered.step.category)
    for name in step.no_gradient:
        if ("grad", name) in step.owned and ("grad", name) in result and requests[name] != "add":
            allocator.clear(result["grad", name])


def _check_job(request: BindRequest, backend: Backend) -> None:
    """Raise BindError if a step that was planned for several ranks cannot be run by this process.

    Its kernels can exchange messages with other ranks from now on; DeviceError if they cannot.
    """
    count = request.ranks.count
    comm = current()
    if comm.size != count:
        raise BindError(
            f"This step is planned for {count} ranks, but this process is one of {comm.size}. "
            f"python -m mxlite.launch -n {count} PROGRAM starts as many."
        )
    backend.join_ranks(comm)


def _have_masters_in_common(a: Executor, b: Executor) -> bool:
    keys = [("var", state_name(n, MASTER)) for n in a.updated]
    return any(k in a._arrays and a._arrays[k] is b._arrays.get(k) for k in keys)
