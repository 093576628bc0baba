"""One device's share of an executor: its plan, its arrays, its bytes. On one device that is all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TYPE_CHECKING

from ..core import Context
from ..memplan import MemoryPlan
from ..ndarray import NDArray
from .plan.candidates import Planned
from .plan.step import Key
from .run.arena import Arena
from .run.away import held_bytes, with_copies

if TYPE_CHECKING:
    from .executor import Executor


class DeviceMemory(NamedTuple):
    """A device with the plan that it runs, and the bytes that are planned and allocated there."""

    context: Context
    memory_plan: MemoryPlan
    planned_bytes: int
    measured_bytes: int


class Share:
    """The share of device number `device` in `executor`."""

    def __init__(self, executor: Executor, device: int) -> None:
        self.executor = executor
        self.device = device

    @property
    def planned(self) -> Planned:
        """The plans of this device."""
        return self.executor._planned.of_devices[self.device]

    @property
    def arena(self) -> Arena:
        """The arena of this device."""
        return self.executor._arena.of_devices[self.device]

    @property
    def arrays(self) -> Mapping[Key, NDArray]:
        """The arrays that lie on this device."""
        arrays = self.executor._arrays
        if len(self.executor._planned.of_devices) == 1:
            return arrays
        train, infer = self.planned.lowered
        return {k: a for k, a in arrays.items() if k in train.step.owned or k in infer.step.owned}

    @property
    def copied_bytes(self) -> int:
        """Bytes of copies of weights in a kernel's layout, while views of their originals exist."""
        return self.executor.copied_bytes if self.device == 0 else 0

    @property
    def memory_plan(self) -> MemoryPlan:
        """The plan of a training step, with those copies."""
        plan, copies = self.planned.train_plan, self.copied_bytes
        return with_copies(plan, copies) if copies else plan

    @property
    def outside_bytes(self) -> int:
        """Bytes allocated outside the arena besides `arrays`."""
        return self.copied_bytes + self.executor._feed.nbytes[self.device]

    @property
    def measured_bytes(self) -> int:
        """Bytes allocated."""
        return held_bytes(list(self.arrays.values())) + self.outside_bytes + self.arena.measured_bytes

    def adopt(self, plan: MemoryPlan) -> None:
        """Run `plan` on this device, another one for the same step, from the next forward pass on."""
        self.executor.adopt(plan, self.device)

    @property
    def memory(self) -> DeviceMemory:
        """This device and its bytes."""
        plan = self.memory_plan
        return DeviceMemory(self.planned.asked.context, plan, plan.peak_bytes, self.measured_bytes)
