"""Nested lists and tuples of arrays, as blocks take and return them: flat, and nested again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Form = Any
"""0 for one array, None for None, a tuple (kind, forms) for a list or tuple."""


def flat(values: Any) -> tuple[list[Any], Form]:
    """The arrays in order, and the form that `nested` needs to put them back."""
    found: list[Any] = []
    return found, _form(values, found)


def _form(value: Any, found: list[Any]) -> Form:
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return (type(value) is list, tuple(_form(v, found) for v in value))
    found.append(value)
    return 0


def nested(values: Iterable[Any], form: Form) -> Any:
    """What `flat` has flattened to these values."""
    return _nested(iter(values), form)


def _nested(values: Iterator[Any], form: Form) -> Any:
    if form is None:
        return None
    if form == 0:
        return next(values)
    is_list, forms = form
    made = [_nested(values, f) for f in forms]
    return made if is_list else tuple(made)
