"""Annealing: many searches side by side, each for a budget of its own, that may pass through worse plans.

Where few tasks matter, a search that only ever takes what is better ends too early: a result must be kept
and two others dropped, and each of these changes alone is worse. So each search changes one to three counts
at a time and goes on from what is a little worse too, less and less so. What is over its budget is not
forbidden but dear. All searches make one step together, since candidates are costed together, and whatever
beats a point of the frontier is noted there, whichever budget it was found for.

S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi 1983, "Optimization by simulated annealing". There a worse state is
taken with a probability from an exponential function. Here a random number bounds how much worse it may be,
for exponential functions are not rounded alike on all machines; and the random numbers are the raw ones of a
generator that always starts alike.
"""

from __future__ import annotations

import numpy as np

from .pool import Pool

BUDGETS, FEWEST, EACH = 16, 3, 12  # searches: budgets, and how many for each, at least and at most
STEPS = 32  # of each, at least: there are fewer searches instead
HIGHEST = 3  # count; of few searches one less, for high ones take longer to cost
BELOW = 0.85  # of the least bytes known: the lowest budget
DEAR = 2.0  # shares of a step that a whole budget in excess is counted as
WARM = 0.05  # how much worse, in shares of a step, the next state may be at first; nothing at last
NEAR = 4  # places that a change is away from the one before, at most, half of the time


def anneal(pool: Pool, places: np.ndarray, limit: int) -> None:
    """Search from the points of the frontier for `limit` visits, or not at all where these are too few.

    `places`: the tasks that may run again.
    """
    places = np.sort(places)
    rows = limit // len(pool.problem.tasks)
    each = min(EACH, rows // (BUDGETS * STEPS))
    whole = pool.problem.step_seconds
    if each < FEWEST or not len(places) or not whole:
        return
    searches = BUDGETS * each
    steps = rows // searches
    points = [p for p in pool.points if p.array.min(initial=0) >= 0]
    least, most = points[-1].live_bytes, points[0].live_bytes
    budgets = np.repeat(np.maximum(1.0, np.linspace(BELOW * least, most, BUDGETS, False)), each)
    at = [next((p for p in points if p.live_bytes <= b), points[-1]) for b in budgets.tolist()]
    highest = HIGHEST if each == EACH else HIGHEST - 1
    counts = np.minimum([p.array for p in at], highest)
    draws = _Draws()

    def energy_of(rows: np.ndarray) -> np.ndarray:
        live, seconds, _ = pool.stages("annealing", rows)
        excess = np.maximum(0.0, live.max(axis=1) - budgets) / budgets
        return np.asarray(seconds / whole + DEAR * excess)

    energy = energy_of(counts)
    for step in range(steps):
        moved = _changed(counts, places, highest, draws)
        new = energy_of(moved)
        heat = WARM * (1 - step / steps) ** 2
        taken = new <= energy + heat * draws.shares(searches) ** 2
        counts[taken], energy[taken] = moved[taken], new[taken]


def _changed(counts: np.ndarray, places: np.ndarray, highest: int, draws: _Draws) -> np.ndarray:
    """Each row with one count changed, half of them with two, a quarter with three."""
    moved = counts.copy()
    rows = np.arange(len(counts))
    place = draws.below(len(places), len(counts))
    for k in range(3):
        if k:
            some = draws.shares(len(rows)) < 0.5
            rows, place = rows[some], place[some]
            near = (place + draws.below(2 * NEAR + 1, len(rows)) - NEAR) % len(places)
            place = np.where(draws.shares(len(rows)) < 0.5, near, draws.below(len(places), len(rows)))
        now = moved[rows, places[place]]
        chance = draws.shares(len(rows))
        more = np.minimum(now + 1, highest)
        new = np.where((now == 0) | (chance < 0.25), more, np.where(chance < 0.5, 0, now - 1))
        moved[rows, places[place]] = new
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
