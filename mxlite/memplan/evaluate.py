"""What mirror counts cost, exactly, before anything is placed: most live bytes and recompute time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .liveness import live_buffers
from .problem import padded, Problem
from .schedule import make_schedule


class Evaluator:
    """Costs of candidates of one problem.

    The figures are those of the schedule that `make_schedule` would write and of its `live_buffers`: the
    planner promises bytes by them, so they are exact, never estimates.
    """

    def __init__(self, problem: Problem, strategy: str = "sharing") -> None:
        self.problem = problem
        self.strategy = strategy

    def one(self, counts: Sequence[int]) -> tuple[int, float]:
        """(live bytes of the arena at the fullest step, recompute seconds) for counts of any height."""
        schedule = make_schedule(self.problem, counts)
        live = live_buffers(schedule, in_place=self.strategy != "none")
        if self.strategy == "sharing":
            nbytes = live.max_live_bytes
        else:
            nbytes = sum(map(padded, live.nbytes))
        return nbytes, schedule.extra_seconds

    def many(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `one` for each row of `counts` (candidates, forward tasks): int64 bytes and float64 seconds."""
        found = [self.one(row) for row in counts.tolist()]
        return np.array([b for b, _ in found], np.int64), np.array([s for _, s in found], np.float64)
