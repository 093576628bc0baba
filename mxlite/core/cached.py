"""Attributes that are computed at their first use and then stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, overload, Self, TypeVar

T = TypeVar("T")


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
