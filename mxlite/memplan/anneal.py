"""Annealing: many searches side by side, each for a budget of its own, that may pass through worse plans.

Where few tasks matter, a search that only ever takes what is better ends too early: a result must be kept
and two others dropped, and each of these changes alone is worse. So each search makes one to three changes
at a time and goes on from what is a little worse too, less and less so. What is over its budget is not
forbidden but dear. All searches make one step together, since candidates are costed together, and whatever
beats a point of the frontier is noted there, whichever budget it was found for.

S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi 1983, "Optimization by simulated annealing". There a worse state is
taken with a probability from an exponential function. Here a random number bounds how much worse it may be,
for exponential functions are not rounded alike on all machines; and the random numbers are the raw ones of a
generator that always starts alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .holds import Held, Holds
from .pool import Pool

BUDGETS, FEWEST, EACH = 16, 1, 12  # searches: budgets, and how many for each, at least and at most
STEPS = 128  # of each, at least: there are fewer searches instead
BELOW = 0.85  # of the least bytes known: the lowest budget
DEAR = 2.0  # shares of a step that a whole budget in excess is counted as
WARM = 0.05  # how much worse, in shares of a step, the next state may be at first; nothing at last
NEAR = 4  # places that a change is away from the one before, at most, half of the time


def anneal(pool: Pool, limit: int) -> None:
    """Search from the points of the frontier for `limit` visits, or not at all where these are too few."""
    rows = limit // len(pool.problem.tasks)
    each = min(EACH, rows // (BUDGETS * STEPS))
    whole = pool.problem.step_seconds
    if each < FEWEST or not whole or not pool.evaluator.runs_by_stage:
        return
    holds = pool.holds
    if not holds.free:
        return
    searches = BUDGETS * each
    steps = rows // searches
    points = [p for p in pool.points if p.array.min(initial=0) >= 0]
    least, most = points[-1].live_bytes, points[0].live_bytes
    budgets = np.repeat(np.maximum(1.0, np.linspace(BELOW * least, most, BUDGETS, False)), each)
    at = [next((p for p in points if p.live_bytes <= b), points[-1]) for b in budgets.tolist()]
    begin = {id(p): pool.state(p) for p in at}
    states = [begin[id(p)] for p in at]
    draws = _Draws()

    def energy_of(states: Sequence[Held]) -> np.ndarray:
        live, seconds = pool.held("annealing", states)
        excess = np.maximum(0.0, live.max(axis=1) - budgets) / budgets
        return np.asarray(seconds / whole + DEAR * excess)

    energy = energy_of(states)
    for step in range(steps):
        moved = _changed(holds, states, draws)
        new = energy_of(moved)
        heat = WARM * (1 - step / steps) ** 2
        taken = new <= energy + heat * draws.shares(searches) ** 2
        energy[taken] = new[taken]
        states = [b if take else a for a, b, take in zip(states, moved, taken.tolist())]


def _changed(holds: Holds, states: Sequence[Held], draws: _Draws) -> list[Held]:
    """Each of `states` with one change, half of them with two, a quarter with three."""
    number, free = len(states), holds.free
    moved = list(states)
    place = draws.below(len(free), number)
    rows = np.arange(number)
    for k in range(3):
        if k:
            some = draws.shares(len(rows)) < 0.5
            rows, place = rows[some], place[some]
            near = (place + draws.below(2 * NEAR + 1, len(rows)) - NEAR) % len(free)
            place = np.where(draws.shares(len(rows)) < 0.5, near, draws.below(len(free), len(rows)))
        events, kinds = draws.below(1 << 20, len(rows)), draws.below(2, len(rows))
        for i, at, event, kind in zip(rows.tolist(), place.tolist(), events.tolist(), kinds.tolist()):
            state, u = moved[i], free[at]
            there = holds.events(state, u)
            if not there:
                continue
            e = event % len(there)
            before = there[e - 1] if e else -1
            edit = holds.change(state, u, before, there[e], kind) or holds.change(
                state, u, before, there[e], 0
            )
            if edit is not None:
                moved[i] = holds.edited(state, edit)
    return moved


class _Draws:
    """Random numbers, the same on every machine and in every version of numpy."""

    def __init__(self) -> None:
        self._bits = np.random.PCG64(1)

    def below(self, bound: int, number: int) -> np.ndarray:
        """Whole numbers in [0, bound), for bounds up to 2**24."""
        return (self._bits.random_raw(number) >> np.uint64(40)).astype(np.int64) * bound >> 24

    def shares(self, number: int) -> np.ndarray:
        """Numbers in [0, 1)."""
        return (self._bits.random_raw(number) >> np.uint64(11)) * 2.0**-53
