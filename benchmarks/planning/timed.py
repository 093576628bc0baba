"""Kernel calls of our columns, timed in the rounds in which these take turns.

What a machine does for others changes within minutes, and with it what a kernel takes. So a prediction that
is to be held against steps is made from times of the same rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any, Protocol

PASSES = 5  # turns of each call, spread over all rounds


class Asked(Protocol):
    """What can be asked to do what `TimedCalls` does: a process, or one's own."""

    def ask(self, *, do: str, **told: Any) -> Any: ...


class TimedBeside:
    """To be called before each round. A call that several columns make is timed in the first of them."""

    def __init__(self, workers: Mapping[str, Asked]) -> None:
        self._workers = workers
        self._keys: dict[str, list[str]] = {}
        self._found: dict[str, dict[str, list[float]]] = {}
        self._others: dict[str, float] = {}
        seen: set[str] = set()
        for name, worker in workers.items():
            own = [key for key in worker.ask(do="calls") if key not in seen]
            seen.update(own)
            if own:
                self._keys[name] = own

    def __call__(self, r: int, rounds: int) -> None:
        for name, keys in self._keys.items():
            for turn in turns_of(keys, r, rounds):
                reply = self._workers[name].ask(do="time_calls", keys=turn)
                self._found[name], self._others[name] = reply["seconds"], reply["others"]

    def predicted(self, name: str) -> float:
        """Seconds that a step of this column should have taken in these rounds."""
        result: float = self._workers[name].ask(do="priced", **self.found())
        return result

    def found(self) -> dict[str, Any]:
        """What `TimedCalls.priced` wants to be told."""
        seconds = {key: pair for found in self._found.values() for key, pair in found.items()}
        return {"seconds": seconds, "others": mean(self._others.values()) if self._others else 0.0}


def turns_of(keys: list[str], r: int, rounds: int) -> list[list[str]]:
    """Who has a turn before round `r`: PASSES times all keys, cut into `rounds` parts of one length; a key
    that has two turns is in two lists."""
    count = len(keys)
    low, high = (count * PASSES * n // rounds for n in (r, r + 1))
    parts = [keys[max(0, low - count * p) : max(0, min(count, high - count * p))] for p in range(PASSES)]
    return [part for part in parts if part]
