"""The arena, one block of memory for all temporaries of a program, which several may use in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from weakref import WeakSet

from ...backends import Backend
from ...engine import get_engine, Var
from ...memplan import MemoryPlan

BROKEN_OFF = object()


class Tenant(Protocol):
    """Owner of programs that lie in an arena."""

    @property
    def memory_plans(self) -> Sequence[MemoryPlan]:
        """The plan of the largest of them, on each device."""

    def leave(self) -> None:
        """Drop them: their block is no longer the arena's."""


class Arena:
    """`nbytes` that are allocated on first use; several programs may use it in turn.

    `tail` are the tags of the program that used the arena last: the next one waits for them.
    `holder` is the program whose forward values lie there, None if they are not needed, `BROKEN_OFF` if a
    pass was interrupted.
    A program lies in the block that existed when it was created. `resize` requests another block, which comes
    when the next program is created; `generation` tells if a program is still up to date, `tenants`
    are told to drop theirs.
    `host_nbytes` more lie in host memory, for arrays that leave the device between forward and backward.
    `lane` is the engine's device for the programs here, if they run on a CPU. `peers` are the arenas of the
    other devices of a program on several.
    """

    def __init__(self, backend: Backend, nbytes: int, host_nbytes: int = 0, lane: str = "cpu") -> None:
        self.backend = backend
        self.lane = lane
        self.nbytes = nbytes
        self.host_nbytes = host_nbytes
        self.tail: tuple[Var, ...] = ()
        self.holder: object = None
        self.generation = 0
        self.tenants: WeakSet[Tenant] = WeakSet()
        self._block: Any = None
        self._host_block: Any = None
        self.guard_bytes = 0
        self.peers: tuple[Arena, ...] = ()

    @property
    def of_devices(self) -> tuple[Arena, ...]:
        """This arena and those of the other devices."""
        return self, *self.peers

    @property
    def is_used(self) -> bool:
        """True if anything is allocated."""
        return self._block is not None

    def resize(self, nbytes: int, host_nbytes: int) -> None:
        """Set the size for the next program; the present block stays until then."""
        if (nbytes, host_nbytes) != (self.nbytes, self.host_nbytes):
            self.nbytes, self.host_nbytes = nbytes, host_nbytes
            self.generation += 1

    def give_back(self) -> None:
        """Free blocks of the wrong size now, unless a backward pass waits for their content."""
        if not getattr(self.holder, "may_go_backward", False):
            self._exchange()

    def _exchange(self) -> None:
        """Free blocks of the wrong size, with all programs in them, so that the old and the new block
        never exist together. Waits for running work.
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

        It is in addition to what is planned: `guard_bytes`.
        """
        self.guard_bytes += nbytes
        return self.backend.empty(nbytes)

    @property
    def measured_bytes(self) -> int:
        """Bytes allocated so far."""
        return 0 if self._block is None else int(self._block.nbytes)

    @property
    def measured_host_bytes(self) -> int:
        """Bytes of host memory allocated so far."""
        return 0 if self._host_block is None else int(self._host_block.nbytes)
