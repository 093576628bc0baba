"""The communicator: what a rank can ask of the library that carries messages.

A **rank** is one process of a job, numbered from 0. A communicator has `size` ranks; every rank makes the
same collective calls in the same order. A call starts an operation on arrays that lie where they are, in a
plan's arena or in an array of the user's, and returns a Request; the arrays belong to the operation until
the request is complete. Libraries make progress only while they are called, so whoever waits polls: `wait`
does.

    rank 0   [a0 a1 a2]        all_to_all        [a0 b0 c0]
    rank 1   [b0 b1 b2]       ----------->       [a1 b1 c1]
    rank 2   [c0 c1 c2]                          [a2 b2 c2]

All arrays are 1-D of uint8: an operation moves bytes and adds nothing. Sums are made in `ordered_sum.py`, of
`Collectives` alone: those of a device are calls for its stream (`backends/gpu/ranks/messages.py`).
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..core.errors import MXLiteError, StateError
from .adding import add_in_order

BURST = 32
"""Polls in a row: a library moves only a part of a message in each."""

EAGER_S = 5e-5
"""Seconds of polling without a pause at first: an operation among processes of one machine is often over by
then."""

PAUSE_S = 2e-4
"""Seconds between two bursts afterwards."""

PATIENCE_S = 1.0
"""Seconds, at least, for which an operation waits that a rank has begun before it ended."""


class Request(Protocol):
    """An operation under way."""

    def test(self) -> bool:
        """Make progress; True if the operation is complete."""


class Window(NamedTuple):
    """The room that sums take beside their arrays: `pieces` are on their way at a time, and where sums of 16
    bits are not added up in registers, they have a `wide` copy.
    """

    pieces: int
    wide: bool


HOST = Window(2, True)


class Collectives(ABC):
    """Messages among `size` ranks, of which this process is number `rank`, and the arithmetic of sums, on
    arrays of the place where the messages are.

    Counts and the parts of arrays are in bytes. `all_gather` works in place.
    """

    rank: int
    size: int
    library: str
    """Name and version of what carries the messages, for reports."""
    window: Window = HOST

    @abstractmethod
    def all_to_all(self, send: Any, sent: Sequence[int], receive: Any, received: Sequence[int]) -> Request:
        """Send part q of `send` to rank q, and place what rank q sends in part q of `receive`.

        `sent` and `received` are the bytes of the parts, which lie one after another.
        """

    @abstractmethod
    def all_gather(self, array: Any, parts: Sequence[int]) -> Request:
        """Give every rank all parts of `array`; rank q has part q before. `parts` are their bytes."""

    @abstractmethod
    def wait(self, *requests: Request) -> None:
        """Return when what comes next finds these complete."""

    def put(self, target: Any, value: Any) -> None:
        """Write a number, or an array of the same shape and type, to `target`."""
        target[...] = value

    def add_up(self, rows: Any, wide: Any = None) -> Any:
        """The sum of the rows of a matrix, in their order, in the first of them; of uint8, their union.

        wide: float32 scratch for a row of 16 bits, where the window has it.
        """
        first, *others = rows
        add_in_order(first, others, wide, np.bitwise_or if first.dtype == np.uint8 else np.add)
        return first


class Communicator(Collectives):
    """Collective operations on arrays of the host, which wait for ranks that are late and tell of those that
    are gone. `broadcast` works in place.
    """

    local_rank: int = 0
    """The number of this rank among those of its machine."""
    missing: str = ""
    """The rank that takes part no more, in words; empty if there is none."""
    step: int = 0
    """Steps of training that this rank has begun, for messages about failures."""
    begun: int = 0
    """Messages that this rank has begun: as many on all ranks at the same point of the program."""
    heard: tuple[int, int] = (0, 0)
    """Another rank, and the messages that it has begun, as it told last."""
    devices: tuple[Callable[[], object], ...] = ()
    """Functions that wait for the devices that exchange messages with other ranks; nobody polls for these."""

    @abstractmethod
    def broadcast(self, array: Any, root: int) -> Request:
        """Give every rank the bytes of `array` that rank `root` has."""

    @abstractmethod
    def barrier(self) -> Request:
        """Complete when every rank has called it."""

    @abstractmethod
    def meeting(self) -> Request:
        """A `barrier` beside all other operations, so that none of those of other ranks completes it."""

    @abstractmethod
    def abort(self, status: int) -> None:
        """End all processes of the job at once. Does not return."""

    def wait(self, *requests: Request) -> None:
        """Poll until all `requests` are complete. Raises MXLiteError if they cannot be: a rank is missing."""
        start = time.monotonic()
        for request in requests:
            while not any(request.test() for _ in range(BURST)):
                waited = time.monotonic() - start
                if waited > EAGER_S:
                    time.sleep(PAUSE_S)
                if self.missing and waited > PATIENCE_S:
                    raise MXLiteError(
                        f"{self.missing}, but rank {self.rank} still waits for it: all ranks need the same "
                        f"number of steps, and with them of batches."
                    )

    def meet(self, what: str) -> None:
        """Wait until all ranks call it, `what` in words; nothing that this rank has pushed is under way.

        Raises StateError if a rank has gone on with another message instead, and so will never call it.
        """
        request, since = self.meeting(), 0.0
        while not any(request.test() for _ in range(BURST)):
            time.sleep(PAUSE_S)
            rank, messages = self.heard
            if not self.missing and messages <= self.begun:
                continue
            since = since or time.monotonic()
            if time.monotonic() - since > PATIENCE_S:  # else it may have met this one, and gone on then
                gone = self.missing or f"rank {rank} has gone on without it"
                raise StateError(
                    f"{what}: all ranks call it, as each writes a part, but {gone} while rank {self.rank} "
                    f"waits. Call it on every rank, not behind `if rank == 0`."
                )


class _Complete:
    """A request of one rank, which has nothing to wait for."""

    def test(self) -> bool:
        return True


class Alone(Communicator):
    """The communicator of a process that has no others."""

    rank = 0
    size = 1
    library = "one process"

    def all_to_all(self, send: Any, sent: Sequence[int], receive: Any, received: Sequence[int]) -> Request:
        receive[: received[0]] = send[: sent[0]]
        return _Complete()

    def all_gather(self, array: Any, parts: Sequence[int]) -> Request:
        return _Complete()

    def broadcast(self, array: Any, root: int) -> Request:
        return _Complete()

    def barrier(self) -> Request:
        return _Complete()

    def meeting(self) -> Request:
        return _Complete()

    def abort(self, status: int) -> None:
        sys.exit(status)
