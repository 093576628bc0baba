"""Lazy arrays: their elements are made when something first reads or writes them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ...core import Context
from ...core.process import forks
from ...engine import Var
from .storage import form_of, is_away, RawArray, Shape, Storage
from .transfer import push_fill


class Lazy:
    """The handle of a lazy array, its `away`, of this shape and dtype.

    make: gives the array its `storage`, and pushes what writes the elements. If it raises, the array stays
    lazy.
    """

    __slots__ = ("_array", "_lock", "_make", "dtype", "shape")
    is_computed = True

    def __init__(self, make: Callable[[Storage], None], array: Storage, shape: Shape, dtype: Any) -> None:
        self._array = weakref.ref(array)
        self._lock = forks.rlock()
        self._make = make
        self.shape, self.dtype = shape, dtype

    def back(self) -> RawArray:
        """Make the elements, if nothing has by now."""
        array = self._array()
        assert array is not None
        with self._lock:
            if is_away(array):
                self._make(array)
            with suppress(AttributeError):
                if array.away is self:
                    del array.away
        return array.storage

    @property
    def is_lost(self) -> bool:
        """True if the elements are gone: reading them raises, but they may be written as a whole."""
        return False

    def takes_backward(self) -> bool:
        """True if a backward pass from this array waits, as its forward pass does."""
        return False


Handle = Callable[[Storage, Shape, Any], Lazy]
"""Makes the handle of an array, of this shape and dtype."""


def lazy(like: type[Storage], shape: Shape, dtype: Any, ctx: Context, handle: Handle) -> Any:
    """A lazy array of class `like`."""
    array = like.__new__(like)
    array.context, array.var = ctx, Var()
    array.partial, array.origin = False, None
    array.away = handle(array, shape, dtype)
    return array


def become_lazy(array: Storage, handle: Handle) -> None:
    """Let the elements of an array be made anew."""
    shape, dtype = form_of(array)
    with suppress(AttributeError):
        del array.storage
    array.away = handle(array, shape, dtype)


def lazy_zeros(like: type[Storage], shape: Shape, dtype: Any, ctx: Context) -> Any:
    """A lazy array of zeros."""
    return lazy(like, shape, dtype, ctx, ZEROS)


def renew(array: Any) -> None:
    """Let elements that are gone be zeros, before they are written as a whole."""
    handle = getattr(array, "away", None)
    if isinstance(handle, Lazy) and handle.is_lost:
        become_lazy(array, ZEROS)


def make_zero(array: Any) -> None:
    """Set all elements to 0: of elements that are gone or already zeros, without memory."""
    handle = getattr(array, "away", None)
    if isinstance(handle, Lazy) and (handle.is_lost or type(handle) is Lazy):
        become_lazy(array, ZEROS)
    else:
        array[:] = 0


def fill_with_zeros(array: Storage) -> None:
    """Give a lazy array elements, all 0."""
    allocate(array)
    push_fill(array, 0, name="zeros")


def allocate(array: Storage) -> None:
    """Give a lazy array elements that hold garbage."""
    array.storage = array.backend.array(*form_of(array))


ZEROS: Handle = partial(Lazy, fill_with_zeros)
"""Makes the handle of an array of zeros."""
