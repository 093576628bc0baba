"""Cache of frontiers on disk, for the next process that plans the same problem, with whatever budget.

A file is named by a digest of all that a frontier depends on: the problem, the strategy, and this package's
own source, so that a changed planner never reads what an older one left. It holds mirror counts or
runs and what they cost. Nothing else in it is trusted: the plan of a point is computed from its choice, and
its placed arena decides whether it fits, so no file can make a plan unsound or too
large. Costs are recomputed for a sample of points; a file that is broken, too long, of
another key or wrong is ignored: the frontier is searched for anew, and the file overwritten.

Only what takes long to find is to be kept: frontiers of problems of LEAST_TASKS tasks and more.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from base64 import b64decode, b64encode
from itertools import pairwise
from math import isfinite

import numpy as np

from ...core import config
from ...core.disk import kept
from ..problem import Problem
from ..remat.evaluate import Evaluator
from ..remat.pool import Point
from ..remat.schedule import OFFLOADED, Runs
from . import findings

LEAST_TASKS = 500
MOST_BYTES = findings.MOST_BYTES
MOST_FILE_BYTES = 16 * 2**20
MOST_TEXT_BYTES = 256 * 2**20  # of one frontier when unpacked, so that a foreign file cannot exhaust memory
ASKED = 16  # points whose costs are recomputed
HIGHEST = 16  # mirror count
_MAGIC = b"mxlite frontier\n"


def load(problem: Problem, strategy: str) -> tuple[Point, ...] | None:
    """The points stored for `problem`, or None if there are none or they are unsound."""
    path = _path(problem, strategy)
    if path is None:
        return None
    try:
        blob = kept.read(path, _MAGIC, os.path.basename(path), MOST_FILE_BYTES)
        if blob is None:
            return None
        unpack = zlib.decompressobj()
        text = unpack.decompress(blob, MOST_TEXT_BYTES)
        if not unpack.eof:
            return None
        points = tuple(_point(row, problem.num_forward) for row in json.loads(text))
        _judge(problem, strategy, points)
    except (zlib.error, ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        return None
    return points


def store(problem: Problem, strategy: str, points: tuple[Point, ...]) -> None:
    """Store `points` for `load`, if there is a folder."""
    path = _path(problem, strategy, make=True)
    if path is None:
        return
    rows = [_row(p) for p in points]
    blob = zlib.compress(json.dumps(rows).encode(), 1)
    if len(blob) > MOST_FILE_BYTES:
        return
    with kept.attempt(os.path.dirname(path)):
        kept.write(path, _MAGIC, os.path.basename(path), blob)
        kept.make_room(os.path.dirname(path), MOST_BYTES)


def _row(p: Point) -> list[object]:
    """A point as JSON data; of `runs` only the tasks that are recomputed are listed, each with its stages."""
    again = None if p.runs is None else [[t, *row] for t, row in enumerate(p.runs.stages) if row]
    return [p.method, b64encode(p.counts).decode(), p.live_bytes, p.seconds, p.room, again]


def _point(row: object, num_forward: int) -> Point:
    """The point of one row. Raises ValueError or TypeError if a field is malformed."""
    if not isinstance(row, list):
        raise TypeError
    method, text, nbytes, seconds, room, again = row
    counts = b64decode(text, validate=True)
    if type(method) is not str or type(nbytes) is not int or type(seconds) is not float:
        raise TypeError
    if type(room) is not int or not 0 <= room < 2**62:
        raise ValueError
    heights = np.frombuffer(counts, np.int8)
    if len(counts) != num_forward or not isfinite(seconds):
        raise ValueError
    if len(counts) and not OFFLOADED <= heights.min() <= heights.max() <= HIGHEST:
        raise ValueError
    return Point(method, counts, nbytes, seconds, room, None if again is None else _runs(again, num_forward))


def _runs(rows: object, num_forward: int) -> Runs:
    """The runs of a point from their rows. Raises ValueError or TypeError if they are malformed."""
    if type(rows) is not list:
        raise TypeError
    stages: list[tuple[int, ...]] = [()] * num_forward
    for row in rows:
        if type(row) is not list or any(type(x) is not int for x in row):
            raise TypeError
        t, *when = row
        if not 0 <= t < num_forward or not when or when[0] < 0 or any(a >= b for a, b in pairwise(when)):
            raise ValueError
        stages[t] = tuple(when)
    return Runs(tuple(stages))


def _judge(problem: Problem, strategy: str, points: tuple[Point, ...]) -> None:
    """Raise ValueError unless points ascend in time, fall in bytes, and have the costs they state."""
    if not points:
        raise ValueError
    for before, after in pairwise(points):
        if before.seconds > after.seconds or before.live_bytes <= after.live_bytes:
            raise ValueError
    some = [*points[:: -(-len(points) // ASKED)], points[-1]]
    evaluator = Evaluator(problem, strategy)
    nbytes, seconds = evaluator.choices([p.choice for p in some])
    for p, b, s in zip(some, nbytes.tolist(), seconds.tolist()):
        if (p.live_bytes, p.seconds) != (evaluator.one(p.choice, p.room) if p.room else (b, s)):
            raise ValueError


def _path(problem: Problem, strategy: str, make: bool = False) -> str | None:
    if not config.plan_cache():
        return None
    directory = kept.folder("plans", make)
    if directory is None:
        return None
    text = repr((findings.planner(), problem.digest, strategy))
    return os.path.join(directory, f"{hashlib.sha256(text.encode()).hexdigest()}.frontier")
