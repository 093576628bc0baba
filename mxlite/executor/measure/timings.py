"""Measured seconds of kernel calls, in memory and in the user's cache.

One file for each machine and set of libraries, `timings/<digest>.json` below `config.cache_dir()`:

    {"mxlite_timings": 7, "facts": ["processor=...", ...], "cache": [8388608, 4e9],
     "seconds": {"<digest of a call>": [0.00012, 0.0001, 0.00011], ...}}

Each call has three times: with its arrays out of the cache, with all of them there, and its mean
time in steps, 0 if none was run. The cache has its capacity in bytes, and the bytes that others touch
in a second.

The file contains only numbers, and one that is not exactly so, or that others may have written (see
core/disk/kept.py), is ignored. Without a writable directory there is no cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from ...backends import Backend
from ...core import config
from ...core.disk import kept
from ...core.process import forks

FOLDER = "timings"
VERSION = 7  # 1 had one time for each call, 2 those of sleeping threads, 3 those of half a warm cache, 4 the
# quickest of runs that found everything in the nearest cache, 5 none of calls in a step, 6 those of plans
# whose kernels were run one by one
MOST_CALLS = 20_000  # kept; the oldest are removed
MOST_BYTES = 4 * 2**20  # of a file: more than MOST_CALLS take
LONGEST_S = 1e6  # plausible for a call
MOST_CACHE = 2**40  # plausible bytes
MOST_RATE = 1e15  # plausible bytes in a second
STEEPEST = 0.75  # share of a call's time in a step that cache misses may cause


class Seconds(NamedTuple):
    """Seconds of a call: out of the cache, in it, and in steps; 0 if it was run in none."""

    cold: float
    warm: float
    usual: float = 0.0

    def in_steps(self, usual: float, lost: float, share: float) -> Seconds:
        """These times for a call that took `usual` seconds in steps with a share `lost` of its bytes lost.

        Its time in a step is known now; the cache matters `share` times as much as in isolation.
        """
        matters = share * (self.cold - self.warm)
        if lost:
            matters = min(matters, STEEPEST * usual / lost)
        warm = usual - matters * lost
        return Seconds(max(warm + matters, 0.0), max(warm, 0.0), usual)  # a file may have warm > cold


Cache = tuple[int, float]
"""Capacity in bytes, and bytes of it that others touch in a second."""
_KEY = re.compile("[0-9a-f]{64}")
_lock = forks.lock()
_made: dict[tuple[str, str | None], Timings] = {}


class Timings:
    """Seconds by call; `Timings.of(backend)` is the instance for this machine."""

    def __init__(self, facts: tuple[str, ...], path: str | None) -> None:
        self.facts, self.path = facts, path
        self.seconds, self.cache = self._read()

    @classmethod
    def of(cls, backend: Backend) -> Timings:
        """The timings of a backend's kernels on this machine."""
        facts = (f"backend={backend.name}", *backend.identity())
        name = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]
        root = config.cache_dir()
        path = None if root is None else os.path.join(root, FOLDER, f"{name}.json")
        with _lock:
            if (name, path) not in _made:
                _made[name, path] = cls(facts, path)
            return _made[name, path]

    def get(self, key: str) -> Seconds | None:
        """The times of a call; equal if there is no cache to tell them apart."""
        return self.seconds.get(key)

    def update(self, found: Mapping[str, Seconds], cache: Cache) -> None:
        """Store these, merged with what other processes have written meanwhile."""
        if not found and cache == self.cache:
            return
        with _lock:
            self.cache = cache
            merged = {**self._read()[0], **self.seconds}
            for key in found:
                merged.pop(key, None)
            merged.update(found)
            self.seconds = dict(list(merged.items())[-MOST_CALLS:])
            if self.path is not None:
                content = {"mxlite_timings": VERSION, "facts": self.facts}
                content |= {"cache": self.cache, "seconds": self.seconds}
                if kept.folder(FOLDER, make=True) is not None:
                    with kept.attempt(os.path.dirname(self.path)):
                        kept.leave(self.path, json.dumps(content).encode())

    def _read(self) -> tuple[dict[str, Seconds], Cache | None]:
        """Content of the file; nothing if it is malformed."""
        nothing: tuple[dict[str, Seconds], None] = ({}, None)
        if self.path is None:
            return nothing
        try:
            data = json.loads(kept.content(self.path, MOST_BYTES) or b"")
        except (ValueError, RecursionError):
            return nothing
        if not isinstance(data, dict) or data.get("mxlite_timings") != VERSION:
            return nothing
        if data.get("facts") != list(self.facts) or not isinstance(data.get("seconds"), dict):
            return nothing
        seconds = {k: Seconds(*s) for k, s in data["seconds"].items() if _KEY.fullmatch(k) and _are_times(s)}
        return seconds, _cache(data.get("cache"))


def _are_times(x: object) -> bool:
    """True if these are three plausible times."""
    if not isinstance(x, list) or len(x) != 3 or not all(isinstance(s, float) for s in x):
        return False
    return all(0 < s < LONGEST_S for s in x[:2]) and 0 <= x[2] < LONGEST_S


def _cache(x: object) -> Cache | None:
    """`x` if it is a plausible cache, else None."""
    if not isinstance(x, list) or len(x) != 2 or type(x[0]) is not int or type(x[1]) is not float:
        return None
    return (x[0], x[1]) if 0 <= x[0] < MOST_CACHE and 0 <= x[1] < MOST_RATE else None
