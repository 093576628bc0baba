"""Nested lists, as control flow takes and gives them: flattened with their form, and put back into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .errors import OpAttributeError

Form = Any
"""None for an item that stands alone, else the list of the forms of its members."""


def flatten(value: Any, is_item: Callable[[Any], bool], what: str) -> tuple[list[Any], Form]:
    """The items of nested lists and tuples in order, and their form. Raises OpAttributeError for others."""
    if is_item(value):
        return [value], None
    if not isinstance(value, (list, tuple)):
        raise OpAttributeError(
            f"{what} must be an array or symbol, or nested lists of them, got {type(value).__name__}."
        )
    items: list[Any] = []
    form = []
    for member in value:
        flat, inner = flatten(member, is_item, what)
        items += flat
        form.append(inner)
    return items, form


def restore(items: Iterator[Any], form: Form) -> Any:
    """The nested lists of that form, filled with the next `items`."""
    return next(items) if form is None else [restore(items, f) for f in form]


def pair(result: Any, what: str) -> tuple[Any, Any]:
    """The (outputs, states) that a body returned."""
    if not isinstance(result, (list, tuple)) or len(result) != 2:
        raise OpAttributeError(f"{what} must return a pair (outputs, states), got {describe(result)}.")
    return result[0], result[1]


def describe(value: Any) -> str:
    """A value in an error message."""
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__
