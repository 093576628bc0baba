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

from collections.abc import Iterator, Sequence

import numpy as np

from .pool import Point, Pool

BUDGETS, EACH = 16, 12  # searches: budgets, and how many for each, at most
STEPS = 100  # of each, at least: there are fewer searches instead
HIGHEST = 3  # count
BELOW = 0.85  # of the least bytes known: the lowest budget
DEAR = 2.0  # shares of a step that a whole budget in excess is counted as
WARM = 0.02  # how much worse, in shares of a step, the next state may be at first; nothing at last
NEAR = 4  # places that a change is away from the one before, at most, half of the time


def anneal(pool: Pool, limit: int) -> None:
    """Search from the points of the frontier for `limit` visits, changing what is held, or not at all where
    these are too few.
    """
    if pool.evaluator.runs_by_stage and len(pool.holds.free):
        points = [p for p in pool.points if p.array.min(initial=0) >= 0]
        if points:
            _anneal(pool, points, _Spans(pool), limit)


def anneal_counts(pool: Pool, places: np.ndarray, limit: int) -> None:
    """As `anneal`, changing mirror counts of `places`: coarser steps, and far less work for each."""
    points = [p for p in pool.points if p.runs is None and p.array.min(initial=0) >= 0]
    if len(places) and points:
        _anneal(pool, points, _Counts(pool, np.sort(places)), limit)


def _anneal(pool: Pool, points: Sequence[Point], space: _Spans | _Counts, limit: int) -> None:
    rows = limit // len(pool.problem.tasks)
    each = min(EACH, rows // (BUDGETS * STEPS))
    whole = pool.problem.step_seconds
    if not each or not whole:
        return
    searches = BUDGETS * each
    steps = rows // searches
    least, most = points[-1].live_bytes, points[0].live_bytes
    budgets = np.repeat(np.maximum(1.0, np.linspace(BELOW * least, most, BUDGETS, False)), each)
    space.begin([next((p for p in points if p.live_bytes <= b), points[-1]) for b in budgets.tolist()])
    draws = _Draws()

    def energy() -> np.ndarray:
        nbytes, seconds = space.costs()
        excess = np.maximum(0.0, nbytes - budgets) / budgets
        return np.asarray(seconds / whole + DEAR * excess)

    now = energy()
    for step in range(steps):
        space.change(draws)
        new = energy()
        heat = WARM * (1 - step / steps) ** 2
        taken = new <= now + heat * draws.shares(searches) ** 2
        now[taken] = new[taken]
        space.take(taken)


def _places(number: int, among: int, draws: _Draws) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(searches, places) to be changed: one of each of `number` searches, of half of them two, of a quarter
    three.
    """
    rows, place = np.arange(number), draws.below(among, number)
    yield rows, place
    for _ in range(2):
        some = draws.shares(len(rows)) < 0.5
        rows, place = rows[some], place[some]
        near = (place + draws.below(2 * NEAR + 1, len(rows)) - NEAR) % among
        place = np.where(draws.shares(len(rows)) < 0.5, near, draws.below(among, len(rows)))
        yield rows, place


class _Counts:
    """Mirror counts of each search, and those that it may move to."""

    def __init__(self, pool: Pool, places: np.ndarray) -> None:
        self.pool, self.places = pool, places

    def begin(self, points: Sequence[Point]) -> None:
        self.counts = self.moved = np.minimum([p.array for p in points], HIGHEST)

    def change(self, draws: _Draws) -> None:
        self.moved = self.counts.copy()
        for rows, place in _places(len(self.counts), len(self.places), draws):
            now = self.moved[rows, self.places[place]]
            chance = draws.shares(len(rows))
            more = np.minimum(now + 1, HIGHEST)
            new = np.where((now == 0) | (chance < 0.25), more, np.where(chance < 0.5, 0, now - 1))
            self.moved[rows, self.places[place]] = new

    def costs(self) -> tuple[np.ndarray, np.ndarray]:
        return self.pool.together("annealing", self.moved)

    def take(self, taken: np.ndarray) -> None:
        self.counts[taken] = self.moved[taken]


class _Spans:
    """What each search holds from one backward task to the next, and what it may move to."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def begin(self, points: Sequence[Point]) -> None:
        different = {id(p): p for p in points}
        at = {which: i for i, which in enumerate(different)}
        states = self.pool.states([*different.values()])
        self.states = self.moved = states[np.array([at[id(p)] for p in points])]

    def change(self, draws: _Draws) -> None:
        holds = self.pool.holds
        tasks = np.full((len(self.states), 3), -1)
        which, kinds = np.zeros_like(tasks), np.zeros_like(tasks)
        for i, (rows, places) in enumerate(_places(len(tasks), len(holds.free), draws)):
            tasks[rows, i] = holds.free[places]
            which[rows, i], kinds[rows, i] = draws.below(1 << 20, len(rows)), draws.below(2, len(rows))
        self.moved = holds.moved(self.states, tasks, which, kinds)

    def costs(self) -> tuple[np.ndarray, np.ndarray]:
        live, seconds = self.pool.held("annealing", self.moved)
        return live.max(axis=1), seconds

    def take(self, taken: np.ndarray) -> None:
        self.states.held[taken], self.states.runs[taken] = self.moved.held[taken], self.moved.runs[taken]


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
