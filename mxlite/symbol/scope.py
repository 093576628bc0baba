"""Classes whose instances hold inside a `with` block, in the thread that runs it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, ClassVar, Self


class _Scopes(type):
    """Classes with the property `current`. A class and its subclasses have one stack in each thread."""

    _local: threading.local

    def _stack(cls) -> list[Any]:
        """This thread's scopes, the innermost last; the first is an empty one of the class itself."""
        stack: list[Any] | None = getattr(cls._local, "stack", None)
        if stack is None:
            base = next(c for c in cls.__mro__ if "_local" in c.__dict__)
            stack = cls._local.stack = [base()]
        return stack

    @property
    def current(cls) -> Any:
        """The innermost `with` scope of this thread, else the thread's own."""
        return cls._stack()[-1]

    @current.setter
    def current(cls, scope: Any) -> None:
        """Set, as MXNet's older programs do, the scope of this thread, inside the present `with` block."""
        cls._stack()[-1] = scope


class Scope(metaclass=_Scopes):
    """Base of such a class, which has a `_local` of its own."""

    _local: ClassVar[threading.local]

    def __enter__(self) -> Self:
        type(self)._stack().append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        type(self)._stack().pop()
