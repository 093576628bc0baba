"""Exact cost of mirror counts and runs before placement: peak live bytes and recompute time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.cached import cached_property
from ..placement.liveness import live_buffers
from ..problem import padded, Problem
from . import stepwise
from .profiles import Profiles
from .schedule import Choice, make_schedule, Runs, without_copies
from .transfer import costs

NEVER = 1 << 62  # bytes of a candidate that is not examined
ADDED = 1 << 20  # numbers that are summed at once, about


class Evaluator:
    """Costs of candidates of one problem.

    The figures are those of the schedule that `make_schedule` would write and of its `live_buffers`: the
    planner promises bytes by them, so they are exact, never estimates.
    """

    def __init__(self, problem: Problem, strategy: str = "sharing") -> None:
        self.problem = problem
        self.strategy = strategy

    @cached_property
    def profiles(self) -> Profiles:
        """Tables of the problem, for costing many candidates at once."""
        return Profiles(self.problem)

    @cached_property
    def _stepwise(self) -> stepwise.Stepwise:
        return stepwise.Stepwise(self.problem, self.profiles, stepwise.machine_code())

    def one(self, choice: Choice, room: int = 0) -> tuple[int, float]:
        """(peak live bytes of the arena, extra seconds) for counts of any height, or for runs.

        O(steps), in Python. Without sharing the bytes are those of all buffers together. `room` is as in
        `make_schedule`.
        """
        if self.strategy == "sharing":
            schedule, fetched = without_copies(self.problem, choice)
            if fetched:
                nbytes, waiting = costs(schedule, fetched, room)
                return nbytes, schedule.recompute_seconds + waiting
        else:
            schedule = make_schedule(self.problem, choice, room)
        live = live_buffers(schedule, in_place=self.strategy != "none")
        if self.strategy == "sharing":
            nbytes = live.max_live_bytes
        else:
            nbytes = sum(map(padded, live.nbytes))
        return nbytes, schedule.extra_seconds

    def many(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `one` for each row of `counts` (candidates, forward tasks): int64 bytes and float64 seconds."""
        live, seconds = self.stages(counts)
        return live.max(axis=1), seconds

    def stages(self, counts: np.ndarray, others: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """(bytes, seconds) for each row of `counts`.

        Bytes are (candidates, stages): each forward task is a stage, and each backward task with all that is
        recomputed for it, and with the updates after the one before. A row that only `one` can cost has all
        its bytes in the first stage, and none in the others. Without `others` such rows are not costed: their
        bytes are NEVER.
        """
        stages = self.profiles.num_forward + self.profiles.never if self.runs_by_stage else 1
        live = np.zeros((len(counts), stages), np.int64)
        seconds = np.zeros(len(counts), np.float64)
        alone = np.ones(len(counts), bool)
        if self.runs_by_stage:
            highest = counts.max(axis=1, initial=0)
            flat = counts.min(axis=1, initial=0) >= 0
            rows = np.flatnonzero(flat)
            found = self._stepwise.of_counts(np.where(self.profiles.droppable, counts[rows], 0))
            live[rows], num, late = found
            seconds[rows], alone[rows] = self._seconds(num), late & (highest[rows] > 1)
        if not others:
            live[alone, 0] = NEVER
            return live, seconds
        for k in np.flatnonzero(alone).tolist():
            live[k] = 0
            live[k, 0], seconds[k] = self.one(counts[k].tolist())
        return live, seconds

    def _seconds(self, num: np.ndarray) -> np.ndarray:
        """Seconds of forward tasks that are recomputed `num` (candidates, forward tasks) times."""
        most = num.max(axis=0, initial=0)
        tasks = np.repeat(np.arange(len(most)), most)
        found = np.zeros(len(num))
        if not len(tasks):
            return found
        runs = np.arange(len(tasks)) - np.repeat(np.cumsum(most) - most, most)  # for each task: 0, 1, ...
        seconds = self.profiles.seconds[tasks]
        step = max(1, ADDED // len(tasks))
        for at in range(0, len(num), step):
            again = num[at : at + step, tasks] > runs
            found[at : at + step] = np.cumsum(np.where(again, seconds, 0.0), axis=1)[:, -1]
        return found

    def stages_of_runs(self, num: np.ndarray, stage: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(bytes by stage, seconds) of candidates given by their runs.

        `num` (candidates, forward tasks): how often each is recomputed. `stage`: `Runs.stages` of all of
        them, concatenated. Each run must be possible where it is scheduled. For problems that have
        `runs_by_stage` only.
        """
        return self._stepwise.of_runs(num, stage), self._seconds(num)

    def choices(self, choices: Sequence[Choice]) -> tuple[np.ndarray, np.ndarray]:
        """As `one` for each of `choices`: int64 bytes and float64 seconds."""
        nbytes, seconds = np.zeros(len(choices), np.int64), np.zeros(len(choices), np.float64)
        counts = [i for i, c in enumerate(choices) if not isinstance(c, Runs)]
        if counts:
            nbytes[counts], seconds[counts] = self.many(np.array([choices[i] for i in counts]))
        for i, c in enumerate(choices):
            if isinstance(c, Runs):
                nbytes[i], seconds[i] = self.one(c)
        return nbytes, seconds

    @cached_property
    def runs_by_stage(self) -> bool:
        """True if the costs of runs can be computed stage by stage."""
        return self.profiles.plain and self.profiles.never > 0 and self.strategy == "sharing"
