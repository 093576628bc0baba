"""Frozen dataclasses that are built at their first use.

`dataclasses.dataclass` writes and compiles the methods of each class, which takes about a millisecond.
Operators declare hundreds of classes of parameters, of which a program needs a few: with `record` a process
that imports them all pays for those that it uses.

    @record
    class Attrs:
        axis: int = -1          # in every respect as with @dataclass(frozen=True)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, dataclass_transform, TypeVar

from .process import forks

_Class = TypeVar("_Class", bound=type)
_lock = forks.rlock()  # a class is made while its base is, too


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: _Class) -> _Class:
    """`cls`, which becomes a frozen dataclass at its first instance or the first look at its fields."""
    made = False
    before: dict[str, Any] | None = None  # the class's attributes before it was built

    def make() -> None:
        nonlocal made, before
        with _lock:
            if made:
                return
            if before is not None:  # an interrupt, or a fork, left it half built
                for name in [n for n in vars(cls) if n not in before and not n.startswith("__annot")]:
                    delattr(cls, name)
                for name, value in before.items():
                    if vars(cls)[name] is not value:
                        setattr(cls, name, value)
            before = dict(vars(cls))
            dataclass(frozen=True)(cls)
            made = True

    def new(kind: Any, *args: Any, **kwargs: Any) -> Any:
        if not made:
            make()
        return object.__new__(kind)

    cls.__new__ = new  # type: ignore[method-assign, assignment]
    cls.__dataclass_fields__ = _Unmade(make)  # type: ignore[attr-defined]
    return cls


class _Unmade:
    """A placeholder for the fields of a class that is not built yet."""

    def __init__(self, make: Callable[[], None]) -> None:
        self._make = make

    def __get__(self, instance: Any, owner: type) -> Any:
        self._make()
        return owner.__dataclass_fields__  # type: ignore[attr-defined]


def named_tuple(found: Any) -> Any:
    """`found` if it is a class made by NamedTuple, else None."""
    is_class = isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")
    return found if is_class else None
