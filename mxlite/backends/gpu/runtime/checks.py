"""Errors that kernels find in their data: noted in device memory, raised where the host waits.

A kernel cannot raise. One that finds an index or a label out of range continues with something harmless and
writes the finding to its **slot**, three words in device memory, all ones as long as nothing is wrong:

    first wrong    smallest of place << 32 | value, by atomicMin    -, -
    out of range   0                                                least, most index

The content of a slot follows from the data alone, not from the order of threads. Nothing waits for a slot.
When the host waits for a ticket of the compute stream, it fetches all slots of the device, if there are any,
and raises the first finding in the order of binding; then those slots are reset.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TYPE_CHECKING

import numpy as np

from ....core.errors import OperatorError
from ....core.process import forks
from .device import Run

if TYPE_CHECKING:
    from .cuda_device import CudaDevice

WORDS = 3  # of a slot
SLOT_BYTES = 8 * WORDS
CHUNK = 256  # slots that are allocated at a time
NOTHING = 2**64 - 1

Describe = Callable[[tuple[int, int, int]], str]
"""Function from a slot's content to the error text."""


@dataclass
class Note:
    """Metadata of a slot; it survives its Check while the kernel is still to run.

    `operation` is the operator's name, `name` that of the node, once known. `serial` counts slots
    in the order in which they were created.
    """

    serial: int
    operation: str
    describe: Describe
    kind: type[OperatorError] = OperatorError
    name: str = ""

    def error(self, words: tuple[int, int, int]) -> OperatorError:
        """The error that the host's kernel would have raised."""
        text = self.describe(words)
        if self.name and not text.startswith(f"{self.name}:"):
            text = f"{self.name!r} failed with {self.kind.__name__}: {text}"
        elif not text.startswith(f"{self.operation}:"):
            text = f"{self.operation}: {text}"
        return self.kind(text, operation=self.name or self.operation)


class Check:
    """A slot that is in use; kernels write to `address`."""

    def __init__(self, address: int, note: Note, release: Callable[[int], None]) -> None:
        self.address, self.note = address, note
        self._release = release

    def __del__(self) -> None:
        self._release(self.address)


class Checked:
    """A call whose kernel writes to the slot of `check`, which is kept as long as the call is."""

    __slots__ = ("check", "run")

    def __init__(self, run: Run, check: Check) -> None:
        self.run, self.check = run, check

    def __call__(self) -> None:
        self.run()


def name_checks(run: Any, name: str) -> None:
    """Report errors found by the kernels of `run` under the name of their node."""
    for part in getattr(run, "runs", (run,)):
        if isinstance(part, Checked):
            part.check.note.name = name


class Checks:
    """The slots of one device."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._lock = forks.lock()
        self._serial = itertools.count()
        self._chunks: list[tuple[Any, np.ndarray]] = []  # on the device, and its copy on the host
        self._free: list[int] = []
        self._notes: dict[int, Note] = {}  # by address
        self._left: list[
            tuple[int, int]
        ] = []  # slots without a Check, and the last ticket that may write there
        self._seen = 0  # a ticket up to which all slots have been examined

    def slot(self, operation: str, describe: Describe, kind: type[OperatorError] = OperatorError) -> Check:
        """A new slot, empty. Not while a graph is captured."""
        with self._lock:
            if not self._free:
                self._grow()
            address = self._free.pop()
            self._notes[address] = note = Note(next(self._serial), operation, describe, kind)
        return Check(address, note, self._leave)

    def look(self, ticket: int) -> None:
        """Raise OperatorError for errors found by kernels up to `ticket`, which is done."""
        if not self._notes or ticket <= self._seen:
            return
        device, driver = self._device, self._device.driver
        found: list[tuple[Note, tuple[int, int, int]]] = []
        with self._lock, device.active():
            for chunk, host in self._chunks:
                driver.copy(host.ctypes.data, chunk.address, host.nbytes, device.downloads)
            driver.synchronize(device.downloads)
            self._seen = ticket
            for chunk, host in self._chunks:
                words = host.view(np.uint64).reshape(CHUNK, WORDS)
                for i in np.flatnonzero(words[:, 0] != NOTHING):
                    address = chunk.address + int(i) * SLOT_BYTES
                    first, second, third = (int(w) for w in words[i])
                    found.append((self._notes[address], (first, second, third)))
                    driver.fill(address, 0xFF, SLOT_BYTES, device.compute)
            left, self._left = self._left, []
            for address, t in left:
                if t <= ticket:
                    del self._notes[address]
                    self._free.append(address)
                else:
                    self._left.append((address, t))
            if found:
                device.wait_for(device.mark())  # or the next look would find it again
        if found:
            note, values = min(found, key=lambda pair: pair[0].serial)
            raise note.error(values)

    def _grow(self) -> None:
        device = self._device
        chunk = device.empty(CHUNK * SLOT_BYTES)
        with device.active():
            device.driver.fill(chunk.address, 0xFF, chunk.nbytes, device.compute)
            device.wait_for(device.mark())  # before the slot is first examined
        self._chunks.append((chunk, device.pinned(chunk.nbytes)))
        self._free += [chunk.address + i * SLOT_BYTES for i in reversed(range(CHUNK))]

    def _leave(self, address: int) -> None:
        """Retire the slot of a call that is gone; what it launched may still be under way."""
        self._left.append((address, self._device.issued + 1))


def first_wrong(words: tuple[int, int, int]) -> tuple[int, int]:
    """(position, value) of the first error that a kernel has noted; values beyond int32 are cut off."""
    value = words[0] & 0xFFFFFFFF
    return words[0] >> 32, value - 2**32 if value >= 2**31 else value


def extremes(words: tuple[int, int, int]) -> tuple[int, int]:
    """(least, most) that a kernel has noted, of indices not all of which are in range."""
    return tuple(w - 2**64 if w >= 2**63 else w for w in words[1:])  # type: ignore[return-value]
