"""Guard bytes in GPU memory, see `checks/guard.py`. The host writes and fetches them, and waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...checks import guard
from .array import DeviceArray
from .device import Run


class DeviceFence(guard.Fence):
    """A Fence around bytes [start, stop) of a block on a GPU. For calls on its compute stream."""

    __slots__ = ()

    def _write(self, part: DeviceArray, pattern: np.ndarray) -> None:
        part.device.upload(part, pattern, part.device.mark())

    def _read(self, part: DeviceArray) -> np.ndarray:
        found = np.empty(part.nbytes, np.uint8)
        part.device.download(found, part, part.device.mark())
        return found


def forget(memory: DeviceArray) -> None:
    """Put a fill with NaN, whatever the type, on the compute stream."""
    memory.device.fill_bytes(memory, 0xFF)


class Watched:
    """A call that checks guard bytes before and after it, and so cannot become a graph."""

    blocks_capture = "MXLITE_GUARD=1 looks at the arena behind every call"

    def __init__(self, call: Run, watched: Callable[[], None]) -> None:
        self._call, self._watched = call, watched

    @property
    def runs(self) -> tuple[Any, ...]:
        """The parts of the call itself."""
        return tuple(getattr(self._call, "runs", (self._call,)))

    def __call__(self) -> None:
        self._watched()
