"""The one block of memory that holds all temporaries of a program, and whose turn it is to use it."""

from __future__ import annotations

from typing import Any, Protocol
from weakref import WeakSet

from ..backends import Backend
from ..engine import get_engine, Var
from ..memplan import MemoryPlan

BROKEN_OFF = object()


class Tenant(Protocol):
    """Who keeps programs that lie in an arena."""

    @property
    def memory_plan(self) -> MemoryPlan:
        """Of the largest of them."""

    def leave(self) -> None:
        """Forget them: their block is no longer the arena's."""


class Arena:
    """`nbytes` that are allocated when first used; several programs may take turns in it.

    `tail` are the tags that the program which had the arena last leaves behind: the next one waits for them.
    `holder` is the program whose forward values lie there, None if nobody needs what does, `BROKEN_OFF` if a
    pass was interrupted.
    A program lies in the block there was when it was made. `resize` asks for another block, which comes
    when the next program is made; `generation` says whether one that exists is still up to date, `tenants`
    are told to drop what they have.
    `host_nbytes` more lie in host memory, for arrays that leave the device between forward and backward.
    """

    def __init__(self, backend: Backend, nbytes: int, host_nbytes: int = 0) -> None:
        self.backend = backend
        self.nbytes = nbytes
        self.host_nbytes = host_nbytes
        self.tail: tuple[Var, ...] = ()
        self.holder: object = None
        self.generation = 0
        self.tenants: WeakSet[Tenant] = WeakSet()
        self._block: Any = None
        self._host_block: Any = None
        self.guard_bytes = 0

    @property
    def is_used(self) -> bool:
        """Whether anything is allocated."""
        return self._block is not None

    def resize(self, nbytes: int, host_nbytes: int) -> None:
        """Be so large from the next program on; what is there stays until then."""
        if (nbytes, host_nbytes) != (self.nbytes, self.host_nbytes):
            self.nbytes, self.host_nbytes = nbytes, host_nbytes
            self.generation += 1

    def give_back(self) -> None:
        """Give back now what is not as large as it is to be, unless a backward pass waits for what lies
        there.
        """
        if not getattr(self.holder, "may_go_backward", False):
            self._exchange()

    def _exchange(self) -> None:
        """Give back what is not as large as it is to be, with all programs in it, so that the old and the
        new are never there at once. Waits for what still runs in it.
        """
        held = ((self._block, self.nbytes), (self._host_block, self.host_nbytes))
        if any(block is not None and block.nbytes != nbytes for block, nbytes in held):
            get_engine().rest()
            self.holder = self._block = self._host_block = None
            for tenant in list(self.tenants):  # in any order: each only forgets
                tenant.leave()

    @property
    def block(self) -> Any:
        """The bytes, as a 1-D uint8 array."""
        self._exchange()
        if self._block is None:
            self._block = self.backend.arena(self.nbytes)
        return self._block

    @property
    def host_block(self) -> Any:
        """The bytes in host memory, as a 1-D uint8 array."""
        self._exchange()
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
