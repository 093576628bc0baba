"""A small cache of the most recently computed values."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """The last `size` values, by key; the oldest is dropped first. Any thread may ask at any time.

    There is no lock, so nobody waits and no forked child finds one taken: the values are held in a tuple that
    is never changed, only replaced. Two threads that miss the same key both compute it, and if two add
    at once, one of the values may be lost. So a value must be the same whoever computes it.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._held: tuple[tuple[K, V], ...] = ()

    def get(self, key: K) -> V | None:
        """The value of `key`, if it is remembered."""
        return next((value for k, value in self._held if k == key), None)

    def put(self, key: K, value: V) -> None:
        """Remember it, as the newest."""
        self._held = (*(pair for pair in self._held if pair[0] != key), (key, value))[-self.size :]

    def of(self, key: K, make: Callable[[], V]) -> V:
        """The value of `key`; `make()` if it is not remembered."""
        for k, value in self._held:
            if k == key:
                return value
        made = make()
        self.put(key, made)
        return made

    def clear(self) -> None:
        self._held = ()

    def __len__(self) -> int:
        return len(self._held)
