"""MXLITE_GUARD=1: a program whose buffers have guard bytes around them, checked after each call.

The plan stays unchanged, and so do the bytes that it counts. The program runs in a second block, laid out
from the same live ranges with room for a pattern before and after each:

    planned   |  fc1  |  relu  |            guarded   |#|  fc1  |#|#|  relu  |#|

After each call the pattern around every buffer that is live at that step, and around every array outside the
arena that the call touches, must be intact. At the start of its life a buffer is filled with NaN, and
so is whatever the call writes whole. Calls run in the plan's own order, one at a time.

On a GPU only the arena has guards. The host fetches them after each call, so no graph is captured.

Arrays inside the workspace of one call (the arena of a loop's body) have no guards of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...backends.checks import guard
from ...core import OperatorError
from ...memplan import MemoryPlan
from ...memplan.placement.arena import place
from ..plan.lower import Lowered
from ..plan.step import Key


@dataclass(frozen=True)
class Layout:
    """Offsets of a plan's buffers with room around each, in an arena of `nbytes`."""

    offsets: tuple[int, ...]
    nbytes: int

    @classmethod
    def of(cls, plan: MemoryPlan) -> Layout:
        """A layout that shares bytes like the plan, though not necessarily the same ones."""
        wider = [replace(r, nbytes=r.nbytes + 2 * guard.WIDTH) for r in plan.liveness.ranges]
        placed = place(wider)
        return cls(tuple(o + guard.WIDTH for o in placed.offsets), placed.nbytes)


class Watchman:
    """Checker of the buffers of one program. `block` is its arena, laid out by `layout`."""

    def __init__(
        self, lowered: Lowered, plan: MemoryPlan, layout: Layout, block: Any, arrays: Mapping[Key, Any]
    ) -> None:
        schedule, liveness, problem = plan.schedule, plan.liveness, plan.problem
        self._lowered, self._plan, self._arrays, self._block = lowered, plan, arrays, block
        self._layout = layout
        remote, steps = lowered.backend.remote, len(schedule.task)
        fence = guard.Fence if remote is None else remote.fence
        self._fences: list[guard.Fence] = []
        self._born: list[list[int]] = [[] for _ in range(steps)]
        self._live: list[list[int]] = [[] for _ in range(steps)]
        for b, r in enumerate(liveness.ranges):
            if r.members:
                names = dict.fromkeys(problem.values[schedule.value_of[i]].name for i in r.members)
                name = f"the buffer of {', '.join(map(repr, names))}"
            else:
                name = f"the workspace of {problem.tasks[schedule.task[r.start]].name!r}"
            low = layout.offsets[b]
            self._fences.append(fence(block, low, low + r.nbytes, name))
            self._born[r.start].append(b)
            for s in range(r.start, r.stop):
                self._live[s].append(b)

    def watched(self, s: int, call: Callable[[], None]) -> Callable[[], None]:
        """`call` of step s with checks of the guards before and after."""
        plan, lowered, fences = self._plan, self._lowered, self._fences
        remote = lowered.backend.remote  # where what lies outside of the arena has no guards
        forget = guard.forget if remote is None else remote.forget
        schedule, liveness, task = plan.schedule, plan.liveness, plan.problem.tasks[plan.schedule.task[s]]
        born = [fences[b] for b in self._born[s]]
        new = [self._bytes(b) for b in self._born[s]]
        touched = {schedule.value_of[i] for i in (*schedule.inputs[s], *schedule.outputs[s]) if i >= 0}
        outside = {}
        for v in touched:
            if (key := lowered.key[v]) is not None and remote is None:
                outside[key] = guard.fence_of(self._arrays[key].storage, _name(key))
        added_to = {lowered.key[schedule.value_of[i]] for i in schedule.inputs[s]}
        for o in schedule.outputs[s]:
            if o >= 0 and liveness.range_of[o] < 0 and o not in schedule.hosted:
                key = lowered.key[schedule.value_of[o]]
                assert key is not None
                if key not in added_to:
                    new.append(self._arrays[key].storage)
        looked_at = [fences[b] for b in self._live[s]] + [f for f in outside.values() if f is not None]

        def run() -> None:
            for memory in new:
                forget(memory)
            for fence in born:
                fence.put_up()
            call()
            for fence in looked_at:
                if (broken := fence.broken_at()) is not None:
                    fence.put_up()  # so that later calls are judged separately
                    raise _outside(task.name, task.kernel, fence, *broken)

        return run if remote is None else remote.watched(call, run)

    def _bytes(self, b: int) -> Any:
        low = self._layout.offsets[b]
        return self._block[low : low + self._plan.liveness.ranges[b].nbytes]


_KINDS = {"var": "the array", "out": "output", "grad": "the gradient of"}


def _name(key: Key) -> str:
    return f"{_KINDS.get(key[0], key[0])} {key[1]!r}"


def _outside(task: str, kernel: str, fence: guard.Fence, at: int, count: int) -> OperatorError:
    where = f"{-at} bytes before its start" if at < 0 else f"at byte {at}, behind its end"
    return OperatorError(
        f"{task!r} [{kernel}] wrote outside its arrays: {fence.name}, {fence.nbytes} bytes, has {count} "
        f"guard bytes changed, the first {where}. This is a bug in the kernel; please report it.",
        operation=task,
    )
