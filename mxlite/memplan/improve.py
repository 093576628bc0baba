"""Local search around every point of a frontier at once.

A move changes the count of one forward task. From a point all moves are costed together; whatever beats a
point of the frontier takes its place, and may be moved on from in its turn. Few tasks are enumerated outright.
The effort is a number of tasks visited, so it is the same on every machine.
"""

from __future__ import annotations

import numpy as np

from .pool import Pool

ENUMERATED = 1 << 16  # candidates, at most, of a problem that is enumerated


def enumerate_all(pool: Pool, droppable: np.ndarray, limit: int) -> bool:
    """Cost every choice of what to keep and what to run again; whether that was within `limit` visits."""
    places = np.flatnonzero(droppable)
    if len(places) > 20:
        return False
    number = 1 << len(places)
    if number > ENUMERATED or number * len(pool.problem.tasks) > limit:
        return False
    for at in range(0, number, 4096):
        code = np.arange(at, min(at + 4096, number))
        rows = np.zeros((len(code), len(droppable)), np.int64)
        rows[:, places] = code[:, None] >> np.arange(len(places)) & 1
        pool.add("enumerated", rows)
    return True


def improve(pool: Pool, droppable: np.ndarray, cheap: np.ndarray, limit: int) -> None:
    """Move on from the points of the frontier until nothing new is found, or `limit` visits are done."""
    places = np.flatnonzero(droppable)
    end = pool.visits + limit
    done: set[bytes] = set()
    while pool.visits < end:
        todo = [p for p in pool.points if p.counts not in done]
        if not todo:
            return
        # From every point a first move before any gets a second: spread over the whole curve.
        for point in todo[:: max(1, len(todo) // 16)]:
            if pool.visits >= end:
                return
            done.add(point.counts)
            counts = point.array
            rows = np.repeat(counts[None], len(places), axis=0)
            at = np.arange(len(places))
            rows[at, places] = np.where(counts[places] > 0, 0, 1)
            twice = np.flatnonzero(cheap[places] & (counts[places] == 1))
            again = np.repeat(counts[None], len(twice), axis=0)
            again[np.arange(len(twice)), places[twice]] = 2
            pool.add(_moved(point.method), np.concatenate([rows, again]))


def _moved(method: str) -> str:
    return method if method.endswith("improved") else f"{method}, improved"
