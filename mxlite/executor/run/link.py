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
    need = max(planned.train_plan.arena_bytes, planned.infer_plan.arena_bytes)
    arena = _arena_of(shared_exec, planned, backend)
    return (need, 0) if arena is None else (max(need, arena.nbytes), arena.measured_bytes)


def _arena_of(shared_exec: Executor | None, planned: Planned, backend: Backend) -> Arena | None:
    """The arena of `shared_exec`, if it is on that device and, at the size that its largest program needs,
    within the budget of each.
    """
    if shared_exec is None:
        return None
    arena = wanted("shared_exec", shared_exec, "an Executor", Executor)._arena
    need = max(planned.train_plan.arena_bytes, planned.infer_plan.arena_bytes, arena.nbytes)
    plans = [planned.train_plan, *(t.memory_plan for t in arena.tenants)]
    bounded = [(p.problem.fixed_total, p.budget_bytes) for p in plans if p.budget_bytes is not None]
    fits = all(fixed + need <= budget for fixed, budget in bounded)
    return arena if fits and arena.backend is backend else None


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
    ctx = request.ctx
    assert ctx is not None
    backend = backend_of(ctx)
    if request.ranks.count > 1:
        _check_job(request, backend)
    backend.prepare()
    allocator = Allocator(ctx, backend, unmade(planned, arrays))
    result = dict(arrays)
    with plan_in_errors(planned.train_plan, backend):
        for lowered in (planned.train, planned.infer):
            for key, (shape, dtype) in lowered.step.owned.items():
                if key not in result:
                    result[key] = allocator.make(key, shape, dtype, lowered.step.category)
    if planned.infer.step.forms:
        for key, array in result.items():
            # All that another program may keep in another form; nothing else refers to them yet.
            if key not in arrays and key[0] == "var" and array.ndim >= 2 and is_floating(array.dtype):
                form = planned.infer.step.forms.get(key)
                Resident(array, 0 if form is None else form.nbytes)
    for name in planned.train.step.no_gradient:
        if ("grad", name) in result and requests[name] != "add":
            allocator.clear(result["grad", name])
    need = max(planned.train_plan.arena_bytes, planned.infer_plan.arena_bytes)
    host = planned.train_plan.host_bytes
    arena = _arena_of(shared_exec, planned, backend) if arena is None else arena
    if arena is None:
        arena = Arena(backend, need, host)
    elif arena.nbytes < need or arena.host_nbytes < host:
        arena.resize(max(need, arena.nbytes), max(host, arena.host_nbytes))
    executor = Executor(planned, request, backend, result, requests, arena, anew)
    if shared_exec is not None and _have_masters_in_common(executor, shared_exec):
        executor._masters = shared_exec._masters
    return executor


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
