"""NCCL on emulated GPUs, strict: what NCCL would answer with a hang or with wrong bytes is an error here.

Groups of messages wait on the streams of emulated drivers, and move bytes once their turn has come on all
ranks. Each message tells what its sender believes: which group of the communicator it is, and of how many
elements of which type; the receiver compares that with its own call. It has the interface of CuPy's module
`cupy.cuda.nccl`.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from mxlite.backends.gpu.runtime.driver import DriverError
from tests.emulators.emulated_driver import EmulatedDriver, Later

ITEMSIZE = {0: 1, 1: 1, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8}  # of ncclDataType_t


class NcclError(RuntimeError):
    """As CuPy's: a RuntimeError with NCCL's name for it first."""


def refused(why: str) -> NcclError:
    return NcclError(f"NCCL_ERROR_INVALID_USAGE: {why}")


class Mailboxes:
    """The wires between emulated GPUs of one process; `drivers` go on in turn while one waits."""

    def __init__(self) -> None:
        self._boxes: dict[tuple[int, int], deque[Any]] = {}
        self.drivers: list[EmulatedDriver] = []

    def send(self, source: int, target: int, what: Any) -> None:
        self._boxes.setdefault((source, target), deque()).append(what)

    def take(self, source: int, target: int) -> Any:
        box = self._boxes.get((source, target))
        return box.popleft() if box else None

    def idle(self) -> bool:
        """Let the others go on; False if none can."""
        steps = [d._step() for d in self.drivers]
        return any(steps)


class MPIWires:
    """The wires between emulated GPUs of the processes of a job."""

    LIMIT_S = 60.0

    def __init__(self) -> None:
        from mpi4py import MPI

        self._world = MPI.COMM_WORLD.Dup()
        self._sent: list[Any] = []
        self._since = 0.0

    def send(self, source: int, target: int, what: Any) -> None:
        self._sent = [r for r in self._sent if not r.Test()]
        self._sent.append(self._world.isend(what, target))

    def take(self, source: int, target: int) -> Any:
        message = self._world.improbe(source)
        if message is not None:
            self._since = 0.0
        return None if message is None else message.recv()

    def idle(self) -> bool:
        """Wait a little; False if nothing has come for long."""
        self._since = self._since or time.monotonic()
        time.sleep(1e-4)
        return time.monotonic() - self._since < self.LIMIT_S


class Call(NamedTuple):
    """A send or a receive."""

    address: int
    nbytes: int
    kind: tuple[int, int]  # count and type
    peer: int


class EmulatedNccl:
    """The module of one rank, for its emulated GPU."""

    available = True
    NCCL_INT8, NCCL_UINT8, NCCL_FLOAT32 = 0, 1, 7

    def __init__(self, driver: EmulatedDriver, rank: int, wires: Any, version: int = 22803) -> None:
        self.driver, self.rank, self.wires, self.version = driver, rank, wires, version
        self.depth = 0
        self.calls: list[tuple[Communicator, str, Call, int]] = []
        self.groups = 0
        self.bytes_sent = 0
        driver.nccl_module, driver.idle = self, wires.idle

    def get_version(self) -> int:
        return self.version

    def get_unique_id(self) -> bytes:
        return bytes((i * 7 + id(self)) % 256 for i in range(128))

    def NcclCommunicator(self, ndev: int, commId: bytes, rank: int) -> Communicator:
        return Communicator(self, ndev, commId, rank)

    def groupStart(self) -> None:
        self.depth += 1

    def groupEnd(self) -> None:
        if not self.depth:
            raise refused("the end of a group that has not begun")
        self.depth -= 1
        if self.depth:
            return
        calls, self.calls = self.calls, []
        for comm, stream in dict.fromkeys((c, s) for c, _, _, s in calls):
            own = [(what, call) for c, what, call, s in calls if (c, s) == (comm, stream)]
            comm.leave(stream, [c for w, c in own if w == "send"], [c for w, c in own if w == "recv"])


class Communicator:
    """One rank's end of a communicator."""

    def __init__(self, nccl: EmulatedNccl, ndev: int, identity: bytes, rank: int) -> None:
        if type(identity) is not bytes or len(identity) != 128:
            raise TypeError("commId is 128 bytes")
        if not 0 <= rank < ndev or rank != nccl.rank:
            raise refused(f"rank {rank} of {ndev}, on rank {nccl.rank}")
        self.nccl, self.size, self.rank, self.identity = nccl, ndev, rank, identity
        self.is_gone = False
        self.begun = 0
        self.in_graphs = 0

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._note("send", sendbuf, count, datatype, peer, stream)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._note("recv", recvbuf, count, datatype, peer, stream)

    def destroy(self) -> None:
        if self.in_graphs:
            raise refused("graphs with messages of this communicator: it would wait for their end")
        self.is_gone = True

    def _note(self, what: str, address: int, count: int, datatype: int, peer: int, stream: int) -> None:
        if self.is_gone:
            raise refused("a communicator that was destroyed")
        if not self.nccl.depth:
            raise refused(f"a {what} outside of a group, which waits for its peer by itself")
        if datatype not in ITEMSIZE or count < 1:
            raise refused(f"{count} elements of type {datatype}")
        if not 0 <= peer < self.size or peer == self.rank:
            raise refused(f"rank {self.rank} and a peer {peer}, of {self.size}")
        if stream not in self.nccl.driver.streams:
            raise refused(f"{stream} is no stream of this device")
        call = Call(address, count * ITEMSIZE[datatype], (count, datatype), peer)
        self._require_memory(call)
        self.nccl.calls.append((self, what, call, stream))

    def _require_memory(self, call: Call) -> None:
        blocks = self.nccl.driver.memory_of.items()
        if not any(a <= call.address and call.address + call.nbytes <= a + b.nbytes for a, b in blocks):
            raise refused(f"{call.nbytes} bytes at {call.address:#x} are in no allocation")

    def leave(self, stream: int, sends: list[Call], receives: list[Call]) -> None:
        """Put a group on a stream."""
        driver = self.nccl.driver
        for i, r in enumerate(receives):
            for other in (*sends, *receives[:i]):
                if r.address < other.address + other.nbytes and other.address < r.address + r.nbytes:
                    raise refused("bytes that are received are sent or received otherwise in the same group")
        if driver.streams[stream].capture is not None:
            if not self.begun:
                raise refused("the first messages of a communicator in a capture: it would allocate")
            self.in_graphs += 1
        self.nccl.groups += 1
        driver._put(stream, "nccl", Later(lambda: self._begun(sends, receives)))

    def _begun(self, sends: list[Call], receives: list[Call]) -> Callable[[], bool]:
        nccl, me = self.nccl, self.rank
        number = self.begun
        self.begun += 1
        try:
            for call in (*sends, *receives):
                self._require_memory(call)
        except NcclError as error:
            return self._failed(str(error))
        head = self.identity, self.size, number
        missing = [q for q in range(self.size) if q != me]
        for q in missing:
            own = [c for c in sends if c.peer == q]
            wanted = [c.kind for c in receives if c.peer == q]
            data = [ctypes.string_at(c.address, c.nbytes) for c in own]
            nccl.bytes_sent += sum(map(len, data))
            nccl.wires.send(me, q, (head, [c.kind for c in own], wanted, data))

        def poll() -> bool:
            for q in list(missing):
                if (found := nccl.wires.take(q, me)) is None:
                    continue
                missing.remove(q)
                theirs, kinds, wanted, data = found
                into = [c for c in receives if c.peer == q]
                if theirs != head:
                    return self._failed(f"group {number} of rank {me} meets group {theirs[2]} of rank {q}")()
                if kinds != [c.kind for c in into]:
                    return self._failed(
                        f"rank {q} sends {kinds}, rank {me} receives {[c.kind for c in into]}"
                    )()
                if wanted != (sent := [c.kind for c in sends if c.peer == q]):
                    return self._failed(f"rank {me} sends {sent}, rank {q} receives {wanted}")()
                for call, part in zip(into, data):
                    ctypes.memmove(call.address, part, call.nbytes)
            return not missing

        return poll

    def _failed(self, why: str) -> Callable[[], bool]:
        self.nccl.driver.fault = DriverError(f"NCCL: {why}", name="cudaErrorLaunchFailure", is_lasting=True)
        return lambda: True
