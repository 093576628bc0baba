"""The meaning of 0 in a shape that a user writes: an axis of unknown length, or an axis without elements.

MXNet's programs say `shape=(0, 3)` for an unknown axis. Inside `with np_shape():` an unknown axis is -1 and 0
is a size like others. Arrays that exist already mean what they say in either mode.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from operator import index
from typing import Any

from ..errors import ShapeError

UNKNOWN = -1
"""The length of an unknown axis, inside mxlite."""

_local = threading.local()


def is_np_shape() -> bool:
    """True if 0 in a shape is a size, in this thread."""
    return getattr(_local, "active", False)


def set_np_shape(active: bool) -> bool:
    """Set if 0 in a shape is a size; returns the previous setting."""
    before = is_np_shape()
    _local.active = bool(active)
    return before


@contextmanager
def np_shape(active: bool = True) -> Iterator[None]:
    """`with mx.util.np_shape():` 0 in a shape is a size, and -1 an unknown one."""
    before = set_np_shape(active)
    try:
        yield
    finally:
        set_np_shape(before)


def use_np_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: run `function` inside `np_shape()`."""

    @wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with np_shape():
            return function(*args, **kwargs)

    return inside


def from_user(shape: Iterable[int], name: str = "") -> tuple[int, ...]:
    """A shape as written by a user, with UNKNOWN for its open axes; `name` is its owner, for errors."""
    zero = 0 if is_np_shape() else UNKNOWN
    try:
        return tuple(UNKNOWN if d < 0 else d or zero for d in map(index, shape))
    except TypeError:
        what = f"The shape of {name!r}" if name else "A shape"
        raise ShapeError(f"{what} is a tuple of whole numbers, got {str(shape)[:80]!r}.") from None


def to_user(shape: Iterable[int]) -> tuple[int, ...]:
    """A shape with open axes as a user reads it."""
    unknown = -1 if is_np_shape() else 0
    return tuple(unknown if d < 0 else d for d in shape)
