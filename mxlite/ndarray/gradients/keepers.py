"""Keepers: those who will still read an array as it is now, and get copies before its values are replaced.

An array on the tape is not written as a rule: a gradient that reads it would be wrong, and is refused. The
arrays of a network's parameters may be (`Parameter.set_data`): the recorded calls that have kept one, and
bound programs whose backward pass is still to come, keep the values that forward read.

    watch(array)                    its Var gets an empty set of keepers
    a recorded call keeps it        the step is one of them, as long as the tape has it
    keep_before_write(array)        each keeper takes copies; nothing is copied where there is none

Views share the Var of their base, and so its keepers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

from ..calls.invoke import note_view
from ..calls.plan import call_of
from ..memory.storage import RawArray, Storage
from .differentiate import scope
from .tape import Leaf, Origin

Copied = Callable[[RawArray, Origin | None], Any]
"""Gives a copy of bare memory of an array, on the tape behind a leaf if that is the origin given."""


class Keeper(Protocol):
    """Protocol of what reads an array later."""

    def preserve(self, array: Storage, copied: Copied) -> None:
        """Take copies of what it will read of `array`, which is about to be written."""


def watch(array: Storage) -> None:
    """Note from now on who keeps this array."""
    if array.var.keepers is None:
        array.var.keepers = weakref.WeakSet()


def keep(array: Storage, keeper: Keeper) -> None:
    """Let `keeper` be told before the values of a watched array are replaced, as long as it exists."""
    if array.var.keepers is not None:
        array.var.keepers.add(keeper)


def keep_before_write(array: Storage) -> None:
    """Let all keepers of an array have copies of what they will read of it."""
    copies: dict[int, Any] = {}

    def copied(raw: RawArray, origin: Origin | None = None) -> Any:
        if id(raw) not in copies:
            same: Any = type(array).adopt(raw, array.context)
            same.var = array.var
            with scope(recording=False):
                copies[id(raw)] = same.copy()
        copy = copies[id(raw)]
        if origin is None or not isinstance(origin[0], Leaf):
            return copy
        # As if the call had read a copy: the leaf's own entry in a graph is its value of now.
        copy.origin = origin
        noted = copy.alias(copy.storage)
        with scope(recording=True):
            note_view(call_of("identity", {}), copy, noted)
        copy.origin = None
        noted.origin[0].number = -1  # it comes before the call
        return noted

    for keeper in tuple(array.var.keepers or ()):
        keeper.preserve(array, copied)
