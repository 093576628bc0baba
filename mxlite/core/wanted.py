"""Checks of a function's arguments, with one wording for all of them.

Module.fit: train_data must be a DataIter, got None.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Sequence
from typing import Any

from .errors import ArgumentError, RangeError

LONGEST = 199  # bits of a number of 60 digits


def wanted(name: str, value: Any, what: str, *kinds: type, has: Sequence[str] = ()) -> Any:
    """`value`, if it is of one of these kinds, or has all of these attributes. Raises ArgumentError."""
    if (kinds and isinstance(value, kinds)) or (has and all(hasattr(value, h) for h in has)):
        return value
    raise ArgumentError(f"{name} must be {what}, got {found(value)}.")


def wanted_function(name: str, value: Any, what: str = "a function") -> Any:
    """`value`, if it can be called."""
    return wanted(name, value, what, has=("__call__",))


def wanted_path(name: str, value: Any) -> str:
    """`value` as text, if it names a file."""
    path: str = os.fspath(wanted(name, value, "the name of a file", str, os.PathLike))
    return path


def wanted_names(name: str, value: Any) -> list[str]:
    """`value` as a list, if it is a list of names; None is one of none."""
    if value is None:
        return []
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise ArgumentError(f"{name} must be a list of names, got {found(value)}.")
    names = list(value)
    if bad := [n for n in names if not isinstance(n, str)]:
        raise ArgumentError(f"{name} must be a list of names, got {found(bad[0])} in it.")
    return names


def whole(name: str, value: Any, least: int, unit: str = "") -> int:
    """`value` as an int of at least `least`; the error names the parameter."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if isinstance(value, bool) or number is None:
        raise ArgumentError(f"{name} must be a whole number{unit and f' of {unit}'}, got {found(value)}.")
    if number < least:
        raise RangeError(f"{name} must be at least {least}, got {number}.")
    return number


def number(name: str, value: Any) -> float:
    """`value` as a finite float; the error names the parameter."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name} must be a number, got {found(value)}.") from None
    if not math.isfinite(result):
        raise RangeError(f"{name} must be finite, got {value!r}.")
    return result


def found(value: Any) -> str:
    """`value` as an error shows it: itself if it is short and plain, else its type."""
    if isinstance(value, int) and value.bit_length() > LONGEST:
        return f"a whole number of {value.bit_length()} bits"  # Python writes none of thousands of digits
    if value is None or isinstance(value, (bool, int, float, str)):
        return f"{value!r:.60}"
    text = repr(value) if isinstance(value, (list, tuple, dict)) else ""
    return text if 0 < len(text) <= 60 and "<" not in text else type(value).__name__
