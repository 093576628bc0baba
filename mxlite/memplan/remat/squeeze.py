"""Search for the least bytes: from the lowest schedules down, by dropping results live at the fullest stages.

The recursion of deep.py works on blocks, and holds all of a block at once. Lower schedules differ in
single results: one is dropped across the fullest stage, another one, recomputed only as an input, is
not held after it, and so on until no such change helps. Each time all changes are costed, and the one is
made that leaves least above a mark just below the fullest stage; seconds weigh little. The objective is a sum
over all stages that are about as full, since one change seldom lowers the fullest by itself.

If no single change helps, a detour is made: a change that lowers the fullest stage and fills others above
it, and then changes that empty these. So a result that is recomputed in the fullest stage, together with all
its inputs, comes to be held from where it was live before, and its inputs are not held there any longer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .holds import Changes, Held
from .pool import CandidatePool, Point

STARTS = 8  # starting points, at most
APART = 1.02  # ratio of their bytes, at least
STAGES = 3  # the fullest ones, at which changes are tried
PARTS = 4096  # units that the fullest stage holds: integers, whose sums are the same on all machines
MARK = PARTS * 97 // 100
ROUND = 20_000_000  # visits of one round of changes, at most
SECONDS = 16_000.0  # weight of a step's time against squares of parts
DETOURS = 16  # first changes that are tried, and
LENGTH = 4  # changes that follow each, at most


def squeeze(pool: CandidatePool, limit: int) -> None:
    """Search below the lowest points of the frontier, from the lowest on, for about `limit` visits."""
    if not pool.evaluator.runs_by_stage or not len(pool.holds.free):
        return
    until = pool.visits + limit
    for point in _starts(pool):
        if pool.visits >= until:
            return
        here: _Spot | None = _spot(pool, pool.states([point]))
        while here is not None and pool.visits < until:
            here = _below(pool, here, until)


def _starts(pool: CandidatePool) -> list[Point]:
    """The lowest points that offload nothing, at some distance from one another."""
    found: list[Point] = []
    for p in reversed(pool.points):
        if p.array.min(initial=0) < 0 or (found and p.live_bytes < APART * found[-1].live_bytes):
            continue
        found.append(p)
        if len(found) == STARTS:
            break
    return found


class _Spot(NamedTuple):
    """A schedule, the bytes that its stages hold (1, stages), and its extra seconds."""

    state: Held
    live: np.ndarray
    seconds: float

    def weight(self, pool: CandidatePool, top: int) -> float:
        return float(_weights(pool, self.live, np.array([self.seconds]), top)[0])


class _Around(NamedTuple):
    """Changes of the schedule `state`, with the cost of each."""

    state: Held
    changes: Changes
    live: np.ndarray
    seconds: np.ndarray
    weights: np.ndarray

    def where(self, k: int) -> tuple[int, int]:
        """The task and the event of change k."""
        task, event, _ = self.changes.ways[k].tolist()
        return task, event

    def spot(self, pool: CandidatePool, k: int) -> _Spot:
        """The schedule after change k."""
        some = self.changes.first[k : k + 2]
        made = pool.holds.edited(self.state, some, self.changes.spans)
        return _Spot(made, self.live[k : k + 1], float(self.seconds[k]))


def _spot(pool: CandidatePool, state: Held) -> _Spot:
    live, seconds = pool.held("squeezed", state)
    return _Spot(state, live, float(seconds[0]))


def _below(pool: CandidatePool, here: _Spot, until: int) -> _Spot | None:
    """A schedule with less above the mark, and no stage above the peak of `here`."""
    top = int(here.live.max())
    around = _around(pool, here, top)
    if around is None:
        return None
    best = int(np.where(around.live.max(axis=1) > top, np.inf, around.weights).argmin())
    if around.live[best].max() <= top and around.weights[best] < here.weight(pool, top):
        return around.spot(pool, best)
    if pool.visits >= until:
        return None
    stage = here.live[0].argmax()
    saving = _saving(pool, here, int(stage), top)
    if saving is None:
        return None
    lower = np.flatnonzero(saving.live[:, stage] < top)
    first = lower[np.argsort(saving.weights[lower], kind="stable")[:DETOURS]]
    found = (_detour(pool, here, saving, k, until) for k in first.tolist())
    return next((end for end in found if end is not None), None)


def _detour(pool: CandidatePool, start: _Spot, around: _Around, k: int, until: int) -> _Spot | None:
    """A better schedule than `start` by way of change `k` of those around it, which may fill other stages
    above its peak. Changes made on the way are not reverted.
    """
    top, least = int(start.live.max()), start.weight(pool, int(start.live.max()))
    changed: set[tuple[int, int]] = set()
    for _ in range(LENGTH):
        here, weight = around.spot(pool, k), around.weights[k]
        if weight < least and here.live.max() <= top:
            return here
        if pool.visits >= until:
            return None
        changed.add(around.where(k))
        more = _around(pool, here, top)
        if more is None:
            return None
        around = more
        better = np.flatnonzero(around.weights < weight)
        order = better[np.argsort(around.weights[better], kind="stable")].tolist()
        k = next((i for i in order if around.where(i) not in changed), -1)
        if k < 0:
            return None
    return None


def _around(pool: CandidatePool, here: _Spot, top: int) -> _Around | None:
    """Changes of what the fullest stages hold; None if there are none."""
    fullest = np.argsort(-here.live[0], kind="stable")[:STAGES] - _ahead(pool, here)
    return _costed(pool, here, [pool.holds.changes(here.state, j) for j in fullest.tolist() if j >= 0], top)


def _saving(pool: CandidatePool, here: _Spot, stage: int, top: int) -> _Around | None:
    """Changes of the tasks that run in a stage and of their readers, wherever they are held or run."""
    if stage < _ahead(pool, here):
        return None
    runs = pool.holds.run_in(here.state, stage - _ahead(pool, here))
    near = {*runs, *(r for t in runs for r in pool.holds.readers[t])}
    tasks = np.array([t for t in pool.holds.free.tolist() if t in near], np.int64)
    return _costed(pool, here, [pool.holds.changes(here.state, tasks=tasks)] if len(tasks) else [], top)


def _ahead(pool: CandidatePool, here: _Spot) -> int:
    """Number of stages of the forward pass itself, which recomputation does not change."""
    return int(here.live.shape[1]) - pool.holds.stages


def _costed(pool: CandidatePool, here: _Spot, found: list[Changes], top: int) -> _Around | None:
    if not any(map(len, found)):
        return None
    changes = Changes.joined(found).some(max(1, ROUND // len(pool.problem.tasks)))
    live, seconds = pool.changed("squeezed", here.state, changes.first, changes.spans)
    return _Around(here.state, changes, live, seconds, _weights(pool, live, seconds, top))


def _weights(pool: CandidatePool, live: np.ndarray, seconds: np.ndarray, top: int) -> np.ndarray:
    """Weight of each candidate: squares of what its stages hold above the mark, summed, plus its time."""
    above = np.maximum(live * PARTS // top - MARK, 0)
    squares: np.ndarray = (above * above).sum(axis=1).astype(np.float64)
    return squares + SECONDS * (seconds / (pool.problem.step_seconds or 1.0))
