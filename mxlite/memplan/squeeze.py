"""The least bytes: from the lowest schedules down, by taking from the fullest stages what can be made again.

The recursion of deep.py works on blocks, and holds all of a block at once. What lies below is a matter of
single results: one is dropped across the fullest stage, another one, made on the way to something else, is
not held behind it, and so on until no such change helps. Each time all of them are costed, and the one is
made that leaves least above a mark just below the fullest stage; seconds weigh little. A sum over all stages
that are about as full is what is lowered, since one change seldom lowers the fullest by itself.
"""

from __future__ import annotations

import numpy as np

from .holds import Changes, Held
from .pool import Point, Pool

STARTS = 8  # points that it begins at, at most
APART = 1.02  # ratio of their bytes, at least
STAGES = 3  # the fullest, at which changes are looked for
PARTS = 4096  # what the fullest stage holds, as whole numbers: sums of those are the same everywhere
MARK = PARTS * 97 // 100
ROUND = 20_000_000  # visits of one round of changes, at most
SECONDS = 16_000.0  # what a step's time is counted as, beside squares of parts


def squeeze(pool: Pool, limit: int) -> None:
    """Search below the lowest points of the frontier, from the lowest on, for about `limit` visits."""
    if not pool.evaluator.runs_by_stage or not len(pool.holds.free):
        return
    until = pool.visits + limit
    for point in _starts(pool):
        if pool.visits >= until:
            return
        _squeeze(pool, pool.states([point]), until)


def _starts(pool: Pool) -> list[Point]:
    """The lowest points that offload nothing, some way from one another."""
    found: list[Point] = []
    for p in reversed(pool.points):
        if p.array.min(initial=0) < 0 or (found and p.live_bytes < APART * found[-1].live_bytes):
            continue
        found.append(p)
        if len(found) == STARTS:
            break
    return found


def _squeeze(pool: Pool, state: Held, until: int) -> None:
    holds, step = pool.holds, pool.problem.step_seconds or 1.0
    live, seconds = pool.held("squeezed", state)
    while pool.visits < until:
        top = int(live[0].max())
        # Forward's own steps come first, and nothing that runs again changes those.
        fullest = np.argsort(-live[0], kind="stable")[:STAGES] - (live.shape[1] - holds.stages)
        found = [holds.changes(state, j) for j in fullest.tolist() if j >= 0]
        if not any(map(len, found)):
            return
        changes = Changes.joined(found).some(max(1, ROUND // len(pool.problem.tasks)))
        lives, times = pool.changed("squeezed", state, changes.first, changes.spans)
        before = _weight(live, top)[0] + SECONDS * (seconds[0] / step)
        after = _weight(lives, top) + SECONDS * (times / step)
        after[lives.max(axis=1) > top] = np.inf
        best = int(after.argmin())
        if after[best] >= before:
            return
        only = slice(best, best + 1)
        state = holds.edited(state, np.zeros(1, np.int64), changes.first[best : best + 2], changes.spans)
        live, seconds = lives[only], times[only]


def _weight(live: np.ndarray, top: int) -> np.ndarray:
    """For each candidate the squares of what its stages hold above the mark, added up."""
    above = np.maximum(live * PARTS // top - MARK, 0)
    total: np.ndarray = (above * above).sum(axis=1)
    return total.astype(np.float64)
