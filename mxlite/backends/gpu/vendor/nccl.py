"""NCCL through CuPy's bindings: messages between the GPUs of a job, put on a stream.

Read against CuPy 14.2 (`cupy_backends/cuda/libs/nccl.pyx`) and NCCL's user guide ("Point-to-point
communication", "Group Calls", "Using NCCL with CUDA Graphs"):

- A rank's calls are matched with those of its peers by their order alone, so all ranks put the same groups on
  their streams in one order. What is sent and received in one group may go in any order, and so cannot wait
  for itself; a call outside of a group could.
- A group is captured as any launch is. What NCCL allocates, it allocates at the first message between two
  ranks, which is before any capture here: a program runs once without a graph.
- A communicator that is destroyed waits for all graphs with its messages, so it is never destroyed: it ends
  with the process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from ....core.errors import DeviceError
from ..runtime.driver import DriverError

ID_BYTES = 128
OLDEST = 21100  # 2.11: captured messages to ranks of other machines


def bindings() -> Any:
    """CuPy's module of NCCL. Raises DeviceError if CuPy finds no library of it."""
    try:
        from cupy.cuda import nccl
    except ImportError as error:
        raise DeviceError(f"Messages between GPUs need CuPy, which does not load here ({error}).") from None
    if not nccl.available:
        raise DeviceError(
            "Messages between GPUs need NCCL, and CuPy finds no libnccl.so.2 here. On Linux: pip install "
            "nvidia-nccl-cu13 for a driver of CUDA 13, nvidia-nccl-cu12 for one of CUDA 12."
        )
    return nccl


def in_words(version: int) -> str:
    """NCCL's version numbers in dotted form: 22803 is 2.28.3."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


class Message(NamedTuple):
    """`nbytes` at `address` that go to rank `peer`, or come from it."""

    address: int
    nbytes: int
    peer: int


class Peers:
    """The GPUs of all ranks, this one number `rank` of `size`. The device is current when it is made, which
    all ranks do at once, with the `identity` that rank 0 has from `new_identity`.
    """

    def __init__(self, nccl: Any, size: int, identity: bytes, rank: int) -> None:
        self._nccl = nccl
        self.rank, self.size = rank, size
        self.library = f"NCCL {in_words(nccl.get_version())}"
        try:
            self._comm = _called(nccl.NcclCommunicator, size, identity, rank)
        except TypeError:  # older versions of CuPy take signed numbers
            signed = tuple(n - 256 * (n > 127) for n in identity)
            self._comm = _called(nccl.NcclCommunicator, size, signed, rank)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._comm))  # see above

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message], stream: int) -> None:
        """Put these messages on a stream. Those between two ranks are matched in their order."""
        comm, byte = self._comm, self._nccl.NCCL_UINT8
        _called(self._nccl.groupStart)
        try:
            for address, nbytes, peer in sends:
                _called(comm.send, address, nbytes, byte, peer, stream)
            for address, nbytes, peer in receives:
                _called(comm.recv, address, nbytes, byte, peer, stream)
        finally:
            _called(self._nccl.groupEnd)


def new_identity(nccl: Any) -> bytes:
    """The ID_BYTES bytes that the communicators of one job have in common, made by one rank."""
    return bytes(n & 255 for n in _called(nccl.get_unique_id))


def _called(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (RuntimeError, KeyError) as error:  # KeyError: CuPy has no name for newer numbers, 6 being one
        raise DriverError(
            f"NCCL's {function.__name__}: {error}. NCCL_DEBUG=WARN makes it say more.", name=str(error)
        ) from None
