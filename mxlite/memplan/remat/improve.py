"""Local search around every point of a frontier at once.

A move changes the count of one forward task. From a point all moves are costed together, or the most
promising ones if there are many tasks; whatever beats a point of the frontier takes its place, and is itself
a start of moves later. The effort is a number of tasks visited, so it is the same on every machine.
"""

from __future__ import annotations

import numpy as np

from .pool import CandidatePool, DEEP

AT_ONCE = 256  # candidates to be costed together, about
MOVES = 1024  # tasks, at most, that a point is moved on from


def improve(pool: CandidatePool, places: np.ndarray, limit: int) -> None:
    """Move on from the points of the frontier until nothing new is found, or `limit` visits are done.

    `places` are the tasks that may be recomputed, the least time per byte first.
    """
    end = pool.visits + limit
    done: set[bytes] = set()
    most = max(2, min(MOVES, limit // len(pool.problem.tasks)))
    together = max(1, AT_ONCE // max(1, len(places)))
    while pool.visits < end:
        todo = [p for p in pool.points if p.runs is None and p.counts not in done]
        if not todo:
            return
        # First moves from everywhere come before second moves from anywhere: spread over the whole curve.
        spread = todo[:: max(1, len(todo) // 16)]
        for at in range(0, len(spread), together):
            names: list[str] = []
            rows: list[np.ndarray] = []
            for point in spread[at : at + together]:
                done.add(point.counts)
                counts = point.array
                found = _moves(counts, _promising(counts, places, most))
                names += [_moved(point.method)] * len(found)
                rows.append(found)
            both = np.concatenate(rows)
            # Costing tasks that run more than twice takes long: as much of it as there is work left.
            deep = (both > 1).any(axis=1)
            room = max(0, end - pool.visits) // (len(pool.problem.tasks) * DEEP)
            use = ~deep | (np.cumsum(deep) <= room)
            pool.add([n for n, u in zip(names, use.tolist()) if u], both[use])
            if pool.visits >= end:
                return


def _promising(counts: np.ndarray, places: np.ndarray, most: int) -> np.ndarray:
    """Up to `most` of `places`, the cheapest first: kept ones of the lowest price, dropped ones of the
    highest.
    """
    if len(places) <= most:
        return np.sort(places)
    dropped = counts[places] > 0
    return np.sort(np.concatenate([places[~dropped][: most // 2], places[dropped][-(most // 2) :]]))


def _moves(counts: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Every change of one count: kept or recomputed, once or twice."""
    dropped = counts[places] > 0
    up, down = places, places[counts[places] > 1]
    to_one = np.repeat(counts[None], len(up), axis=0)
    to_one[np.arange(len(up)), up] = ~dropped
    more = places[dropped]
    to_more = np.repeat(counts[None], len(more), axis=0)
    to_more[np.arange(len(more)), more] += 1
    to_less = np.repeat(counts[None], len(down), axis=0)
    to_less[np.arange(len(down)), down] -= 1
    return np.concatenate([to_one, to_more, to_less])


def _moved(method: str) -> str:
    return method if method.endswith("improved") else f"{method}, improved"
