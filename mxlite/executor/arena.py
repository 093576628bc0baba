"""The one block of memory that holds all temporaries of a program, and whose turn it is to use it."""

from __future__ import annotations

from typing import Any

from ..backends import Backend
from ..engine import Var


class Arena:
    """`nbytes` that are allocated when first used; several programs may take turns in it.

    `tail` are the tags that the program which had the arena last leaves behind: the next one waits for them.
    """

    def __init__(self, backend: Backend, nbytes: int) -> None:
        self.backend = backend
        self.nbytes = nbytes
        self.tail: tuple[Var, ...] = ()
        self.holder: object = None
        self._block: Any = None

    @property
    def block(self) -> Any:
        """The bytes, as a 1-D uint8 array."""
        if self._block is None:
            self._block = self.backend.empty(self.nbytes)
        return self._block

    @property
    def measured_bytes(self) -> int:
        """Bytes allocated by now."""
        return 0 if self._block is None else int(self._block.nbytes)
