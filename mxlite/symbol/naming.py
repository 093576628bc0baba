"""Automatic names of nodes: `convolution0`, `convolution1`, ..."""

from __future__ import annotations

import threading

from .scope import Scope


class NameManager(Scope):
    """Counts unnamed operators, one counter for each hint; a `with` block makes it the current one.

    A new manager starts at 0 again. Subclasses override `get`.
    """

    _local = threading.local()

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}

    def get(self, name: str | None, hint: str) -> str:
        """`name` if the user gave one, else `hint` and the next number."""
        if name:
            return name
        count = self._counter.get(hint, 0)
        self._counter[hint] = count + 1
        return f"{hint}{count}"


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
