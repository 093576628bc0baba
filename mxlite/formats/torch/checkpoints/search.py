"""The search for checkpoints within a budget: the planner proposes, rehearsals tell what that takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ....core import MemoryBudgetError
from ....memplan import plan_memory
from .problem import Chain, Choice
from .regions import chains_of
from .rehearsal import Rehearsal

SHARES = tuple(1.5 * 0.97**i for i in range(48))
"""Budgets for the planner, as shares of the real one: its chain is simpler than a step."""

Peak = Callable[[Choice], int]


class Found(NamedTuple):
    """A choice, its rehearsed peak, and the seconds of its recomputation."""

    choice: Choice
    peak_bytes: int
    seconds: float


def cheapest_within(seen: Rehearsal, budget: int, peak: Peak) -> Found:
    """The fastest choice found whose peak is within a budget; if there is none, that with the least peak."""
    best: Found | None = None
    tried = [Found({}, seen.peak_bytes, 0.0)]
    for spans in chains_of(seen):
        chain = Chain(seen, spans)
        choices = _choices(chain, budget)
        low, high = (
            0,
            len(choices),
        )  # the first that fits lies in [low, high]: bytes fall from one to the next
        while low < high:
            middle = (low + high) // 2
            seconds = chain.seconds(choices[middle])
            if best is not None and seconds >= best.seconds:
                high = middle
                continue
            tried.append(Found(choices[middle], peak(choices[middle]), seconds))
            if tried[-1].peak_bytes <= budget:
                best, high = _less(chain, tried[-1], budget, peak), middle
            else:
                low = middle + 1
    return best or min(tried, key=lambda found: found.peak_bytes)


def _choices(chain: Chain, budget: int) -> list[Choice]:
    """Choices of the planner for budgets near the real one, from the fastest on, and last all regions."""
    whole = plan_memory(chain.problem)
    found: list[Choice] = []
    for share in SHARES:
        try:
            choice = chain.choice(whole.within(int(budget * share)))
        except MemoryBudgetError:
            break
        if choice and choice not in found:
            found.append(choice)
    return [*found, chain.everything()]


def _less(chain: Chain, found: Found, budget: int, peak: Peak) -> Found:
    """A choice without the regions that it can do without."""
    cost = {name: chain.seconds({name: kept}) for name, kept in found.choice.items()}
    for name in sorted(cost, key=lambda name: -cost[name]):
        fewer = {n: kept for n, kept in found.choice.items() if n != name}
        if (now := peak(fewer)) <= budget:
            found = Found(fewer, now, chain.seconds(fewer))
    return found
