"""What mirror counts cost, exactly, before anything is placed: most live bytes and recompute time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from .liveness import live_buffers
from .problem import padded, Problem
from .profiles import Profiles
from .schedule import make_schedule, without_copies
from .transfer import costs

MOST_COPIES = 4


class Evaluator:
    """Costs of candidates of one problem.

    The figures are those of the schedule that `make_schedule` would write and of its `live_buffers`: the
    planner promises bytes by them, so they are exact, never estimates.
    """

    def __init__(self, problem: Problem, strategy: str = "sharing") -> None:
        self.problem = problem
        self.strategy = strategy

    @cached_property
    def _profiles(self) -> Profiles:
        return Profiles(self.problem, in_place=self.strategy != "none", sharing=self.strategy == "sharing")

    def one(self, counts: Sequence[int], room: int = 0) -> tuple[int, float]:
        """(live bytes of the arena at the fullest step, extra seconds) for counts of any height.

        O(steps), in Python. Without sharing the bytes are those of all buffers together. `room` is as in
        `make_schedule`.
        """
        if self.strategy == "sharing":
            schedule, fetched = without_copies(self.problem, counts)
            if fetched:
                nbytes, waiting = costs(schedule, fetched, room)
                return nbytes, schedule.recompute_seconds + waiting
        else:
            schedule = make_schedule(self.problem, counts, room)
        live = live_buffers(schedule, in_place=self.strategy != "none")
        if self.strategy == "sharing":
            nbytes = live.max_live_bytes
        else:
            nbytes = sum(map(padded, live.nbytes))
        return nbytes, schedule.extra_seconds

    def many(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `one` for each row of `counts` (candidates, forward tasks): int64 bytes and float64 seconds.

        Rows of counts from 0 to MOST_COPIES are looked at together, in a small part of the time that `one`
        takes; others are given to it.
        """
        live, seconds, _ = self.stages(counts)
        return live.max(axis=1), seconds

    def stages(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(bytes, seconds, whether bytes are known by stage) for each row of `counts`.

        Bytes are (candidates, stages), see `Profiles.stages`. Of a row that `one` has to look at the first
        stage has them all, and the others nothing.
        """
        profiles = self._profiles
        live = np.zeros((len(counts), max(1, profiles.num_stages)), np.int64)
        seconds = np.zeros(len(counts), np.float64)
        alone = np.ones(len(counts), bool)
        highest = counts.max(axis=1, initial=0)
        offloads = (counts < 0).any(axis=1)
        for most in range(1, MOST_COPIES + 1) if profiles.plain else ():
            rows = np.flatnonzero((np.maximum(highest, 1) == most) & ~offloads)
            step = profiles.chunk(most)
            for at in range(0, len(rows), step):
                some = rows[at : at + step]
                live[some], seconds[some], alone[some] = profiles.stages(counts[some].T, most)
        for k in np.flatnonzero(alone).tolist():
            live[k] = 0
            live[k, 0], seconds[k] = self.one(counts[k].tolist())
        return live, seconds, ~alone
