"""Measured seconds of kernel calls, in memory and in the user's cache.

One file for each machine and set of libraries, `timings/<digest>.json` below `config.cache_dir()`:

    {"mxlite_timings": 3, "facts": ["processor=...", ...], "cache_bytes": 8388608,
     "seconds": {"<digest of a call>": [0.00012, 0.0001], ...}}

Of each call there are two times: with what it touches out of the cache, and with all of it there.

Nothing in it is more than a number, and a file that is not exactly so is as good as none: the worst that a
forged one does is a slow plan. A directory that cannot be written is no cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping

from ..backends import Backend
from ..core import config, kept
from ..core.files import replacing

VERSION = 3  # 1 had one time for each call, 2 those of sleeping threads
MOST_CALLS = 20_000  # kept; the oldest go
MOST_BYTES = 4 * 2**20  # of a file: more than MOST_CALLS take
LONGEST_S = 1e6  # of a call that can be believed
MOST_CACHE = 2**40  # bytes that can be believed
Seconds = tuple[float, float]
_KEY = re.compile("[0-9a-f]{64}")
_lock = threading.Lock()
_made: dict[tuple[str, str | None], Timings] = {}


class Timings:
    """Seconds by call; `Timings.of(backend)` is the one of this machine."""

    def __init__(self, facts: tuple[str, ...], path: str | None) -> None:
        self.facts, self.path = facts, path
        self.seconds, self.cache_bytes = self._read()

    @classmethod
    def of(cls, backend: Backend) -> Timings:
        """The timings of a backend's kernels on this machine."""
        facts = (f"backend={backend.name}", *backend.identity())
        name = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]
        root = config.cache_dir()
        path = None if root is None else os.path.join(root, "timings", f"{name}.json")
        with _lock:
            if (name, path) not in _made:
                _made[name, path] = cls(facts, path)
            return _made[name, path]

    def get(self, key: str) -> Seconds | None:
        """(cold, warm) seconds of a call; equal where there is no cache to tell them apart."""
        return self.seconds.get(key)

    def update(self, found: Mapping[str, Seconds], cache_bytes: int) -> None:
        """Keep these too, and what other processes have written meanwhile. `cache_bytes` -1: not measured."""
        if not found and cache_bytes == self.cache_bytes:
            return
        with _lock:
            self.cache_bytes = cache_bytes
            merged = {**self._read()[0], **self.seconds}
            for key in found:
                merged.pop(key, None)
            merged.update(found)
            self.seconds = dict(list(merged.items())[-MOST_CALLS:])
            if self.path is not None:
                with kept.attempt(os.path.dirname(self.path)):
                    os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
                    with replacing(self.path, "w") as file:
                        content = {"mxlite_timings": VERSION, "facts": self.facts}
                        content |= {"cache_bytes": self.cache_bytes, "seconds": self.seconds}
                        json.dump(content, file)

    def _read(self) -> tuple[dict[str, Seconds], int]:
        """What the file holds; nothing where it is not as it should be."""
        nothing: tuple[dict[str, Seconds], int] = ({}, -1)
        if self.path is None:
            return nothing
        try:
            if os.path.getsize(self.path) > MOST_BYTES:
                return nothing
            with open(self.path, encoding="utf-8") as file:
                data = json.load(file)
        except (OSError, ValueError, RecursionError):
            return nothing
        if not isinstance(data, dict) or data.get("mxlite_timings") != VERSION:
            return nothing
        if data.get("facts") != list(self.facts) or not isinstance(data.get("seconds"), dict):
            return nothing
        cache = data.get("cache_bytes")
        cache = cache if type(cache) is int and -1 <= cache < MOST_CACHE else -1
        return {
            k: (s[0], s[1]) for k, s in data["seconds"].items() if _KEY.fullmatch(k) and _is_pair(s)
        }, cache


def _is_pair(x: object) -> bool:
    """Whether these are two times that can be believed."""
    return isinstance(x, list) and len(x) == 2 and all(isinstance(s, float) and 0 < s < LONGEST_S for s in x)
