"""Caching allocator of one device: blocks are reused, within a limit."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ....core.errors import DeviceError, OutOfMemoryError
from ....core.process import forks
from .driver import Driver, DriverError

UNIT = 512  # bytes; sizes are multiples of it
CHUNK = 2 * 2**20  # bytes that are requested from the driver at once for arrays below SMALL
SMALL = 2**20


class MemoryBlock:
    """A range of bytes. When it is no longer referenced, its pool may reuse it.

    `since` is the device's ticket at the time when the bytes were last returned: earlier work on the
    compute stream may still use them.
    """

    __slots__ = ("__weakref__", "address", "device", "nbytes", "since")

    def __init__(self, address: int, nbytes: int, device: Any, since: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.device = device
        self.since = since


class Held(NamedTuple):
    """Device memory of this process: bytes taken from the driver, and their uses.

    `idle` are cached for the next array. `limit` is the most that is taken, None: no limit.
    """

    taken: int
    arrays: int
    arenas: int
    idle: int
    limit: int | None


class Room(NamedTuple):
    """Memory of a device: `free` of `total` bytes, counting all users, and the memory of this process.

    `missing`: bytes that are lacking for the request in question.
    """

    free: int
    total: int
    held: Held
    missing: int

    @property
    def elsewhere(self) -> int:
        """Bytes that are neither free nor taken for arrays and arenas here."""
        return max(0, self.total - self.free - self.held.taken)


class MemoryPool:
    """Blocks of a device. Returned blocks are cached for the next request of the same size, in order of the
    compute stream: the new owner's kernels come after the old owner's.

    `limit` bounds the bytes taken from the driver, arenas included.

    A finalizer may run on any thread at any point: while its thread holds our lock, while it
    captures a graph (when CUDA frees nothing), while another thread that has our lock waits for the driver.
    So it appends what it releases to a deque, waits for no lock, and leaves the rest to the next caller.
    """

    def __init__(self, device: Any, driver: Driver, limit: int | None = None) -> None:
        self._device = device
        self._driver = driver
        self._limit = limit
        self._taken = 0  # bytes from the driver
        self._arrays = 0  # of these, in blocks that are referenced
        self._arenas = 0
        self._lock = forks.lock()
        self._free: dict[int, list[tuple[int, int]]] = defaultdict(list)  # size -> (address, since)
        self._chunk = (0, 0)  # the rest of the last chunk
        self._returned: deque[tuple[int, int, int]] = deque()  # address, size, since
        self._ended: deque[tuple[int, int, int]] = deque()  # address, size, since: unreferenced arenas
        self._abroad: set[int] = set()  # addresses of blocks that other libraries have seen
        self._borrowed: deque[tuple[int, Callable[[], None]]] = deque()  # ticket, how to return
        self._is_lost = False

    @property
    def taken(self) -> int:
        """Bytes taken from the driver."""
        return self.held().taken

    @property
    def limit(self) -> int | None:
        """The most bytes that are taken from the driver; None: no limit."""
        return self._limit

    @limit.setter
    def limit(self, nbytes: int | None) -> None:
        self._limit = nbytes
        if nbytes is not None and self.taken > nbytes:
            self.trim()

    def held(self) -> Held:
        """The current use of the bytes."""
        with self._lock:
            self._collect()
            idle = self._taken - self._arrays - self._arenas
            return Held(self._taken, self._arrays, self._arenas, idle, self._limit)

    def missing(self, blocks: Iterable[int], exactly: int, free: int) -> int:
        """Bytes that are lacking to allocate blocks of these sizes one after the other, then an arena of
        `exactly` so many bytes, if the driver has `free` ones. 0: they can be allocated now.
        """
        with self._lock:
            self._collect()
            idle = {size: len(found) for size, found in self._free.items()}
            asked, left = [exactly], self._chunk[1]
            for size in map(_padded, blocks):  # as `_take` will do
                if idle.get(size):
                    idle[size] -= 1
                elif size >= SMALL:
                    asked.append(size)
                else:
                    if left < size:
                        asked.append(CHUNK)
                        left = CHUNK
                    left -= size
            free += sum(pieces(size) * n for size, n in idle.items() if size >= SMALL)  # what `_trim` gives
            short = max(0, sum(map(pieces, asked)) - free)
            if self._limit is None:
                return short
            gone = sum(size * n for size, n in idle.items() if size >= SMALL)
            return max(short, sum(asked) - (self._limit - self._taken + gone))

    def block(self, nbytes: int) -> MemoryBlock:
        """A block of at least `nbytes`. Raises OutOfMemoryError."""
        size = _padded(nbytes)
        with self._lock:
            self._collect()
            address, since = self._take(size)
            self._arrays += size
        block = MemoryBlock(address, size, self._device, since)
        weakref.finalize(block, self._give_back, address, size).atexit = False
        return block

    def exactly(self, nbytes: int) -> MemoryBlock:
        """A block of its own from the driver, returned when it is no longer referenced: a program's arena.

        Idle memory is returned first: kernels that were measured for the program have left much of it.
        """
        with self._lock:
            self._collect()
            self._trim()
            address = self._ask(nbytes)
            self._arenas += nbytes
        block = MemoryBlock(address, nbytes, self._device, 0)
        weakref.finalize(block, self._release, address, nbytes).atexit = False
        return block

    def trim(self) -> None:
        """Return unreferenced memory to the driver (except pieces of chunks)."""
        with self._lock:
            self._collect()
            self._trim()

    def lose(self) -> None:
        """Give up in a forked child: nothing of this may be touched any more."""
        self._is_lost = True

    def lend(self, memory: Any) -> None:
        """Let another library see this memory: it is reused only when the whole device is idle."""
        self._abroad.add(memory.address)

    def borrow(self, address: int, nbytes: int, release: Callable[[], None]) -> MemoryBlock:
        """Another library's memory; `release` is called when it is unreferenced and the device is done."""
        block = MemoryBlock(address, nbytes, self._device, self._device.issued + 1)
        weakref.finalize(block, self._end_loan, release).atexit = False
        return block

    def _end_loan(self, release: Callable[[], None]) -> None:
        self._borrowed.append((self._device.issued + 1, release))

    def _trim(self) -> None:
        if is_capturing():
            return
        for size, found in self._free.items():
            if size >= SMALL:
                while found:
                    address, since = found[-1]
                    self._device.wait_for(since)  # raises a fault, with all accounts as they are
                    self._driver.free(address)
                    found.pop()
                    self._taken -= size

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
        """Allocate from the driver; idle memory is returned first if there is no other way."""
        if size == 0:
            return 0
        for again in (False, True):
            if again:
                self._trim()
            if self._limit is not None and self._taken + size > self._limit:
                continue
            try:
                address = self._driver.malloc(size)
            except DriverError as error:
                if not error.is_memory:
                    raise
                continue
            self._taken += size
            return address
        free, total = self._driver.memory()
        within = "" if self._limit is None else f", of at most {self._limit} it may take"
        allowed = self._limit is None or self._taken + size <= self._limit
        why = "Other processes may hold the rest."
        if allowed and size <= free:
            why = "The driver has not so many in one stretch, of the pieces in which it gives memory."
        raise OutOfMemoryError(
            f"{self._device} has no room for {size} bytes more: {free} of its {total} bytes are free, and "
            f"this process has taken {self._taken}{within} ({self._arrays} in arrays, {self._arenas} in "
            f"arenas of programs). {why}"
        )

    def _give_back(self, address: int, size: int) -> None:
        # An operation that is being issued has no ticket yet: the next one covers it.
        self._returned.append((address, size, self._device.issued + 1))

    def _release(self, address: int, nbytes: int) -> None:
        self._ended.append((address, nbytes, self._device.issued + 1))
        self.tidy()

    def tidy(self) -> None:
        """Free what is due, if that can be done now; otherwise the next caller does it. Waits for no lock."""
        if not self._is_lost and self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def _collect(self) -> None:
        """Process what finalizers have noted. Under the lock."""
        postponed = []
        while self._returned:
            address, size, since = self._returned.popleft()
            if address in self._abroad:
                if not self._device.come_to_rest():
                    postponed.append((address, size, since))
                    continue
                self._abroad.discard(address)
            self._free[size].append((address, since))
            self._arrays -= size
        self._returned.extend(postponed)
        while self._borrowed and not is_capturing():
            ticket, release = self._borrowed.popleft()
            self._device.wait_for(ticket)
            release()
        while self._ended and not is_capturing():
            address, nbytes, since = self._ended.popleft()
            self._arenas -= nbytes
            self._taken -= nbytes
            if nbytes:
                try:
                    self._device.wait_for(since)  # a free may wait for the device, but need not
                    self._driver.free(address)
                except DeviceError:  # the device is lost, and its memory with it
                    pass


def _padded(nbytes: int) -> int:
    """Block size for a request of so many bytes."""
    return max(UNIT, -(-nbytes // UNIT) * UNIT)


def pieces(nbytes: int) -> int:
    """Bytes that a driver takes for a request: it allocates in pieces of CHUNK."""
    return -(-nbytes // CHUNK) * CHUNK


class _Capturing(threading.local):
    """State of this thread: graphs that are being captured, and calls put off until afterwards."""

    depth = 0
    later: list[Callable[[], object]] | None = None


_capturing = _Capturing()


def is_capturing() -> bool:
    """True if this thread captures a graph: CUDA then allows it no free and no wait, of any device."""
    return _capturing.depth > 0


@contextmanager
def capturing() -> Iterator[None]:
    """Context in which this thread captures a graph. Calls put off by `when_allowed` are made at the end."""
    _capturing.depth += 1
    try:
        yield
    finally:
        _capturing.depth -= 1
        if not _capturing.depth:
            calls, _capturing.later = _capturing.later or [], None
            for call in calls:
                call()


def when_allowed(call: Callable[[], object]) -> None:
    """Call it now, or when this thread's capture is over: for finalizers."""
    if not _capturing.depth:
        call()
    elif _capturing.later is None:
        _capturing.later = [call]
    else:
        _capturing.later.append(call)
