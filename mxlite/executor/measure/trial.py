"""Plans as programs on scratch arrays: a step with the effects of the engine and of merged calls.

Isolated kernels do not show these. A program merges calls, which made a step of a ResNet-1001 12 % faster,
and hands segments to the engine, which took 10 % of it; a plan with more calls has more of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from ...backends.timed_call import fill
from ...core import cpu
from ...engine import get_engine, unwatched, Var
from ...memplan import MemoryPlan, RUN
from ...ndarray import NDArray
from ..plan.lower import Lowered
from ..plan.step import Key
from ..run.arena import Arena
from ..run.away import Kept
from ..run.calls import views_of
from ..run.kernel_thread import where_kernels_run
from ..run.program import Program
from ..run.storage import Allocator
from .rehearsal import can_be_run, succeeds


class Trial:
    """`plans` of `lowered`, in turns on the same arrays: as many bytes as the largest plan has.

    Raises OutOfMemoryError. Omitted calls and the content of arrays are as in a Rehearsal.
    """

    def __init__(self, lowered: Lowered, plans: Sequence[MemoryPlan]) -> None:
        self._lowered = lowered
        backend, allocator = lowered.backend, Allocator(cpu(), lowered.backend)
        self._arrays: dict[Key, NDArray] = {
            key: allocator.make(key, shape, dtype, lowered.step.category)
            for key, (shape, dtype) in lowered.step.owned.items()
        }
        get_engine().wait_for(*{array.var: None for array in self._arrays.values()})
        self._arena = Arena(backend, max(plan.arena_bytes for plan in plans))
        seeds, drawn = backend.seeds(np.array([1, 1], np.uint64)), Var("random state of trials")
        self._programs = []
        for plan in plans:
            program = _Tried(lowered, plan, self._arrays, self._arena, seeds, drawn)
            self._fill()
            where_kernels_run(lowered, program.leave_out_what_fails)
            self._programs.append(program)

    def turn(self, p: int) -> float:
        """Run plan `p` twice; returns seconds of the second step, which has the first one's caches."""
        self._fill()
        with unwatched():
            self._run(p)
            start = perf_counter()
            self._run(p)
            return perf_counter() - start

    def left_out(self, p: int) -> list[int]:
        """Steps of plan `p` that are not run."""
        return sorted(self._programs[p].left_out)

    def _run(self, p: int) -> None:
        self._programs[p].push_step()
        get_engine().wait_for(*self._arena.tail)

    def _fill(self) -> None:
        """Reset arrays outside the arena: steps change parameters, and soon beyond all bounds."""
        for array in self._arrays.values():
            fill(self._lowered.backend, array.storage)


class _Tried(Program):
    """A program without the calls that cannot be run on scratch arrays: `left_out`."""

    def _build(self) -> None:
        self.left_out: set[int] = set()
        super()._build()

    def leave_out_what_fails(self) -> None:
        """Run all calls in turn, and remove those that fail."""
        for segment in self.segments:
            for c, call in enumerate(segment.calls):
                if not succeeds(call):
                    self.left_out.add(segment.first + c)
                    segment.calls[c] = _nothing

    def _call(self, s: int, views: list[Any], block: Any, offsets: tuple[int, ...]) -> Callable[[], None]:
        schedule = self.plan.schedule
        if schedule.kinds[s] == RUN and not can_be_run(self.lowered.calls[schedule.task[s]]):
            self.left_out.add(s)
            return _nothing
        return super()._call(s, views, block, offsets)

    def _views(self, block: Any, offsets: tuple[int, ...]) -> list[Any]:
        return views_of(self.lowered, self.plan, lambda key: self.arrays[key].storage, block, offsets)

    def _residents(self, calls: Sequence[Callable[[], None]]) -> list[Kept]:
        return []


def _nothing() -> None:
    """Do nothing, in place of a call that is not run."""
