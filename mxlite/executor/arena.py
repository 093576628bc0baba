"""The one block of memory that holds all temporaries of a program, and whose turn it is to use it."""

from __future__ import annotations

from typing import Any

from ..backends import Backend
from ..engine import Var


class Arena:
    """`nbytes` that are allocated when first used; several programs may take turns in it.

    `tail` are the tags that the program which had the arena last leaves behind: the next one waits for them.
    `host_nbytes` more lie in host memory, for arrays that leave the device between forward and backward.
    """

    def __init__(self, backend: Backend, nbytes: int, host_nbytes: int = 0) -> None:
        self.backend = backend
        self.nbytes = nbytes
        self.host_nbytes = host_nbytes
        self.tail: tuple[Var, ...] = ()
        self.holder: object = None
        self._block: Any = None
        self._host_block: Any = None
        self.guard_bytes = 0

    @property
    def block(self) -> Any:
        """The bytes, as a 1-D uint8 array."""
        if self._block is None:
            self._block = self.backend.empty(self.nbytes)
        return self._block

    @property
    def host_block(self) -> Any:
        """The bytes in host memory, as a 1-D uint8 array."""
        if self._host_block is None:
            self._host_block = self.backend.host_empty(self.host_nbytes)
        return self._host_block

    def guarded(self, nbytes: int) -> Any:
        """A block for a program with guard bytes, which runs there instead; see `guard.py`.

        It comes on top of what is planned: `guard_bytes`.
        """
        self.guard_bytes += nbytes
        return self.backend.empty(nbytes)

    @property
    def measured_bytes(self) -> int:
        """Bytes allocated by now."""
        return 0 if self._block is None else int(self._block.nbytes)

    @property
    def measured_host_bytes(self) -> int:
        """Bytes of host memory allocated by now."""
        return 0 if self._host_block is None else int(self._host_block.nbytes)
