"""Names of blocks and of their parameters: `with block.name_scope():` puts the block's prefix before those
of children.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from ...symbol.naming import NameManager, Prefix
from ..parameters.parameter_dict import ParameterDict

_current = threading.local()


class NameScope:
    """The scope of one block: it counts the children of each kind that are made inside.

    A block with an empty prefix has no scope of its own: its children are named by the one around it.
    """

    def __init__(self, block: Any, is_empty: bool) -> None:
        self._block = block
        self._is_empty = is_empty
        self._counts: dict[str, int] = {}
        self._outer: list[tuple[NameScope | None, Prefix]] = []

    def __enter__(self) -> Self:
        if not self._is_empty:
            names = Prefix(self._block.prefix)
            self._outer.append((getattr(_current, "scope", None), names))
            _current.scope = self
            names.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_empty:
            outer, names = self._outer.pop()
            names.__exit__(kind, error, trace)
            _current.scope = outer

    def next_prefix(self, hint: str) -> str:
        """The prefix of the next child of this kind, below the block's own."""
        count = self._counts.get(hint, 0)
        self._counts[hint] = count + 1
        return f"{hint}{count}_"

    @property
    def parameters(self) -> ParameterDict:
        """The block's own parameters."""
        found: ParameterDict = self._block.params
        return found


def named(prefix: str | None, params: ParameterDict | None, hint: str) -> tuple[str, ParameterDict]:
    """Prefix and parameters of a new block of this kind, in the scope that is open; `params` are shared
    ones.
    """
    scope: NameScope | None = getattr(_current, "scope", None)
    if scope is None:
        if prefix is None:
            prefix = NameManager.current.get(None, hint) + "_"
        own = ParameterDict(prefix) if params is None else ParameterDict(params.prefix, params)
        return prefix, own
    if prefix is None:
        prefix = scope.next_prefix(hint)
    if params is None:
        outer = scope.parameters
        own = ParameterDict(outer.prefix + prefix, outer.shared)
    else:
        own = ParameterDict(params.prefix, params)
    return scope._block.prefix + prefix, own
