"""Planning anew of a bound executor: for other shapes, or to show other inner results."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ..graph import Graph
from ..memplan import MemoryPlan, Steps
from .bind import update_rule
from .candidates import Candidates
from .executor import Executor
from .link import arena_bytes
from .lower import Lowered
from .offload import host_link
from .planned import Planned
from .planning import Planning
from .room import require_room
from .step import Key


def replanned(
    executor: Executor,
    typed: tuple[Graph, frozenset[str]],
    inputs: Collection[str],
    there: Callable[[Planned], Collection[Key]],
    choose: Callable[[Steps, Lowered], MemoryPlan] | None = None,
    **others: Any,
) -> tuple[Planned, dict[str, str]]:
    """Result of `Planning.run` for a graph and its stored names, `typed`, in the arena of `executor`.

    inputs: arguments that the caller writes. there: gives the arrays that exist already. `choose` as in
    `Planning`, `others` are fields of `Candidates`. Raises MemoryBudgetError.
    """
    given, backend = executor._given, executor._backend
    inferred, stored = typed

    def room(planned: Planned) -> None:
        require_room(planned, backend, there, *arena_bytes(planned, backend, executor))

    candidates = Candidates(
        inferred=inferred,
        ctx=executor.context,
        given=frozenset(inputs),
        grad_req=executor._grad_req,
        budget=given["budget"],
        rule=update_rule(given["optimizer"]),
        amp=given["amp"],
        scale=given["loss_scale"],
        stored=stored,
        device=given["device"],
        host=host_link(given["offload"]),
        **others,
    )
    return Planning(candidates, choose=choose, room=room).run()
