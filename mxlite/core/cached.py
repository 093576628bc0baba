"""Caches without locks: attributes that are computed once, and the most recently computed values."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, overload, Self, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class cached_property(Generic[T]):
    """`functools.cached_property` without its lock.

    Python 3.11's version holds one lock per attribute of a class: while one thread computes the attribute for
    one object, no other thread can compute it for another, and in a child forked meanwhile the lock stays
    taken for ever. Here two threads that ask at the same time both compute, and both get the value that was
    stored first: computing it twice must do no harm.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> Self | T:
        if instance is None:
            return self
        # Python looks at the instance's own attributes first, so this runs only until the value is stored.
        value: T = instance.__dict__.setdefault(self.name, self.compute(instance))
        return value


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
