"""Planning anew of a bound executor whose monitor is to see other inner results."""

from __future__ import annotations

from dataclasses import replace

from ...core.errors import StateError
from ...graph import Graph
from ..executor import Executor
from ..plan.candidates import Planned
from ..plan.step import Key
from ..run.storage import Allocator, unmade
from .amp import typed
from .replanning import replanned
from .watch import Watch


def rewatch(executor: Executor, watch: Watch | None) -> None:
    """Make `executor` keep what `watch` wants; its arrays stay, those watched before are dropped.

    Raises MemoryBudgetError, and changes nothing, if that does not fit in the budget it was bound with, or in
    the free memory of a GPU.
    """
    old = executor._planned
    if executor.is_grouped:
        raise StateError("This executor is a Module's: call the module's install_monitor.")
    arrays = {**executor.arg_dict, **executor.aux_dict}
    graph = typed(
        Graph(old.graph.outputs),
        {n: a.shape for n, a in arrays.items()},
        {n: a.dtype for n, a in arrays.items()},
        executor._request.amp,
    )
    kinds = [kind for one in old.of_devices for kind in one.train.step.category.items()]
    inputs = {k[1] for k, c in kinds if c == "inputs" and k[1] in executor.arg_dict}

    def there(planned: Planned) -> set[Key]:
        """The arrays that stay."""
        owned = {**planned.train.step.owned, **planned.infer.step.owned}
        have = {k: (a.shape, a.storage.dtype) for k, a in executor._arrays.items() if k in owned}
        return {k for k, kind in have.items() if kind == owned[k]}

    request = replace(executor._request, metrics=(), watch=watch)
    planned, _ = replanned(executor, request, graph, inputs, there)
    result = {k: a for k, a in executor._arrays.items() if k[0] in ("var", "grad")}
    for one, arena in zip(planned.of_devices, executor._arena.of_devices):
        allocator = Allocator(one.asked.context, one.asked.backend, unmade(one, there(one)))
        for lowered in one.lowered:
            for key, (shape, dtype) in lowered.step.owned.items():
                found = executor._arrays.get(key)
                if found is None or (found.shape, found.storage.dtype) != (shape, dtype):
                    found = allocator.make(key, shape, dtype, lowered.step.category)
                result.setdefault(key, found)
        need, host = one.arena_bytes, one.train_plan.host_bytes
        if len(arena.tenants) > 1:  # others need it at its size
            need, host = max(need, arena.nbytes), max(host, arena.host_nbytes)
        arena.resize(need, host)
    executor.replan(planned, result, watch)
