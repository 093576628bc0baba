"""Which of several ways to compute the same is fastest on this GPU: measured once, kept on disk.

A choice is one small file in the user's cache, named by what was chosen for and on what (GPU, library
versions, shape, types). What a file says is only a name, which must be one of those on offer: nothing else of
it is believed. Without measurements the first way that runs is taken, so that results do not depend on the
clock.

To measure takes time: cuDNN compiles a plan of a normalization for seconds. `MXLITE_GPU_TUNING_SECONDS` is a
limit; what is asked for later gets the first way that runs as long as the process lives, and is left to
another one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ...core import config, forks, kept
from ...core.errors import MXLiteError
from .device import Run

_log = logging.getLogger("mxlite")

MAGIC = b"mxlite GPU choice 1\n"
FOLDER = "gpu-choices"
MOST_FILE = 4096  # bytes
MOST_BYTES = 16 << 20  # of all files
NOTICEABLE = 0.97
"""Of the time of the first way, below which another is taken: what differs less is noise."""


class Timer(Protocol):
    """What a device measures with."""

    def time(self, run: Run, repeats: int = 5) -> float:
        """Seconds of device time of one `run`."""


_known: dict[str, str] = {}
_spent = 0.0  # seconds, by measurements
_lock = forks.rlock()  # what is measured may have a choice to make itself


def fastest(key: str, names: Sequence[str], seconds: Callable[[int], float]) -> int:
    """The index of the fastest of the ways `names`, for the purpose `key`.

    seconds(i): a measurement of way i, infinite where it cannot be run; only called where neither this
    process nor an earlier one has chosen. Where the time for measuring is over: `first_that_runs`. The same
    answer for the same key as long as the process lives.
    """
    global _spent
    offer = {name: i for i, name in enumerate(names)}
    with _lock:
        name = _known.get(key) or _read(key)
        if name is None or name not in offer:
            limit = config.gpu_tuning_seconds()
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
    """The index of the first of the ways `names` that can be run, which is tried; 0 where none can."""
    for i, name in enumerate(names):
        if _time(name, seconds, i) < float("inf"):
            return i
    return 0


def chosen(key: str) -> str | None:
    """What was chosen for the purpose `key`, by this process or an earlier one; None: nothing yet."""
    with _lock:
        return _known.get(key) or _read(key)


def _measured(names: Sequence[str], seconds: Callable[[int], float]) -> int:
    times = [_time(name, seconds, i) for i, name in enumerate(names)]
    best = min(range(len(names)), key=times.__getitem__)
    return best if times[best] < times[0] * NOTICEABLE else 0


def _time(name: str, seconds: Callable[[int], float], i: int) -> float:
    """Seconds of way i, infinite where it fails."""
    try:
        return seconds(i)
    except MXLiteError as error:
        _log.warning("%s could not be run, and is not used where there is another way: %s", name, error)
        return float("inf")


def forget() -> None:
    """Choices of this process are gone, and the time they took; those on disk stay."""
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
