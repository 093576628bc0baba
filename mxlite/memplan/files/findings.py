"""Cache of search results on disk, stored as whole numbers: an order of tasks, offsets of an arena.

A file is named by a digest of the question and of this package's own source, so that a changed planner never
reads what an older one left. The caller validates what is read, as no file may make a plan unsound;
what is broken, foreign or unsound is ignored, searched for anew and overwritten.

Small questions are answered faster than a file is read: only those of LEAST numbers and more are stored.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ...core import config
from ...core.disk import kept

LEAST = 200
MOST_BYTES = 64 * 2**20  # of all files of plans; the least recently used are removed first
_MAGIC = b"mxlite finding 1\n"

Numbers = tuple[int, ...]


def found(
    question: str, size: int, find: Callable[[], Sequence[int]], is_sound: Callable[[np.ndarray], bool]
) -> Numbers:
    """The `size` numbers that `find()` returns for `question`, or returned in an earlier process.

    `is_sound(numbers)` says if stored numbers may be an answer.
    """
    path = _path(question) if size >= LEAST else None
    if path is not None:
        name = os.path.basename(path)
        blob = kept.read(path, _MAGIC, name, 8 * size)
        if blob is not None and len(blob) == 8 * size:
            numbers = np.frombuffer(blob, np.int64)
            if is_sound(numbers):
                return tuple(numbers.tolist())
    answer = tuple(find())
    if path is not None:
        with kept.attempt(os.path.dirname(path)):
            kept.write(path, _MAGIC, os.path.basename(path), np.array(answer, np.int64).tobytes())
            kept.make_room(os.path.dirname(path), MOST_BYTES)
    return answer


def _path(question: str) -> str | None:
    if not config.plan_cache():
        return None
    directory = kept.folder("plans", make=True)
    if directory is None:
        return None
    text = f"{planner()} {question}"
    return os.path.join(directory, f"{hashlib.sha256(text.encode()).hexdigest()}.finding")


@functools.cache
def planner() -> str:
    """Digest of the source of `memplan`."""
    digest, package = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
