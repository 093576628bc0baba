"""Plan: room for so many nodes of each cell, in bytes, before anything is allocated."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from ..backends import Backend, backend_of
from ..core import cpu, format_bytes, MemoryBudgetError
from ..gluon import Parameter
from .cell import Cell, Kind
from .kernels import CellKernels
from .places import NodePlaces
from .sizes import padded, sizes

LARGEST = 1 << 20
"""Nodes of a cell beyond which no plan looks for room."""


class Plan:
    """Kernels, places and bytes for up to `limits` nodes of each cell, of which `most` run together.

    `summed` are parameters whose gradients are computed apart: those that several cells have, or that are to
    be added to what is there, or that are not asked for. Only a plan that is `whole` has all kernels; another
    one has the largest, which tell its bytes.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        kinds: Sequence[Kind],
        kernels: Sequence[CellKernels],
        parameters: Mapping[str, Parameter],
        limits: Sequence[int],
        most: int,
        whole: bool = True,
    ) -> None:
        self.cells, self.kinds, self.kernels, self.parameters = cells, kinds, kernels, parameters
        self.limits, self.most = [padded(n) for n in limits], padded(most)
        for k, limit in zip(kernels, self.limits):
            width = min(limit, self.most)
            k.need(sizes(width) if whole else (width,), sizes(limit) if whole else (limit,))
        owners = [n for c in cells for n in c.cut.parameters if n in c.cut.gradients]
        self.summed = {n for n in owners if owners.count(n) > 1 or parameters[n].grad_req != "write"}
        self.places = NodePlaces(cells, kernels, self.limits, self.most, kinds, self.summed)

    @property
    def breakdown(self) -> dict[str, int]:
        """Bytes by what they are for."""
        nbytes = {n: int(p.data().storage.nbytes) for n, p in self.parameters.items()}
        trained = (n for n, p in self.parameters.items() if p.grad_req != "null")
        own = {"parameters": sum(nbytes.values()), "gradients": sum(nbytes[n] for n in trained)}
        return {**own, **self.places.breakdown}

    @property
    def nbytes(self) -> int:
        """All of them."""
        return sum(self.breakdown.values())

    def room(self, limits: Sequence[int], whole: bool = False) -> Plan:
        """The same for other numbers of nodes."""
        return Plan(self.cells, self.kinds, self.kernels, self.parameters, limits, self.most, whole)

    def check(self, counts: Sequence[int]) -> None:
        """Raise MemoryBudgetError for more nodes than there is room for."""
        over = [i for i, (n, limit) in enumerate(zip(counts, self.limits)) if n > limit]
        if not over:
            return
        i, planned = over[0], self.nbytes
        needed = self.room([max(n, limit) for n, limit in zip(counts, self.limits)]).nbytes
        raise MemoryBudgetError(
            f"The mini-batch has {counts[i]} nodes of cell {self.cells[i].name!r}, and the plan has room for "
            f"{self.limits[i]}. It would take {needed} bytes ({format_bytes(needed)}); {planned} "
            f"({format_bytes(planned)}) are planned. Smaller mini-batches fit, or a larger max_nodes= or "
            f"memory_budget=.",
            budget_bytes=planned,
            least_feasible_bytes=needed,
            lower_bound_bytes=needed,
        )


def plan_within(
    cells: Sequence[Cell],
    kinds: Sequence[Kind],
    parameters: Mapping[str, Parameter],
    limits: Sequence[int] | None,
    most: int,
    budget: int | None,
) -> Plan:
    """The plan for `limits` nodes of each cell, or (None) for as many of each as `budget` bytes have room
    for.

    Raises MemoryBudgetError if they do not fit.
    """
    backend: Backend = backend_of(cpu())
    backend.prepare()
    kernels = [CellKernels(backend, c.cut) for c in cells]
    first = Plan(
        cells, kinds, kernels, parameters, limits or [1] * len(cells), most, whole=limits is not None
    )
    if budget is None:
        return first
    if limits is None:
        offered = sizes(LARGEST)
        fits = bisect_right(offered, budget, key=lambda n: first.room([n] * len(cells)).nbytes)
        for n in reversed(offered[:fits]):
            found = first.room([n] * len(cells), whole=True)
            if found.nbytes <= budget:
                return found
        raise _too_small(first, budget, "one node of each cell")
    if first.nbytes > budget:
        raise _too_small(first, budget, f"{dict(zip((c.name for c in cells), first.limits))} nodes")
    return first


def _too_small(plan: Plan, budget: int, nodes: str) -> MemoryBudgetError:
    needed = plan.nbytes
    parts = ", ".join(f"{name} {format_bytes(n)}" for name, n in plan.breakdown.items() if n)
    return MemoryBudgetError(
        f"{nodes} take {needed} bytes ({format_bytes(needed)}), more than the budget of {budget} "
        f"({format_bytes(budget)}): {parts}. Fewer nodes (max_nodes=) or a smaller max_batch= take less.",
        budget_bytes=budget,
        least_feasible_bytes=needed,
        lower_bound_bytes=needed,
    )
