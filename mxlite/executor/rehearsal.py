"""A planned step on scratch arrays, each call timed where it stands: behind the calls before it.

What a kernel takes depends on what others have left in the caches, on the threads' last share of the same
bytes, on code that was or was not run lately. Alone none of it is as in a step: the calls of a ResNet-56 took
half as long again, those of element by element arithmetic twice as long, as in the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from time import thread_time
from typing import Any

import numpy as np

from ..backends import Backend
from ..core.dtype import is_floating
from ..memplan import MemoryPlan
from .calls import call_of, views_of
from .kernel_thread import where_kernels_run
from .lower import Call, Lowered
from .step import Key

Run = Callable[[], None]
PATTERN = 8191  # numbers, repeated to fill an array; a prime, so that no row is like another


class Rehearsal:
    """`plans` of `lowered`, in turns on the same arrays: as many bytes as the largest plan has.

    Raises OutOfMemoryError. Calls that know more than their arrays are left out, for a user's operator is not
    run to be timed, and so are calls that fail. What kernels find are made-up numbers, which may become
    infinite or none on the way; no kernel takes longer for that.
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
        """Run plan `p` twice on one thread. Of each step of its schedule the seconds of this thread in the
        second run, which finds what the first has left; 0 if left out.
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
        """What is outside the arena is as at first: steps change parameters, and soon beyond all bounds."""
        for array in self._arrays.values():
            fill(self._lowered.backend, array)


def succeeds(call: Run) -> bool:
    try:
        call()
    except Exception:  # made-up values need not suit a kernel
        return False
    return True


def can_be_run(call: Call) -> bool:
    """Whether a call has all that it needs in its arrays."""
    return "state" not in call.kernel.signature.services


def fill(backend: Backend, array: Any) -> None:
    """Numbers in [0.5, 1.5) where there are fractions, else 0: no denormals, and indices that exist.

    Arithmetic on denormal numbers is many times slower, and garbage is full of them.
    """
    if not is_floating(array.dtype):
        backend.fill(array, 0)
        return
    pattern = _pattern(array.dtype)
    if backend.is_remote:
        backend.from_host(array, np.resize(pattern, array.shape))
        return
    flat = array.reshape(-1)  # thousands of arrays before each turn: no other is made for their numbers
    whole = len(flat) // PATTERN * PATTERN
    flat[:whole].reshape(-1, PATTERN)[:] = pattern
    flat[whole:] = pattern[: len(flat) - whole]


@cache
def _pattern(dtype: Any) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.5, 1.5, PATTERN).astype(dtype)
