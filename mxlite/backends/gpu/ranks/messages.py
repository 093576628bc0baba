"""Messages between GPUs as calls for a stream: what the collectives of `comm` are on a device.

The sums of `comm/ordered_sum.py` are written for a communicator that is told of one message after the other.
Here it takes them down once, when a program is built, as launches and groups of messages, which then run on a
stream in that order, or in a graph:

    told        scatter 0   scatter 1   wait 0    sum 0   gather 0   wait 1   sum 1   gather 1   end
    on a stream                         [s0 s1]   sum 0                       sum 1              [g0 g1]

A message leaves when somebody waits for it, together with all that were told by then. No earlier is needed,
and nothing has changed what it carries: its arrays are its own from when it is told. So there are few groups
of large messages, each of a window of 16 pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from ....comm import Collectives, Request, Window
from ....core.errors import DeviceError
from ..handwritten.dense_casts import cast_all
from ..handwritten.elements import fill
from ..handwritten.ordered_sum import ordered_sum
from ..runtime.device import one_after_other, Run
from ..vendor.nccl import Message, Peers

WINDOW = Window(16, False)


class Messages(Collectives):
    """The collectives of the ranks' GPUs, taken down; `device` has been joined with those of the others."""

    window = WINDOW

    def __init__(self, device: Any) -> None:
        peers = device.peers
        if peers is None:
            raise DeviceError(f"{device} has not been joined with the GPUs of other ranks.")
        self._device, self._peers = device, peers
        self.rank, self.size, self.library = peers.rank, peers.size, peers.library
        self._runs: list[Run] = []
        self._copies: list[tuple[Any, Any]] = []  # not yet launched
        self._group = MessageGroup(device, peers)

    def run(self) -> Run:
        """The call that does all that was told."""
        self._leave()
        self._launch_copies()
        return one_after_other(self._runs)

    def then(self, run: Run) -> None:
        """Do `run` behind what was told."""
        self._launch_copies()
        self._runs.append(run)

    def all_to_all(self, send: Any, sent: Sequence[int], receive: Any, received: Sequence[int]) -> Request:
        group, me = self._group, self.rank
        for q, (a, b) in enumerate(zip(_parts(send, sent), _parts(receive, received))):
            if q == me:
                group.own.append((b, a))
            else:
                group.send(a, q)
                group.receive(b, q)
        return group

    def all_gather(self, array: Any, parts: Sequence[int]) -> Request:
        group, listed = self._group, _parts(array, parts)
        for q, part in enumerate(listed):
            if q != self.rank:
                group.send(listed[self.rank], q)
                group.receive(part, q)
        return group

    def wait(self, *requests: Request) -> None:
        if any(request is self._group for request in requests):
            self._leave()

    def put(self, target: Any, value: Any) -> None:
        if not hasattr(value, "dtype"):
            self.then(fill(self._device, target, value))
        elif target.size and target.address != value.address:
            self._copies.append((target, value))

    def add_up(self, rows: Any, wide: Any = None) -> Any:
        self.then(ordered_sum(self._device, rows))
        return rows[0]

    def _leave(self) -> None:
        """Let the messages leave that were told so far."""
        group, self._group = self._group, MessageGroup(self._device, self._peers)
        if group.own:
            self.then(cast_all(self._device, group.own))
        if group.sends or group.receives:
            self.then(group)

    def _launch_copies(self) -> None:
        copies, self._copies = self._copies, []
        if copies:
            self._runs.append(cast_all(self._device, copies))


class MessageGroup:
    """Messages that leave together; a call puts them on the current stream. `own` stays here: (to, from)."""

    __slots__ = ("_device", "_peers", "own", "receives", "sends")

    def __init__(self, device: Any, peers: Peers) -> None:
        self._device, self._peers = device, peers
        self.sends: list[Message] = []
        self.receives: list[Message] = []
        self.own: list[tuple[Any, Any]] = []

    def send(self, array: Any, peer: int) -> None:
        if array.size:
            self.sends.append(Message(self._device.address(array), array.nbytes, peer))

    def receive(self, array: Any, peer: int) -> None:
        if array.size:
            self.receives.append(Message(self._device.address(array), array.nbytes, peer))

    def test(self) -> bool:
        """True: what comes behind it on its stream finds it complete."""
        return True

    def __call__(self) -> None:
        self._peers.exchange(self.sends, self.receives, self._device.stream)


def _parts(array: Any, nbytes: Sequence[int]) -> list[Any]:
    """The parts of an array, which lie one after another."""
    ends = list(accumulate(nbytes))
    return [array[end - n : end] for n, end in zip(nbytes, ends)]
