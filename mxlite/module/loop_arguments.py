"""Arguments of `fit`, `score` and `predict`: data and callbacks, checked and as lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.wanted import wanted, wanted_function

Callbacks = Callable[..., Any] | list[Callable[..., Any]] | None


def as_list(value: Any) -> list[Any]:
    """A list or tuple as a list, None as the empty one, anything else as a list of one."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def call_all(callbacks: Callbacks, *args: Any) -> None:
    """Call each of them."""
    for callback in as_list(callbacks):
        callback(*args)


def check_data(name: str, value: Any) -> None:
    wanted(name, value, "a DataIter", has=("provide_data", "reset", "__iter__"))


def check_callbacks(name: str, value: Any) -> None:
    for callback in as_list(value):
        wanted_function(name, callback, "a function or a list of them")
