"""Checks of plain values from a file: schemas said as data, applied before anything is built from the values.

    POINT = fields({"name": text(), "at": row(whole(0, 9), real()), "more": optional(several(real()))})
    POINT(value, "The file's point")      # value, or FormatError: The file's point['at'][0] must be …, got …

A Kind is called with a value of JSON, and its name for errors. It returns the value unchanged, so that equal
files give equal bits. Files are untrusted: a number is neither nan nor too large for later computations, a
bool is no number, and no conversion is tried that would raise another error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from ..errors import FormatError
from ..wanted import found

Kind = Callable[[Any, str], Any]

MOST = 2**53
"""The largest count: floats represent all smaller ones exactly."""


def wrong(where: str, what: str, value: Any) -> NoReturn:
    """Raise the FormatError."""
    raise FormatError(f"{where} must be {what}, got {found(value)}.")


def whole(least: int = 0, most: int = MOST) -> Kind:
    """A whole number in [least, most]."""

    def check(value: Any, where: str) -> Any:
        if type(value) is not int or not least <= value <= most:
            wrong(where, f"a whole number from {least} to {most}", value)
        return value

    return check


def real(least: float = -math.inf, most: float = math.inf, below: float = math.inf) -> Kind:
    """A finite number in [least, most] and less than `below`; whole ones are numbers too."""
    what = "a finite number"
    if (least, most, below) != (-math.inf, math.inf, math.inf):
        what += f" of at least {least:g}" if least > -math.inf else ""
        what += f", at most {most:g}" if most < math.inf else ""
        what += f", less than {below:g}" if below < math.inf else ""

    def check(value: Any, where: str) -> Any:
        if (type(value) is int and abs(value) <= MOST) or (type(value) is float and math.isfinite(value)):
            if least <= value <= most and value < below:
                return value
        wrong(where, what, value)

    return check


def flag(value: Any, where: str) -> Any:
    """True or False."""
    return value if isinstance(value, bool) else wrong(where, "true or false", value)


def text(pattern: str = "", what: str = "text") -> Kind:
    """Text, all of which `pattern` matches if there is one."""
    compiled = re.compile(pattern) if pattern else None

    def check(value: Any, where: str) -> Any:
        if not isinstance(value, str) or (compiled is not None and not compiled.fullmatch(value)):
            wrong(where, what, value)
        return value

    return check


def array(kinds: str, ndim: int | None = None) -> Kind:
    """An array, numpy's or a file's, whose dtype is of one of these kinds (`numpy.dtype.kind`), with `ndim`
    axes if that is given."""
    what = f"an array of kind {kinds!r}" if ndim is None else f"an array of kind {kinds!r} with {ndim} axes"

    def check(value: Any, where: str) -> Any:
        if not isinstance(dtype := getattr(value, "dtype", None), np.dtype) or dtype.kind not in kinds:
            wrong(where, what, value)
        return value if ndim in (None, value.ndim) else wrong(where, what, value.shape)

    return check


def exactly(wanted: Any) -> Kind:
    """This value, of this type."""

    def check(value: Any, where: str) -> Any:
        return value if type(value) is type(wanted) and value == wanted else wrong(where, repr(wanted), value)

    return check


def optional(kind: Kind) -> Kind:
    """None, or that."""
    return lambda value, where: None if value is None else kind(value, where)


def several(kind: Kind, most: int | None = None) -> Kind:
    """A list of them, of at most so many."""

    def check(value: Any, where: str) -> Any:
        if not isinstance(value, list) or (most is not None and len(value) > most):
            wrong(where, "a list" if most is None else f"a list of at most {most}", value)
        for i, v in enumerate(value):
            kind(v, f"{where}[{i}]")
        return value

    return check


def row(*kinds: Kind) -> Kind:
    """A list of exactly these."""

    def check(value: Any, where: str) -> Any:
        if not isinstance(value, list) or len(value) != len(kinds):
            wrong(where, f"a list of {len(kinds)}", value)
        for i, (v, kind) in enumerate(zip(value, kinds)):
            kind(v, f"{where}[{i}]")
        return value

    return check


def named(kind: Kind) -> Kind:
    """A dict of them by name."""

    def check(value: Any, where: str) -> Any:
        if not isinstance(value, Mapping):
            wrong(where, "a dict", value)
        for name, v in value.items():
            kind(v, f"{where}[{name!r:.60}]")
        return value

    return check


def fields(needed: Mapping[str, Kind], other: Mapping[str, Kind] | None = None) -> Kind:
    """A dict with these fields, perhaps some of the `other` ones, and no more."""
    known = {**needed, **(other or {})}

    def check(value: Any, where: str) -> Any:
        if not isinstance(value, Mapping):
            wrong(where, f"a dict of {', '.join(sorted(needed))}", value)
        if odd := sorted((set(needed) - set(value)) | (set(value) - set(known)), key=str):
            raise FormatError(
                f"{where} must have the fields {', '.join(sorted(needed))}; {odd[0]!r:.60} is "
                f"{'missing' if odd[0] in needed else 'unknown'}."
            )
        for name, v in value.items():
            known[name](v, f"{where}[{name!r:.60}]")
        return value

    return check


def anything(value: Any, where: str) -> Any:
    """Any value; another function checks it."""
    return value


def key(value: Any, where: str) -> Any:
    """A whole number or text, used as a number or name of a thing."""
    if isinstance(value, str) or (type(value) is int and abs(value) <= MOST):
        return value
    wrong(where, "a number or a name", value)
