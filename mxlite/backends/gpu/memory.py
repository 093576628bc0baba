"""Memory of one device: blocks that are handed out again, within a limit."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from typing import Any

from ...core.errors import OutOfMemoryError
from .driver import Driver, DriverError

UNIT = 512  # bytes; sizes are multiples of it
CHUNK = 2 * 2**20  # bytes that are asked of the driver at once for arrays below SMALL
SMALL = 2**20


class Block:
    """A range of bytes. When nobody holds it any more, its pool may hand it out again.

    `since` is the device's ticket at the time when the bytes were last given back: what had been put on the
    compute stream up to there may still use them.
    """

    __slots__ = ("__weakref__", "address", "device", "nbytes", "since")

    def __init__(self, address: int, nbytes: int, device: Any, since: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.device = device
        self.since = since


class Pool:
    """Blocks of a device. What is given back is kept for the next who asks for as much, in order of the
    compute stream: the new owner's kernels come after the old owner's.

    `limit` bounds the bytes taken from the driver, arenas included.
    """

    def __init__(self, device: Any, driver: Driver, limit: int | None = None) -> None:
        self._device = device
        self._driver = driver
        self.limit = limit
        self.taken = 0  # bytes from the driver
        self.used = 0  # bytes in blocks that somebody holds
        self._lock = threading.RLock()  # a finalizer may give back in the middle of anything
        self._free: dict[int, list[tuple[int, int]]] = defaultdict(list)  # size -> (address, since)
        self._chunk = (0, 0)  # what is left of the last chunk

    def block(self, nbytes: int) -> Block:
        """A block of at least `nbytes`. Raises OutOfMemoryError."""
        size = max(UNIT, -(-nbytes // UNIT) * UNIT)
        with self._lock:
            address, since = self._take(size)
            self.used += size
        block = Block(address, size, self._device, since)
        weakref.finalize(block, self._give_back, address, size).atexit = False
        return block

    def exactly(self, nbytes: int) -> Block:
        """A block of its own from the driver, given back to it when nobody holds it: a program's arena."""
        with self._lock:
            address = self._ask(nbytes)
            self.used += nbytes
        block = Block(address, nbytes, self._device, 0)
        weakref.finalize(block, self._release, address, nbytes).atexit = False
        return block

    def trim(self) -> None:
        """Give what nobody holds back to the driver (but for pieces of chunks)."""
        with self._lock:
            for size, found in self._free.items():
                if size >= SMALL:
                    for address, _ in found:
                        self._driver.free(address)
                        self.taken -= size
                    found.clear()

    def _take(self, size: int) -> tuple[int, int]:
        if self._free[size]:
            return self._free[size].pop()
        if size >= SMALL:
            return self._ask(size), 0
        address, left = self._chunk
        if left < size:
            address, left = self._ask(CHUNK), CHUNK
        self._chunk = (address + size, left - size)
        return address, 0

    def _ask(self, size: int) -> int:
        """New memory from the driver; what lies idle is given back first if there is no other way."""
        if size == 0:
            return 0
        for again in (False, True):
            if again:
                self.trim()
            if self.limit is not None and self.taken + size > self.limit:
                continue
            try:
                address = self._driver.malloc(size)
            except DriverError as error:
                if not error.is_memory:
                    raise
                continue
            self.taken += size
            return address
        free, total = self._driver.memory()
        within = "" if self.limit is None else f", of at most {self.limit} it may take"
        raise OutOfMemoryError(
            f"{self._device} has no room for {size} bytes more: {free} of its {total} bytes are free, and "
            f"this process has taken {self.taken}{within} ({self.used} in arrays). Other processes may hold "
            f"the rest."
        )

    def _give_back(self, address: int, size: int) -> None:
        with self._lock:
            self._free[size].append((address, self._device.issued))
            self.used -= size

    def _release(self, address: int, nbytes: int) -> None:
        with self._lock:
            self.used -= nbytes
            self.taken -= nbytes
            if nbytes:
                self._driver.free(address)
