"""Scalars of the host that kernels of a graph read: rates, the loss scale, the random step.

A graph's launches have their arguments baked in, so what changes from step to step lies in device memory.
`Dial` puts numbers there through a ring of pinned memory, and only when they have changed; `RandomState` lets
the graph itself count, and corrects it if other operations have drawn numbers in between. Neither makes the
host wait for the device.
"""

from __future__ import annotations

import ctypes
from weakref import WeakKeyDictionary

import numpy as np

from ....core.process import forks
from ..compiler.source import kernel, KernelSource, shared
from ..runtime.array import DeviceArray
from ..runtime.cuda_device import CudaDevice
from ..runtime.device import Arguments, Run

SLOTS = 8
"""Values that may be in transfer to the device before the host waits for one to arrive."""


class Dial:
    """An array on a device to which the host writes small values between kernels.

    Its methods are for operations of the engine, one at a time.
    """

    def __init__(self, array: DeviceArray) -> None:
        self.array = array.reshape(array.shape)  # a view, to keep its own key mortal; see `dial_of`
        self._device: CudaDevice = array.device
        self._ring = self._device.pinned(SLOTS * array.nbytes).reshape(SLOTS, array.nbytes)
        self._tickets = [0] * SLOTS
        self._next = 0
        self._there: bytes | None = None
        self._values: np.ndarray | None = None  # the values there, if nothing else can change them
        self.writes = 0  # number of transfers

    def set(self, values: np.ndarray, *, known: bool = True) -> None:
        """Let later kernels read `values`; `known`: only the host ever writes there."""
        if values is self._values and known:
            return
        self._values = None
        content = np.ascontiguousarray(values, self.array.dtype).tobytes()
        if (content == self._there and known) or not content:
            self._note(values)
            return
        at = self._next
        self._next = (at + 1) % SLOTS
        self._device.wait_for(self._tickets[at])  # SLOTS values ago: over, as a rule
        slot = self._ring[at]
        slot[:] = np.frombuffer(content, np.uint8)
        self._there = None
        driver, stream = self._device.driver, self._device.compute
        driver.copy(self.array.address, slot.ctypes.data, len(content), stream)
        self._tickets[at] = self._device.mark()
        self._there = content
        self._note(values)
        self.writes += 1

    def _note(self, values: np.ndarray) -> None:
        """Remember the values there; an array that nothing can write to is not compared anew."""
        self._values = None if values.flags.writeable or values.base is not None else values


_lock = forks.lock()
_dials: WeakKeyDictionary[DeviceArray, Dial] = WeakKeyDictionary()


def dial_of(array: DeviceArray) -> Dial:
    """The single dial of an array, shared by all programs that read it."""
    with _lock:
        found = _dials.get(array)
        if found is None:
            found = _dials[array] = Dial(array)
        return found


class RandomState:
    """(seed, step) in device memory, as kernels read them: `array` is uint64, (2,).

    `advance` is the call that a program begins with. It adds 1 to the step, so that a captured program counts
    by itself; `expect` makes sure that the result is right.
    """

    def __init__(self, array: DeviceArray) -> None:
        self.array = array
        self._device: CudaDevice = array.device
        self._after: tuple[int, int] | None = None  # the state after the last program
        self.advance: Run = self._call("next_random_step")

    def _call(self, name: str, *numbers: int) -> Run:
        address = ctypes.c_void_p(self._device.address(self.array))
        values = Arguments([address, *map(ctypes.c_uint64, numbers)])
        return self._device.launch(self._device.function(_SOURCE, name), (1, 1, 1), (1, 1, 1), 0, values)

    def expect(self, seed: int, step: int) -> None:
        """Make the next program find (seed, step) after it has advanced."""
        before = (seed, (step - 1) % 2**64)
        if self._after != before:
            self._after = None
            self._call("set_random_state", *before)()
        self._after = (seed, step)

    def forget(self) -> None:
        """Forget the state: a program has failed, and may not have advanced."""
        self._after = None


_SOURCE = KernelSource(
    shared("types")
    + kernel("set_random_state", ["uint64 *state", "uint64 seed", "uint64 step"],
             ["state[0] = seed;", "state[1] = step;"], 1)
    + kernel("next_random_step", ["uint64 *state"], ["state[1] += 1;"], 1)
)  # fmt: skip
