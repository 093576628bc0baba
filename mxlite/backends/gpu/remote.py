"""One GPU as programs see it: see `backends/remote.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ...engine import Var
from ...graph.ir import Shape
from ..remote import Remote
from .graphs.graph import Graph, HostCopy
from .graphs.graph_inputs import layout, Staging
from .graphs.graph_numbers import Dial, dial_of, RandomState
from .graphs.graph_streams import Order, order_of
from .runtime.array import DeviceArray
from .runtime.checks import name_checks
from .runtime.cuda_device import CudaDevice
from .runtime.device import Run
from .runtime.fence import DeviceFence, forget, Watched
from .runtime.memory import CHUNK, Room, UNIT


class GPU(Remote):
    """The programs' side of `device`."""

    unit, chunk = UNIT, CHUNK

    def __init__(self, device: CudaDevice) -> None:
        self._device = device

    def memory(self) -> tuple[int, int]:
        return self._device.memory()

    def room(self, arrays: Sequence[int], arena: int) -> Room:
        return self._device.room(arrays, arena)

    def staging_bytes(self, kinds: Mapping[str, tuple[Shape, np.dtype[Any]]]) -> int:
        return layout(kinds)[1]

    def staging(self, block: Any, var: Var, inputs: Mapping[str, Any]) -> Staging:
        return Staging(block, var, inputs)

    def dial(self, array: Any) -> Dial:
        return dial_of(array)

    def random_state(self, array: Any) -> RandomState:
        return RandomState(array)

    def order(
        self, before: Sequence[Sequence[int]], kinds: Sequence[int], seconds: Sequence[float], streams: int
    ) -> Order:
        return order_of(before, kinds, seconds, streams)

    def graph(self, calls: Sequence[Run], order: Any, start: int, prologue: Run | None = None) -> Graph:
        return Graph(self._device, calls, order, start, prologue)

    def copy_call(self, target: Any, source: Any) -> HostCopy:
        return HostCopy(self._device, target, source)

    def name_checks(self, call: Run, name: str) -> None:
        name_checks(call, name)

    def active(self) -> AbstractContextManager[None]:
        return self._device.active()

    def mark(self) -> int:
        return self._device.mark()

    def stopwatch(self) -> Stopwatch:
        return Stopwatch(self._device)

    def fence(self, block: DeviceArray, start: int, stop: int, name: str) -> DeviceFence:
        return DeviceFence(block, start, stop, name)

    def forget(self, memory: DeviceArray) -> None:
        forget(memory)

    def watched(self, call: Run, watched: Run) -> Watched:
        return Watched(call, watched)


class Stopwatch:
    """Notes events on the compute stream."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._events: list[int] = []
        self._used = 0

    def start(self, most: int) -> None:
        self._used = 0
        with self._device.active():
            while len(self._events) < most:
                self._events.append(self._device.driver.event(timed=True))

    def __call__(self) -> None:
        self._used += 1
        self._device.driver.record(self._events[self._used - 1], self._device.compute)

    def seconds(self) -> list[float]:
        noted = self._events[: self._used]
        if not noted:
            return []
        driver = self._device.driver
        with self._device.active():
            driver.synchronize_event(noted[-1])
            return [driver.seconds(noted[0], e) for e in noted]
