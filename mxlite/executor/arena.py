"""The one block of memory that holds all temporaries of a program, and whose turn it is to use it."""

from __future__ import annotations

from typing import Any, Protocol
from weakref import WeakSet

from ..backends import Backend
from ..engine import get_engine, Var


class Tenant(Protocol):
    """Who keeps programs that lie in an arena."""

    def leave(self) -> None:
        """Forget them: their block is no longer the arena's."""


class Arena:
    """`nbytes` that are allocated when first used; several programs may take turns in it.

    `tail` are the tags that the program which had the arena last leaves behind: the next one waits for them.
    A program lies in the block there was when it was made. `resize` asks for another block, which comes
    when the next program is made; `generation` says whether one that exists is still up to date, `tenants`
    are told to drop what they have.
    """

    def __init__(self, backend: Backend, nbytes: int) -> None:
        self.backend = backend
        self.nbytes = nbytes
        self.tail: tuple[Var, ...] = ()
        self.holder: object = None
        self.generation = 0
        self.tenants: WeakSet[Tenant] = WeakSet()
        self._block: Any = None
        self.guard_bytes = 0

    @property
    def is_used(self) -> bool:
        """Whether anything is allocated."""
        return self._block is not None

    def resize(self, nbytes: int) -> None:
        """Be `nbytes` large from the next program on; what is there stays until then."""
        if nbytes != self.nbytes:
            self.nbytes = nbytes
            self.generation += 1

    @property
    def block(self) -> Any:
        """The bytes, as a 1-D uint8 array.

        A block of another size is given back first, with all programs in it, so that both are never there at
        once: this waits for what still runs in it.
        """
        if self._block is not None and self._block.nbytes != self.nbytes:
            get_engine().rest()
            self.holder = self._block = None
            for tenant in list(self.tenants):  # in any order: each only forgets
                tenant.leave()
        if self._block is None:
            self._block = self.backend.empty(self.nbytes)
        return self._block

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
