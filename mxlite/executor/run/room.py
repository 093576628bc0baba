"""Check that a GPU has room for a program: made when it is bound, before it takes a byte.

The plan's bytes, array by array, are compared with the driver's free bytes. Other processes may take
memory between this and the first step; then the allocation fails, with the same table (`storage.py`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection
from math import prod
from typing import Any

from ...backends import Backend, Remote
from ...core.bytesize import format_bytes
from ...core.errors import MemoryBudgetError
from ...core.table import percent
from ...engine import get_engine
from ...memplan import MemoryPlan
from ..plan.candidates import Planned
from ..plan.step import Key
from .storage import shared_blocks, unmade


def require_room(
    planned: Planned,
    backend: Backend,
    there: Callable[[Planned], Collection[Key]],
    arena_bytes: int,
    arena_held: int,
) -> None:
    """Raise MemoryBudgetError if a GPU has too little memory for what is not allocated yet.

    there: gives the arrays that exist already. arena_bytes: the size that the arena is to have, arena_held:
    the size it has now.
    """
    remote = backend.remote
    if remote is None:
        return
    fresh, arena = _fresh(planned, there(planned), remote), max(0, arena_bytes - arena_held)
    if not remote.room(fresh, arena).missing:
        return
    gc.collect()  # unreferenced programs that are kept only by cycles
    get_engine().rest()
    room = remote.room(fresh, arena)
    if room.missing:
        raise _refusal(planned.train_plan, backend, room, sum(fresh) + arena, arena)


def _fresh(planned: Planned, there: Collection[Key], remote: Remote) -> list[int]:
    """Bytes of each block that is still to be taken for arrays."""
    wanted = unmade(planned, there)
    blocks = shared_blocks(wanted, remote)
    return [*blocks.values(), *(prod(s) * d.itemsize for kind, s, d in wanted if kind not in blocks)]


def _refusal(plan: MemoryPlan, backend: Backend, room: Any, wanted: int, arena: int) -> MemoryBudgetError:
    """The error with planned and free bytes, and a plan that fits or the reason why none does."""
    held = room.held
    mine = f"{format_bytes(held.arrays)} in arrays, {format_bytes(held.arenas)} in arenas of programs"
    lines = [
        f"{backend.place} has no room for this program: its plan takes {plan.peak_bytes} bytes "
        f"({format_bytes(plan.peak_bytes)}), {wanted} of them not allocated yet, and {room.missing} "
        f"({format_bytes(room.missing)}) are missing.",
        f"Free are {room.free} bytes of {room.total} ({format_bytes(room.free)} of "
        f"{format_bytes(room.total)}). This process has taken {format_bytes(held.taken)} ({mine}, "
        f"{format_bytes(held.idle)} idle), other processes, contexts and libraries "
        f"{format_bytes(room.elsewhere)}.",
    ]
    if held.limit is not None:
        lines.append(
            f"This process may take {format_bytes(held.limit)} at most (mx.set_gpu_memory_limit, "
            f"MXLITE_GPU_MEMORY_LIMIT)."
        )
    assert backend.remote is not None
    chunk = backend.remote.chunk
    smaller = (-(-arena // chunk) * chunk - room.missing) // chunk * chunk
    budget = max(1, plan.peak_bytes - (arena - smaller))
    try:
        other = plan.within(budget)
    except MemoryBudgetError as error:
        lines += ["Of a plan with so much less:", str(error)]
        least, bound, extra = error.least_feasible_bytes, error.lower_bound_bytes, error.least_extra_time
    else:
        least, bound, extra = other.peak_bytes, plan.lower_bound_bytes, other.extra_time
        lines.append(
            f"memory_budget={budget} fits there: a plan of {least} bytes ({format_bytes(least)}) with "
            f"{percent(extra)} extra time."
        )
    lines.append(plan.summary())
    return MemoryBudgetError(
        "\n".join(lines),
        budget_bytes=budget,
        least_feasible_bytes=least,
        lower_bound_bytes=bound,
        keep_all_peak_bytes=plan.keep_all_peak_bytes,
        least_extra_time=extra,
    )
