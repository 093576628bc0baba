"""Attributes of nodes besides their parameters: `AttrScope`, and the keys with two spellings."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType

from ..core.errors import OpAttributeError
from ..core.wanted import wanted
from .scope import Scope

HIDDEN = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage")
"""Keys that users write plainly and that are stored as `__key__`."""


def stored_key(key: str) -> str:
    """`lr_mult` -> `__lr_mult__`; other keys are stored as they are."""
    return f"__{key}__" if key in HIDDEN else key


def is_annotation(key: str) -> bool:
    """True if an operator may carry `key` without having such a parameter."""
    return key in HIDDEN or (key.startswith("__") and key.endswith("__") and len(key) > 4)


def both_spellings(stored: Mapping[str, str]) -> dict[str, str]:
    """Attributes as a user sees them: hidden keys under `key` as well as `__key__`."""
    plain = {k: stored[f"__{k}__"] for k in HIDDEN if f"__{k}__" in stored}
    return {**stored, **plain}


class AttrScope(Scope):
    """Attributes for every variable and operator created inside a `with` block; inner scopes win.

    >>> with mx.AttrScope(ctx_group="stage1"):
    ...     fc = mx.sym.FullyConnected(data, num_hidden=10)

    Values are text. Raises OpAttributeError for others.
    """

    _local = threading.local()

    def __init__(self, **attributes: str) -> None:
        for key, value in attributes.items():
            require_text(key, value, "AttrScope")
        self._own = attributes
        self._all = dict(attributes)

    @property
    def _attr(self) -> dict[str, str]:
        """The attributes; private in MXNet, too, and read by programs all the same."""
        return self._all

    def get(self, attr: Mapping[str, str] | None) -> dict[str, str]:
        """The scope's attributes, those in `attr` first."""
        if attr is None:
            return dict(self._all)
        return {**self._all, **wanted("attr", attr, "a dict of text", Mapping)}

    def __enter__(self) -> AttrScope:
        self._all = {**type(self).current._all, **self._own}
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._all = dict(self._own)


def require_text(key: str, value: object, who: str) -> None:
    """Raise OpAttributeError unless `value` is a str."""
    if not isinstance(value, str):
        raise OpAttributeError(f"{who}: attribute {key!r} must be text, got {value!r}. Write {str(value)!r}.")
