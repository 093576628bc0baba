"""Planning anew of a bound executor: for other shapes, or to show other inner results."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from ...graph import Graph
from ...memplan import MemoryPlan
from ..executor import Executor
from ..plan.candidates import Candidates, Planned
from ..plan.lazy_steps import LazySteps
from ..plan.lower import Lowered
from ..plan.planning import Planning
from ..plan.step import Key
from ..run.link import arena_bytes
from ..run.room import require_room
from .bind_request import BindRequest


def replanned(
    executor: Executor,
    request: BindRequest,
    typed: tuple[Graph, frozenset[str]],
    inputs: Collection[str],
    there: Callable[[Planned], Collection[Key]],
    choose: Callable[[Candidates, LazySteps, Lowered], MemoryPlan] | None = None,
    **others: Any,
) -> tuple[Planned, dict[str, str]]:
    """The result of `Planning.run` for a graph and its stored names, `typed`, in the arena of `executor`,
    which was bound as `request` says apart from its changes.

    inputs: arguments that the caller writes. there: gives the arrays that exist already. `choose` as in
    `Planning`, `others` are fields of `Candidates`. Raises MemoryBudgetError.
    """
    backend, (inferred, stored) = executor._backend, typed

    def room(planned: Planned) -> None:
        require_room(planned, backend, there, *arena_bytes(planned, backend, executor))

    candidates = Candidates(
        request=replace(request, grad_req=executor._grad_req),
        inferred=inferred,
        given=frozenset(inputs),
        stored=stored,
        **others,
    )
    return Planning(candidates, choose=choose, room=room).run()
