"""Pool of candidates of one problem with their costs, and the Pareto-optimal ones among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from ...core.cached import cached_property
from ..problem import Problem
from . import split
from .evaluate import Evaluator
from .holds import Held, Holds
from .schedule import Choice, Runs, without_copies

MOST_NOTED = 100  # runs of one task that a point's counts can record
BATCH = 256  # candidates costed together
DEEP = 30  # how much more work a candidate with counts above 1 is
TOGETHER = 2**28  # bytes of schedules that are held at once, for large schedules


@dataclass(frozen=True)
class Point:
    """A choice of recomputations with its cost before placement.

    `counts` are mirror counts, as bytes, one for each forward task. Where there are `runs`, those apply, and
    `counts` only records how many they are.
    """

    method: str
    counts: bytes
    live_bytes: int
    seconds: float
    room: int = 0  # live bytes that copies may take to overlap, see `make_schedule`
    runs: Runs | None = None

    @property
    def key(self) -> bytes | Runs:
        """Key of the choice, equal for equal choices."""
        return self.counts if self.runs is None else self.runs

    @property
    def choice(self) -> Choice:
        """The choice in the form that `make_schedule` takes."""
        return self.array.tolist() if self.runs is None else self.runs

    @property
    def array(self) -> np.ndarray:
        return np.frombuffer(self.counts, np.int8).astype(np.int64)


class CandidatePool:
    """Tries mirror counts and keeps the best: `points`, ascending in seconds and falling in bytes.

    `visits` is the work done, in tasks times candidates, where those that run a task more than twice count
    DEEP times as much. All candidates drop what the user marked.
    """

    def __init__(self, problem: Problem, strategy: str = "sharing") -> None:
        self.problem = problem
        self.evaluator = Evaluator(problem, strategy)
        self.forced = np.array(split.forced(problem), np.int64)
        self.points: list[Point] = []
        self.visits = 0
        self._tried: set[bytes] = set()
        self._known: list[Point] | None = None  # the points that `_front` describes
        self._front = np.zeros(0), np.zeros(1, np.int64)  # their seconds and bytes

    def add(self, methods: Sequence[str] | str, rows: np.ndarray) -> None:
        """Cost each row of mirror counts (candidates, forward tasks) that is new, and keep the best."""
        rows = np.where((rows < 0) & (self.forced == 0), rows, np.maximum(rows, self.forced))
        fresh, names = [], []
        for i, row in enumerate(rows.astype(np.int8)):
            key = blake2b(row.tobytes(), digest_size=16).digest()
            if key not in self._tried:
                self._tried.add(key)
                fresh.append(i)
                names.append(methods if isinstance(methods, str) else methods[i])
        for at in range(0, len(fresh), BATCH):
            part = rows[fresh[at : at + BATCH]]
            nbytes, seconds = self.evaluator.many(part)
            deep = int((part > 1).any(axis=1).sum())
            self.visits += (len(part) + (DEEP - 1) * deep) * len(self.problem.tasks)
            self._note(names[at : at + BATCH], part, nbytes, seconds)

    def together(self, method: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(bytes, seconds) of rows with counts up to about 3, whether they were tried before or not; what no
        point beats is kept.

        If most rows can be costed together, one that cannot has NEVER bytes: it would take as long as
        hundreds of the others.
        """
        rows = np.maximum(rows, self.forced)
        live, seconds = self.evaluator.stages(rows, others=not self.evaluator.runs_by_stage)
        nbytes = live.max(axis=1)
        self.visits += len(rows) * len(self.problem.tasks)
        self._note([method] * len(rows), rows, nbytes, seconds)
        return nbytes, seconds

    @cached_property
    def holds(self) -> Holds:
        """Bit tables of the problem, if it has `Evaluator.runs_by_stage`."""
        return Holds(self.problem, self.evaluator.profiles, self.forced.tolist())

    def states(self, points: Sequence[Point]) -> Held:
        """The schedules of points that offload nothing, as bits."""
        return self.holds.of([p.runs or without_copies(self.problem, p.choice)[0].runs for p in points])

    def held(self, method: str, states: Held) -> tuple[np.ndarray, np.ndarray]:
        """(bytes by stage, seconds) of schedules with any runs; those that no point beats are kept."""
        num, stage = self.holds.runs_of(states)
        live, seconds = self.evaluator.stages_of_runs(num, stage)
        self.visits += len(states) * len(self.problem.tasks)
        few, most = np.minimum(num, MOST_NOTED), live.max(axis=1)
        self._note([method] * len(states), few, most, seconds, lambda i: self.holds.runs(states, i))
        return live, seconds

    def changed(
        self, method: str, state: Held, first: np.ndarray, spans: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """`held` for schedules obtained from one by rows of `spans` from first[k] to first[k + 1], as many
        of them at a time as memory allows.
        """
        count = len(first) - 1
        each = max(1, TOGETHER // self.holds.nbytes)
        parts = [
            self.held(method, self.holds.edited(state, some, spans))
            for at in range(0, count, each)
            for some in [first[at : at + each + 1]]
        ]
        live, seconds = zip(*parts)
        return np.concatenate(live), np.concatenate(seconds)

    def _note(
        self,
        methods: Sequence[str],
        rows: np.ndarray,
        nbytes: np.ndarray,
        seconds: np.ndarray,
        runs: Callable[[int], Runs] | None = None,
    ) -> None:
        """Keep the rows that no point beats. `runs(i)` gives the runs of row i."""
        if self._known is not self.points:
            self._known = self.points
            self._front = (
                np.array([p.seconds for p in self.points]),
                np.array([p.live_bytes for p in self.points] or [0]),
            )
        times, least = self._front
        at = np.searchsorted(times, seconds, "right") - 1
        found = np.flatnonzero((at < 0) | (nbytes < least[at]))
        if not len(found):
            return
        found = found[np.lexsort((nbytes[found], seconds[found]))]
        best = np.minimum.accumulate(nbytes[found])
        found = found[np.concatenate([[True], nbytes[found[1:]] < best[:-1]])].tolist()
        self._keep(
            [
                Point(
                    methods[i],
                    rows[i].astype(np.int8).tobytes(),
                    int(nbytes[i]),
                    float(seconds[i]),
                    runs=runs(i) if runs else None,
                )
                for i in found
            ]
        )

    def widen(self, point: Point, room: int) -> None:
        """Cost `point` with `room` for its copies."""
        nbytes, seconds = self.evaluator.one(point.choice, room)
        self.visits += len(self.problem.tasks)
        self._keep([replace(point, live_bytes=nbytes, seconds=seconds, room=room)])

    def _keep(self, found: list[Point]) -> None:
        # Among equals the first that was tried wins; the sort is stable.
        both = sorted([*self.points, *found], key=lambda p: (p.seconds, p.live_bytes))
        best, self.points = None, []
        for p in both:
            if best is None or p.live_bytes < best:
                self.points.append(p)
                best = p.live_bytes
