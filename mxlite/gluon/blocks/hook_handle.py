"""HookHandle: what `register_forward_hook` returns, to detach the hook again."""

from __future__ import annotations

from itertools import count
from types import TracebackType
from typing import Any, Self

_numbers = count()


class HookHandle:
    """One hook among those of a block; at the end of a `with` block it is detached."""

    def __init__(self, hooks: dict[int, Any], hook: Any) -> None:
        self._hooks = hooks
        self._number = next(_numbers)
        hooks[self._number] = hook

    def detach(self) -> None:
        """Do not call the hook any more."""
        self._hooks.pop(self._number, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()
