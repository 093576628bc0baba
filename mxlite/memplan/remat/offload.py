"""Candidates that offload kept values to host memory, derived from those that only keep and recompute.

A copy costs no time while it overlaps with kernels, and the link can hide only so many bytes: what its slower
direction carries during the forward or backward pass. Two moves spend them. From a point of the frontier,

* *kept values leave*, the earliest first: they wait longest, and are the least urgent;
* *dropped values leave instead*, those first that take most seconds per byte to recompute.
Both move ever more values, up to all of them, because no rule says where waiting begins to cost more than it
saves: every candidate is costed exactly. A second round starts from the results of the first, so that
both moves meet; then single tasks change between keeping, recomputing and leaving.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..problem import HostLink, padded, Problem
from .pool import CandidatePool, Point
from .schedule import OFFLOADED

VISITS = 300_000  # tasks times candidates, at most; about twenty times as expensive as those without copies
PER_TASK = 1000  # candidates, at most
SHARES = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, float("inf"))
"""Bytes to be offloaded, as multiples of what the link hides."""
STARTS = 8  # points that a round starts from
ROOMS = (1.02, 1.05, 1.1, 1.2)
"""Live bytes that copies may use to overlap, as multiples of what a point needs anyway."""


def extend(pool: CandidatePool, starts: Sequence[Point]) -> None:
    """Add candidates with counts of -1 to `pool`, whose problem has a link to host memory.

    `starts` are points of counts alone. Offloading is expressed by counts, so the search goes on from these
    even where points given by what is held are better.
    """
    problem = pool.problem
    assert problem.host is not None
    trips = _Trips(problem, problem.host)
    if not trips.places.size:
        return
    end = pool.visits + min(VISITS, PER_TASK * len(problem.tasks))
    done: set[bytes] = set()
    for share in (0.4, 0.7):
        stop = pool.visits + share * (end - pool.visits)
        for point in _spread(_curve(pool, starts), done, STARTS):
            if pool.visits >= stop:
                break
            done.add(point.counts)
            rows = list(_moves(trips, point.array))
            if rows:
                pool.add(_named(point.method), np.array(rows))
    _improve(pool, starts, trips, end)
    _widen(pool, STARTS * 8)


class _Trips:
    """Candidates for offloading: `places` are forward tasks with an arena result that backward may read."""

    def __init__(self, problem: Problem, link: HostLink) -> None:
        n, values, made = problem.num_forward, problem.values, problem.arena_producer
        self.problem = problem
        self.capacity = link.capacity
        self.nbytes = np.zeros(n, np.int64)
        needed = np.zeros(n, bool)
        for t, task in enumerate(problem.tasks):
            for v in task.outputs if t < n else ():
                if v >= 0 and not values[v].fixed:
                    self.nbytes[t] += padded(values[v].nbytes)
            for v in task.inputs if t >= n else ():
                if 0 <= made[v] < n:
                    needed[made[v]] = True
        # Values that only other forward tasks read can serve to recompute those.
        self.read = needed
        for t in range(n):
            for p in problem.reads[t]:
                needed[p] = True
        self.places = np.flatnonzero(needed & (self.nbytes > 0))
        seconds = np.array([t.seconds for t in problem.tasks])
        self.price = seconds[:n] / np.maximum(self.nbytes, 1)
        hidden = min(
            link.store_bytes_per_s * float(seconds[:n].sum()),
            link.fetch_bytes_per_s * float(seconds[n:].sum()),
        )
        self.hidden = hidden if hidden > 0 else float(self.nbytes.sum())

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """True for each row of counts that certainly stays within the host's capacity."""
        if self.capacity is None:
            return np.ones(len(rows), bool)
        fits: np.ndarray = np.where(rows == OFFLOADED, self.nbytes, 0).sum(axis=1) <= self.capacity
        return fits


def _curve(pool: CandidatePool, starts: Sequence[Point]) -> list[Point]:
    """Frontier of `starts` and the points of counts in the pool, ordered as in `CandidatePool.points`."""
    found: list[Point] = []
    both = {p.counts: p for p in [*starts, *pool.points] if p.runs is None}
    for p in sorted(both.values(), key=lambda p: (p.seconds, p.live_bytes)):
        if not found or p.live_bytes < found[-1].live_bytes:
            found.append(p)
    return found


def _spread(points: list[Point], done: set[bytes], number: int) -> list[Point]:
    """At most `number` points that are not `done`, from the whole curve; the last one is among them."""
    left = [p for p in points if p.counts not in done]
    if len(left) <= number:
        return left
    at = {round(i * (len(left) - 1) / (number - 1)) for i in range(number)}
    return [left[i] for i in sorted(at)]


def _moves(trips: _Trips, counts: np.ndarray) -> Iterator[np.ndarray]:
    """`counts` with more and more values leaving, in both orders."""
    places = trips.places
    kept = places[counts[places] == 0]
    dropped = places[counts[places] > 0]
    dropped = dropped[np.argsort(-trips.price[dropped], kind="stable")]
    room = float("inf")
    if trips.capacity is not None:
        room = trips.capacity - int(trips.nbytes[counts == OFFLOADED].sum())
    for order in (kept, dropped):
        total = np.cumsum(trips.nbytes[order])
        last = 0
        for share in SHARES:
            number = int(np.searchsorted(total, min(share * trips.hidden, room), side="right"))
            if number > last:
                last = number
                row = counts.copy()
                row[order[:number]] = OFFLOADED
                yield row


def _improve(pool: CandidatePool, starts: Sequence[Point], trips: _Trips, end: int) -> None:
    """Change one task at a time, from every point of counts, until `end` visits."""
    places = trips.places
    at = np.arange(len(places))
    done: set[bytes] = set()
    # If not even all moves of a few points can be tried, the round before was the better use.
    while pool.visits + 2 * len(places) * len(pool.problem.tasks) <= end:
        todo = _spread(_curve(pool, starts), done, STARTS)
        if not todo:
            return
        for point in todo:
            if pool.visits + 2 * len(places) * len(pool.problem.tasks) > end:
                return
            done.add(point.counts)
            counts = point.array
            rows = np.repeat(counts[None], 2 * len(places), axis=0)
            now = counts[places]
            rows[at, places] = np.where(now == OFFLOADED, 0, OFFLOADED)
            rows[len(places) + at, places] = np.where(now == 1, 0, 1)
            pool.add(_named(point.method), rows[trips.fits(rows)])


def _widen(pool: CandidatePool, most: int) -> None:
    """Give copies more room, from at most `most` points of the frontier."""
    for point in _spread([p for p in pool.points if (p.array < 0).any()], set(), most):
        for share in ROOMS:
            pool.widen(point, int(share * point.live_bytes))


def _named(method: str) -> str:
    return method if method.endswith("offload") else f"{method}, offload"
