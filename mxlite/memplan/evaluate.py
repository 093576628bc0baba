"""What mirror counts cost, exactly, before anything is placed: most live bytes and recompute time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from .costing import Costing, machine_code
from .liveness import live_buffers
from .problem import padded, Problem
from .profiles import is_plain, Profiles
from .schedule import make_schedule, without_copies
from .transfer import costs

MOST_COPIES = 4
AT_ONCE = 64  # candidates that machine code looks at in one go: arrays of results stay small


class Evaluator:
    """Costs of candidates of one problem.

    The figures are those of the schedule that `make_schedule` would write and of its `live_buffers`: the
    planner promises bytes by them, so they are exact, never estimates.
    """

    def __init__(self, problem: Problem, strategy: str = "sharing") -> None:
        self.problem = problem
        self.strategy = strategy

    @cached_property
    def _costing(self) -> Costing | None:
        """Machine code for this problem, where there is any."""
        code = machine_code()
        if code is None or self.strategy != "sharing" or not is_plain(self.problem):
            return None
        return Costing(self.problem, code)

    @cached_property
    def _profiles(self) -> Profiles:
        return Profiles(self.problem, in_place=self.strategy != "none", sharing=self.strategy == "sharing")

    def one(self, counts: Sequence[int], room: int = 0) -> tuple[int, float]:
        """(live bytes of the arena at the fullest step, extra seconds) for counts of any height.

        O(steps), in Python. Without sharing the bytes are those of all buffers together. `room` is as in
        `make_schedule`.
        """
        if self._costing is not None and min(counts, default=0) >= 0:
            most, extra, _ = self._costing(np.array([counts]), False)
            return int(most[0, 0]), float(extra[0])
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

        By machine code, or else rows of counts from 0 to MOST_COPIES are looked at together, in a small part
        of the time that `one` takes; others are given to it.
        """
        if self._costing is None:
            live, seconds, _ = self.stages(counts)
            return live.max(axis=1), seconds
        live, seconds, _ = self._by_machine(counts, False)
        for k in np.flatnonzero((counts < 0).any(axis=1)).tolist():
            live[k, 0], seconds[k] = self.one(counts[k].tolist())
        return live[:, 0], seconds

    def stages(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(bytes, seconds, whether bytes are known by stage) for each row of `counts`.

        Bytes are (candidates, stages), see `Profiles.stages`. Of a row with counts below 0 or above
        MOST_COPIES, or with several copies of which some come too late, the first stage has them all, and the
        others nothing.
        """
        highest = counts.max(axis=1, initial=0)
        offloads = np.asarray((counts < 0).any(axis=1))
        if self._costing is not None:
            live, seconds, late = self._by_machine(counts, True)
            alone = offloads | (highest > MOST_COPIES) | ((highest > 1) & late)
            most = live[alone].max(axis=1)
            live[alone] = 0
            live[alone, 0] = most
            unknown = offloads
        else:
            live, seconds, alone = self._by_tables(counts, highest, offloads)
            live[alone] = 0
            unknown = alone
        for k in np.flatnonzero(unknown).tolist():
            live[k, 0], seconds[k] = self.one(counts[k].tolist())
        return live, seconds, ~alone

    def _by_machine(self, counts: np.ndarray, stages: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What machine code says of rows without a count below 0; of others nothing that is of use."""
        assert self._costing is not None
        counts = np.maximum(counts, 0)
        parts = [
            self._costing(counts[at : at + AT_ONCE], stages) for at in range(0, max(len(counts), 1), AT_ONCE)
        ]
        live, seconds, late = (np.concatenate(rows) for rows in zip(*parts))
        return live, seconds, late

    def _by_tables(
        self, counts: np.ndarray, highest: np.ndarray, offloads: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(bytes, seconds, whether these are not known) by stage; rows of equal heights together."""
        profiles = self._profiles
        live = np.zeros((len(counts), max(1, profiles.num_stages)), np.int64)
        seconds = np.zeros(len(counts), np.float64)
        alone = np.ones(len(counts), bool)
        for most in range(1, MOST_COPIES + 1) if profiles.plain else ():
            rows = np.flatnonzero((np.maximum(highest, 1) == most) & ~offloads)
            step = profiles.chunk(most)
            for at in range(0, len(rows), step):
                some = rows[at : at + step]
                live[some], seconds[some], alone[some] = profiles.stages(counts[some].T, most)
        return live, seconds, alone
