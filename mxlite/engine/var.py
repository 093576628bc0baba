"""Var: the tag that operations name when they say what they read and what they write."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from .failure import Failure
    from .operation import Operation


class Var:
    """A name for anything whose order of use matters: an array, a random stream, a workspace, a file.

    `version` counts finished writes, failed and skipped ones included, and `pushes` counts requested ones:
    comparing it with a noted value tells if a write was pushed since. `name` is for people.

    The other fields belong to the engine. `failure` is why the value is poisoned, or None. While
    operations are pending, `writer` is the latest that writes this Var and `readers` are those that read
    what it writes (what was there before, if there is no writer). So the whole queue of a Var is two
    fields, because the operations themselves remember who follows them:

        pushes     w1  r2  r3  w4  r5          w1 <- r2, r3 <- w4 <- r5     (<- : must be over before)
        then       writer = w4, readers = {r5}

    One Var belongs to one engine at a time; it may move to another when nothing is pending on it.

    `fence` belongs to the device of the Var's data: the position that the device must reach until it is done
    with the operations that are over for the engine. 0: it is done.

    `keepers` belongs to the tape: those who will still read the data as it is now, see
    `ndarray/gradients/keepers.py`. None: nobody asks for them.
    """

    __slots__ = (
        "__weakref__", "failure", "fence", "keepers", "name", "pushes", "readers", "version", "writer"
    )  # fmt: skip

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.version = 0
        self.pushes = 0
        self.fence = 0
        self.failure: Failure | None = None
        self.writer: Operation | None = None
        self.readers: set[Operation] | None = None
        self.keepers: Any = None

    def __repr__(self) -> str:
        return f"Var({self.name!r}, version={self.version})"
