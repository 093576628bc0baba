"""Plans kept on disk, for the next process that asks the same.

A file is named by a digest of all that a plan depends on: the problem, the budget, the strategy, and this
package's own text, so that a planner that was changed never meets plans of an older one. What is read back
passes the judge before it is used, against the caller's problem. A file that is broken, too long, of
another key or unsound counts as none: the plan is made again, and written over it.

Only plans that take long to make are kept: with a budget, of LEAST_TASKS tasks and more.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import zlib
from pathlib import Path

from ..core import config, kept
from ..core.errors import MXLiteError
from ..core.files import replacing
from .plan import MemoryPlan
from .problem import Problem

Key = tuple[object, ...]

LEAST_TASKS = 500  # below this a plan is made in about the time that reading and judging one takes
MOST_BYTES = 64 * 2**20  # of all files; the ones used longest ago go first
MOST_FILE_BYTES = 16 * 2**20
MOST_TEXT_BYTES = 256 * 2**20  # of one plan when unpacked: nobody's file fills the memory
_MAGIC = b"mxlite memory plan\n"


def load(problem: Problem, budget: int | None, key: Key) -> MemoryPlan | None:
    """The plan of `problem` that was stored under `key`, if it is sound and within `budget` bytes."""
    path = _path(problem, budget, key)
    if path is None:
        return None
    try:
        if os.path.getsize(path) > MOST_FILE_BYTES:
            return None
        with open(path, "rb") as file:
            data = file.read()
        size = kept.head_bytes(_MAGIC)
        if data[:size] != kept.head(_MAGIC, os.path.basename(path), data[size:]):
            return None
        unpack = zlib.decompressobj()
        text = unpack.decompress(data[size:], MOST_TEXT_BYTES)
        if not unpack.eof:
            return None
        plan = MemoryPlan.from_json(text.decode(), problem)
        if plan.budget_bytes != budget or budget is None or plan.peak_bytes > budget:
            return None
        os.utime(path)
    except (OSError, zlib.error, MXLiteError, ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return plan


def store(plan: MemoryPlan, key: Key) -> None:
    """Keep `plan` for `load`, if it is large enough to be worth it and there is a place."""
    path = _path(plan.problem, plan.budget_bytes, key, make=True)
    if path is None:
        return
    blob = zlib.compress(plan.to_json(problem=False).encode(), 1)
    if len(blob) > MOST_FILE_BYTES - kept.head_bytes(_MAGIC):
        return
    with contextlib.suppress(OSError):
        with replacing(path) as file:
            file.write(kept.head(_MAGIC, os.path.basename(path), blob) + blob)
        kept.make_room(os.path.dirname(path), MOST_BYTES)


def _path(problem: Problem, budget: int | None, key: Key, make: bool = False) -> str | None:
    if budget is None or len(problem.tasks) < LEAST_TASKS or not config.plan_cache():
        return None
    directory = kept.folder("plans", make)
    if directory is None:
        return None
    text = repr((_planner(), problem.digest, budget, key))
    return os.path.join(directory, f"{hashlib.sha256(text.encode()).hexdigest()}.plan")


@functools.cache
def _planner() -> str:
    """A digest of the source of this package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
