"""Automatic names of nodes: `convolution0`, `convolution1`, ..."""

from __future__ import annotations

import threading
from types import TracebackType

_local = threading.local()


class _Current(type):
    @property
    def current(cls) -> NameManager:
        """The innermost `with` manager of this thread, else the thread's own."""
        stack = getattr(_local, "stack", None)
        if stack is None:
            stack = _local.stack = [NameManager()]
        return stack[-1]

    @current.setter
    def current(cls, manager: NameManager) -> None:
        """Set, as MXNet's older programs do, the manager of this thread, inside the present `with` block."""
        stack = getattr(_local, "stack", None)
        if stack is None:
            _local.stack = [manager]
        else:
            stack[-1] = manager


class NameManager(metaclass=_Current):
    """Counts unnamed operators, one counter for each hint; a `with` block makes it the current one.

    A new manager starts at 0 again. Subclasses override `get`.
    """

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}

    def get(self, name: str | None, hint: str) -> str:
        """`name` if the user gave one, else `hint` and the next number."""
        if name:
            return name
        count = self._counter.get(hint, 0)
        self._counter[hint] = count + 1
        return f"{hint}{count}"

    def __enter__(self) -> NameManager:
        assert NameManager.current is not None  # the thread's own, at the bottom of the stack
        _local.stack.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _local.stack.pop()


class Prefix(NameManager):
    """Puts `prefix` before the names of operators, given or automatic; variables keep theirs.

    >>> with Prefix("net_"):
    ...     mx.sym.Flatten(mx.sym.Variable("data")).name
    'net_flatten0'
    """

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        return self._prefix + super().get(name, hint)
