"""Measured seconds of kernel calls, in memory and in the user's cache.

One file for each machine and set of libraries, `timings/<digest>.json` below `config.cache_dir()`:

    {"mxlite_timings": 1, "facts": ["processor=...", ...], "seconds": {"<digest of a call>": 0.00012, ...}}

Nothing in it is more than a number, and a file that is not exactly so is as good as none: the worst that a
forged one does is a slow plan. A directory that cannot be written is no cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping

from ..backends import Backend
from ..core import config
from ..core.files import replacing

VERSION = 1
MOST_CALLS = 20_000  # kept; the oldest go
MOST_BYTES = 4 * 2**20  # of a file: more than MOST_CALLS take
LONGEST_S = 1e6  # of a call that can be believed
_KEY = re.compile("[0-9a-f]{64}")
_lock = threading.Lock()
_made: dict[tuple[str, str | None], Timings] = {}


class Timings:
    """Seconds by call; `Timings.of(backend)` is the one of this machine."""

    def __init__(self, facts: tuple[str, ...], path: str | None) -> None:
        self.facts, self.path = facts, path
        self.seconds = self._read()

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

    def get(self, key: str) -> float | None:
        return self.seconds.get(key)

    def update(self, found: Mapping[str, float]) -> None:
        """Keep these too, and what other processes have written meanwhile."""
        if not found:
            return
        with _lock:
            merged = {**self._read(), **self.seconds}
            for key in found:
                merged.pop(key, None)
            merged.update(found)
            self.seconds = dict(list(merged.items())[-MOST_CALLS:])
            if self.path is not None:
                with contextlib.suppress(OSError):
                    os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
                    with replacing(self.path, "w") as file:
                        content = {"mxlite_timings": VERSION, "facts": self.facts, "seconds": self.seconds}
                        json.dump(content, file)

    def _read(self) -> dict[str, float]:
        """What the file holds; nothing where it is not as it should be."""
        if self.path is None:
            return {}
        try:
            if os.path.getsize(self.path) > MOST_BYTES:
                return {}
            with open(self.path, encoding="utf-8") as file:
                data = json.load(file)
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(data, dict) or data.get("mxlite_timings") != VERSION:
            return {}
        if data.get("facts") != list(self.facts) or not isinstance(data.get("seconds"), dict):
            return {}
        return {
            k: s
            for k, s in data["seconds"].items()
            if _KEY.fullmatch(k) and isinstance(s, float) and 0 < s < LONGEST_S
        }
