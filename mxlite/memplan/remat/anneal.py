"""Simulated annealing: many searches in parallel, each for its own budget, that may pass through worse plans.

If few tasks matter, a search that only accepts improvements ends too early: a result must be kept
and two others dropped, and each of these changes alone is worse. So each search makes one to three changes
at a time and also accepts slightly worse states, less and less so. Exceeding the budget is penalised, not
forbidden, and for few tasks the penalty is smaller, since a change that frees bytes often pays off only
after the gain, which is over the budget alone, was made. All searches make one step together, since
candidates are costed together, and whatever beats a point of the frontier is recorded there, whichever budget
it was found for.

S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi 1983, "Optimization by simulated annealing". There a worse state is
accepted with a probability from an exponential function. Here a random number bounds how much worse it may
be, because exponential functions are not rounded alike on all machines; and the random numbers are the raw
ones of a generator with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from .pool import Point, Pool

BUDGETS, EACH = 16, 12  # searches: budgets, and how many for each, at most
STEPS, STEPS_EACH = (
    100,
    4,
)  # minimum of each, and no more than for each task: there are fewer searches instead
HIGHEST = 3  # count
BELOW = 0.85  # of the least bytes known: the lowest budget
FEW = 100  # tasks, at most: selects the first of each pair below, else the second
DEAR = 0.4, 2.0  # penalty, in shares of a step, of exceeding the budget by its whole size
WARM = 0.01, 0.02  # how much worse, in shares of a step, the next state may be at first; nothing at last
NEAR = 4  # maximum distance between the places of successive changes, half of the time


def anneal(pool: Pool, limit: int, seed: int = 1) -> None:
    """Search from the points of the frontier for `limit` visits, changing what is held; do nothing if the
    limit is too small. Each `seed` gives another search.
    """
    if pool.evaluator.runs_by_stage and len(pool.holds.free):
        points = [p for p in pool.points if p.array.min(initial=0) >= 0]
        if points:
            _anneal(pool, points, _Spans(pool), limit, seed)


def anneal_counts(pool: Pool, places: np.ndarray, limit: int) -> None:
    """As `anneal`, changing mirror counts of `places`: coarser steps, and far less work for each."""
    points = [p for p in pool.points if p.runs is None and p.array.min(initial=0) >= 0]
    if len(places) and points:
        _anneal(pool, points, _Counts(pool, np.sort(places)), limit, 1)


def _anneal(pool: Pool, points: Sequence[Point], space: _Spans | _Counts, limit: int, seed: int) -> None:
    rows = limit // len(pool.problem.tasks)
    least_steps = min(STEPS, STEPS_EACH * space.places)
    each = min(EACH, rows // (BUDGETS * least_steps))
    whole = pool.problem.step_seconds
    if not each or not whole:
        return
    searches = BUDGETS * each
    steps = rows // searches
    least, most = points[-1].live_bytes, points[0].live_bytes
    budgets = np.repeat(np.maximum(1.0, np.linspace(BELOW * least, most, BUDGETS, False)), each)
    draws = _Draws(seed)
    space.begin([next((p for p in points if p.live_bytes <= b), points[-1]) for b in budgets.tolist()])
    space.draw(draws, _places(steps, searches, space.places, draws))
    size = int(len(pool.problem.tasks) > FEW)
    heat = WARM[size] * (1 - np.arange(steps) / steps) ** 2
    worse = heat[:, None] * draws.shares(steps, searches) ** 2

    def energy() -> np.ndarray:
        nbytes, seconds = space.costs()
        excess = np.maximum(0.0, nbytes - budgets) / budgets
        return np.asarray(seconds / whole + DEAR[size] * excess)

    now = energy()
    for step in range(steps):
        space.change(step)
        new = energy()
        taken = new <= now + worse[step]
        now[taken] = new[taken]
        space.take(taken)


def _places(steps: int, searches: int, among: int, draws: _Draws) -> np.ndarray:
    """(steps, searches, 3): places to be changed, one in each step of each search, in half of them two, in a
    quarter three; -1 is none.
    """
    place = draws.below(among, steps, searches)
    found, use = [place], np.ones(place.shape, bool)
    for _ in range(2):
        use = use & (draws.shares(steps, searches) < 0.5)
        near = (place + draws.below(2 * NEAR + 1, steps, searches) - NEAR) % among
        place = np.where(draws.shares(steps, searches) < 0.5, near, draws.below(among, steps, searches))
        found.append(np.where(use, place, -1))
    return np.stack(found, axis=2)


class _Counts:
    """Mirror counts of each search, and the moves open to it."""

    def __init__(self, pool: Pool, tasks: np.ndarray) -> None:
        self.pool, self.tasks, self.places = pool, tasks, len(tasks)

    def begin(self, points: Sequence[Point]) -> None:
        self.counts = self.moved = np.minimum([p.array for p in points], HIGHEST)

    def draw(self, draws: _Draws, places: np.ndarray) -> None:
        """Draw the changes at `places` for each step."""
        self.some, self.at = places >= 0, self.tasks[places]
        chance = draws.shares(*places.shape)
        self.more, self.none = chance < 0.25, chance < 0.5

    def change(self, step: int) -> None:
        self.moved = self.counts.copy()
        rows = np.arange(len(self.moved))
        for i in range(3):
            at = rows, self.at[step, :, i]
            now = self.moved[at]
            less = np.where(self.none[step, :, i], 0, now - 1)
            new = np.where(self.more[step, :, i] | (now == 0), np.minimum(now + 1, HIGHEST), less)
            self.moved[at] = np.where(self.some[step, :, i], new, now)

    def costs(self) -> tuple[np.ndarray, np.ndarray]:
        return self.pool.together("annealing", self.moved)

    def take(self, taken: np.ndarray) -> None:
        self.counts[taken] = self.moved[taken]


class _Spans:
    """Tasks that each search holds from one backward task to the next, and the moves open to it."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.places = pool, len(pool.holds.free)

    def begin(self, points: Sequence[Point]) -> None:
        different = {id(p): p for p in points}
        at = {which: i for i, which in enumerate(different)}
        states = self.pool.states([*different.values()])
        self.states = self.moved = states[np.array([at[id(p)] for p in points])]

    def draw(self, draws: _Draws, places: np.ndarray) -> None:
        """Draw the changes at `places` for each step."""
        self.tasks = np.where(places >= 0, self.pool.holds.free[places], -1)
        self.which, self.kinds = draws.below(1 << 20, *places.shape), draws.below(2, *places.shape)

    def change(self, step: int) -> None:
        moves = self.tasks[step], self.which[step], self.kinds[step]
        self.moved = self.pool.holds.moved(self.states, *moves)

    def costs(self) -> tuple[np.ndarray, np.ndarray]:
        live, seconds = self.pool.held("annealing", self.moved)
        return live.max(axis=1), seconds

    def take(self, taken: np.ndarray) -> None:
        self.states.held[taken], self.states.runs[taken] = self.moved.held[taken], self.moved.runs[taken]


class _Draws:
    """Random numbers, the same on every machine and in every version of numpy."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def below(self, bound: int, *shape: int) -> np.ndarray:
        """Whole numbers in [0, bound), for bounds up to 2**24."""
        found: np.ndarray = (self._raw(shape) >> np.uint64(40)).astype(np.int64) * bound >> 24
        return found

    def shares(self, *shape: int) -> np.ndarray:
        """Numbers in [0, 1)."""
        found: np.ndarray = (self._raw(shape) >> np.uint64(11)) * 2.0**-53
        return found

    def _raw(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(self._bits.random_raw(prod(shape))).reshape(shape)
