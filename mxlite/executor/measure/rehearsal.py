"""A planned step on scratch arrays, with each call timed in its context: after the calls before it.

A kernel's time depends on what others have left in the caches, on the threads' last share of the same
bytes, on the code that was run lately. In isolation these differ: the calls of a ResNet-56 took
half as long again, the elementwise ones twice as long, as in the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from time import thread_time
from typing import Any

import numpy as np

from ...backends.timed_call import fill
from ...memplan import MemoryPlan
from ..plan.lower import Call, Lowered
from ..plan.step import Key
from ..run.calls import call_of, views_of
from ..run.kernel_thread import where_kernels_run

Run = Callable[[], None]


class Rehearsal:
    """`plans` of `lowered`, in turns on the same arrays: as many bytes as the largest plan has.

    Raises OutOfMemoryError. Calls that need more than their arrays are left out, because a user's operator
    must not be run to be timed, and so are calls that fail. Kernels work on arbitrary numbers, which may
    become infinite or nan on the way; no kernel takes longer for that.
    """

    def __init__(self, lowered: Lowered, plans: Sequence[MemoryPlan]) -> None:
        self._lowered = lowered
        self._arrays: dict[Key, Any] = {}
        self._calls: list[list[Run | None]] = []
        where_kernels_run(lowered, partial(self._build, plans))

    def _build(self, plans: Sequence[MemoryPlan]) -> None:
        lowered, backend = self._lowered, self._lowered.backend
        for v, where in enumerate(lowered.key):
            if where is not None and where not in self._arrays:
                self._arrays[where] = backend.array(lowered.shape[v], lowered.dtype[v])
        block = backend.arena(max(plan.arena_bytes for plan in plans))
        seeds = backend.seeds(np.array([1, 1], np.uint64))
        for plan in plans:
            views = views_of(lowered, plan, self._arrays.__getitem__, block, plan.offsets)
            calls: list[Run | None] = [
                call_of(lowered, plan, s, views, block, plan.offsets, seeds)
                if can_be_run(lowered.calls[t]) and not plan.problem.tasks[t].preview
                else None
                for s, t in enumerate(plan.schedule.task)
            ]
            self._calls.append(calls)
            self._fill()
            for s, call in enumerate(calls):
                calls[s] = call if call is not None and succeeds(call) else None

    def turn(self, p: int) -> list[float]:
        """Run plan `p` twice on one thread. Returns for each step of its schedule the seconds of this thread
        in the second run, which starts with the caches of the first; 0 if left out.
        """
        found: list[float] = []
        where_kernels_run(self._lowered, lambda: found.extend(self._timed(p)))
        return found

    def _timed(self, p: int) -> list[float]:
        self._fill()
        self._run(p)
        look, stamps = thread_time, [thread_time()]
        for call in self._calls[p]:
            if call is not None:
                call()
            stamps.append(look())
        pairs = zip(self._calls[p], pairwise(stamps))
        return [0.0 if call is None else after - before for call, (before, after) in pairs]

    def left_out(self, p: int) -> list[int]:
        """Steps of plan `p` that are not run."""
        return [s for s, call in enumerate(self._calls[p]) if call is None]

    def _run(self, p: int) -> None:
        for call in self._calls[p]:
            if call is not None:
                call()

    def _fill(self) -> None:
        """Reset arrays outside the arena: steps change parameters, and soon beyond all bounds."""
        for array in self._arrays.values():
            fill(self._lowered.backend, array)


def succeeds(call: Run) -> bool:
    try:
        call()
    except Exception:  # arbitrary values may not suit a kernel
        return False
    return True


def can_be_run(call: Call) -> bool:
    """True if a call needs only its arrays, and no other ranks."""
    op = call.node.op
    return "state" not in call.kernel.signature.services and not (op and op.exchanged(call.node.attrs))
