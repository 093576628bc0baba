"""Autotuning: which of several equivalent kernels is fastest on this GPU, measured once and kept on disk.

A choice is one small file in the user's cache, named by what was chosen for and on what (GPU, library
versions, shape, types). The file holds only a name, which must be one of the candidates: nothing else in
it is trusted. Without measurements the first candidate that runs is taken, so that results do not depend on
the clock.

Measuring takes time: cuDNN compiles a plan of a normalization for seconds. `MXLITE_GPU_TUNING_SECONDS` limits
it; later requests of the process get the first candidate that runs, and are left to
another process. Ranks of a job measure nothing, since all need the same kernels, and so take what a process
alone has measured before, or the first candidate.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ....core import config
from ....core.disk import kept
from ....core.errors import MXLiteError
from ....core.process import forks
from .device import Run

_log = logging.getLogger("mxlite")

MAGIC = b"mxlite GPU choice 1\n"
FOLDER = "gpu-choices"
MOST_FILE = 4096  # bytes
MOST_BYTES = 16 << 20  # of all files
NOTICEABLE = 0.97
"""Share of the first candidate's time below which another is taken: smaller differences are noise."""


class Timer(Protocol):
    """A device as a stopwatch."""

    def time(self, run: Run, repeats: int = 5) -> float:
        """Seconds of device time of one `run`."""


_known: dict[str, str] = {}
_spent = 0.0  # seconds, by measurements
_lock = forks.rlock()  # reentrant: a measurement may itself make a choice


def fastest(key: str, names: Sequence[str], seconds: Callable[[int], float]) -> int:
    """The index of the fastest of the candidates `names`, for the purpose `key`.

    seconds(i): a measurement of candidate i, infinite if it cannot be run; only called if neither this
    process nor an earlier one has chosen. When the time for measuring is used up: `first_that_runs`. The same
    answer for the same key as long as the process lives.
    """
    global _spent
    offer = {name: i for i, name in enumerate(names)}
    with _lock:
        name = _known.get(key) or _read(key)
        if name is None or name not in offer:
            limit = 0 if config.has_other_ranks() else config.gpu_tuning_seconds()
            if limit is not None and _spent >= limit:
                name = names[first_that_runs(names, seconds)]
            else:
                start = time.monotonic()
                name = names[_measured(names, seconds)]
                _spent += time.monotonic() - start
                _write(key, name)
        _known[key] = name
        return offer[name]


def first_that_runs(names: Sequence[str], seconds: Callable[[int], float]) -> int:
    """The index of the first of the candidates `names` that can be run, found by trial; 0 if none can."""
    for i, name in enumerate(names):
        if _time(name, seconds, i) < float("inf"):
            return i
    return 0


def chosen(key: str) -> str | None:
    """Name chosen for the purpose `key`, by this process or an earlier one; None if there is none yet."""
    with _lock:
        return _known.get(key) or _read(key)


def _measured(names: Sequence[str], seconds: Callable[[int], float]) -> int:
    times = [_time(name, seconds, i) for i, name in enumerate(names)]
    best = min(range(len(names)), key=times.__getitem__)
    return best if times[best] < times[0] * NOTICEABLE else 0


def _time(name: str, seconds: Callable[[int], float], i: int) -> float:
    """Seconds of candidate i, infinite if it fails."""
    try:
        return seconds(i)
    except MXLiteError as error:
        _log.warning("%s could not be run, and is not used where there is another way: %s", name, error)
        return float("inf")


def forget() -> None:
    """Forget the choices of this process and the time they took; those on disk stay."""
    global _spent
    with _lock:
        _known.clear()
        _spent = 0.0


def _path(key: str, make: bool) -> str | None:
    directory = kept.folder(FOLDER, make)
    if directory is None:
        return None
    return os.path.join(directory, hashlib.sha256(key.encode()).hexdigest()[:32])


def _read(key: str) -> str | None:
    path = _path(key, make=False)
    blob = kept.read(path, MAGIC, key, MOST_FILE) if path else None
    if blob is None:
        return None
    try:
        found = json.loads(blob)
    except ValueError:
        return None
    name = found.get("name") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


def _write(key: str, name: str) -> None:
    path = _path(key, make=True)
    if path is None:
        return
    with kept.attempt(os.path.dirname(path)):
        kept.write(path, MAGIC, key, json.dumps({"name": name}).encode())
        kept.make_room(os.path.dirname(path), MOST_BYTES)
