"""Attributes that are computed when somebody first asks for them, and then stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, overload, Self, TypeVar

T = TypeVar("T")


class cached_property(Generic[T]):
    """As `functools.cached_property`, without a lock.

    That of Python 3.11 has one lock for each attribute of a class: while one thread computes it for one
    object nobody may for another, and in a child that was forked meanwhile nobody ever can. Here two threads
    that ask at the same time both compute, and both get what was there first: computing it twice must do no
    harm.
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
        # Python asks the instance's own attributes first: this is reached until it is there.
        found: T = instance.__dict__.setdefault(self.name, self.compute(instance))
        return found
