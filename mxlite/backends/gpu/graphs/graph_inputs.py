"""Staged upload of batches to a program's inputs while the previous batch is still being processed.

    host       | copy to pinned b | ...                     a worker of the engine
    uploads    (taken) | pinned b -> staging | arrived
    compute    ... step b-1 | (arrived) staging -> inputs | taken | step b ...

Inputs lie where the captured kernels expect them, and are in use to the end of a step: the first layer's
gradient reads them last. So a batch waits next to them, in *staging*, from which a copy on the device takes
only microseconds. There are two pinned buffers: the host fills one while the other is being copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ....engine import SWITCHING, Var
from ..runtime.array import DeviceArray
from ..runtime.cuda_device import CudaDevice

ALIGN = 256  # bytes; alignment of each input in staging


def layout(kinds: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> tuple[dict[str, int], int]:
    """Offset of each array of (shape, dtype), and the bytes of all."""
    starts, end = {}, 0
    for name, (shape, dtype) in kinds.items():
        starts[name] = end = -(-end // ALIGN) * ALIGN
        end += prod(shape) * dtype.itemsize
    return starts, end


class Staging:
    """Upload of `inputs`, by name, through `block`, whose size is that of `layout` and whose Var is `var`.

    `send` is for operations of the engine that may wait for copies, `receive` for those that launch kernels.
    """

    def __init__(self, block: DeviceArray, var: Var, inputs: Mapping[str, DeviceArray]) -> None:
        self.inputs = dict(inputs)
        self._block, self._var = block, var
        self._device: CudaDevice = block.device
        starts, nbytes = layout({n: (a.shape, a.dtype) for n, a in inputs.items()})
        assert block.nbytes == nbytes
        # A batch that was sent but not received is on no stream that a new owner of the bytes waits for.
        self._device.pool.lend(block.memory)
        self._parts = {n: block[starts[n] : starts[n] + a.nbytes] for n, a in inputs.items()}
        self._starts = starts
        self._pinned: list[np.ndarray] = []
        self._at = 0
        self._sent = [False, False]
        driver = self._device.driver
        with self._device.active():
            self._arrived = [driver.event(), driver.event()]
            self._taken = driver.event()
        self._has_taken = False

    def send(self, values: Sequence[tuple[str, np.ndarray]]) -> None:
        """Copy arrays of the host to staging. Returns when `values` may be changed."""
        device = self._device
        driver = device.driver
        with SWITCHING, device.active():
            if not self._pinned:
                nbytes = max(self._starts[n] + a.nbytes for n, a in self.inputs.items())
                self._pinned = [device.pinned(nbytes) for _ in range(2)]
            self._at = at = 1 - self._at
            if self._sent[at]:
                driver.synchronize_event(self._arrived[at])  # two batches ago
            if self._has_taken:
                driver.wait(device.uploads, self._taken)
            else:  # wait for former users of the memory, but not for later readers of the inputs
                device.let_wait(device.uploads, max(self._var.fence, self._block.memory.since))
            for name, value in values:
                to, start = self.inputs[name], self._starts[name]
                if to.nbytes:
                    pinned = self._pinned[at][start : start + to.nbytes]
                    with np.errstate(all="ignore"):
                        pinned.view(to.dtype).reshape(to.shape)[...] = value
                    driver.copy(self._parts[name].address, pinned.ctypes.data, to.nbytes, device.uploads)
            driver.record(self._arrived[at], device.uploads)
            self._sent[at] = True

    def receive(self, names: Sequence[str]) -> None:
        """Make the batch sent last visible in these inputs to all later kernels."""
        device = self._device
        driver, stream = device.driver, device.compute
        driver.wait(stream, self._arrived[self._at])
        for name in names:
            to = self.inputs[name]
            if to.nbytes:
                driver.copy(to.address, self._parts[name].address, to.nbytes, stream)
        driver.record(self._taken, stream)
        self._has_taken = True
