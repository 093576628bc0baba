"""Tuning of a step's kernels: which task next, what of it is measured, what is believed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from ..base import Backend
from . import model
from .measure import Measurer, Outcome
from .records import GAIN, Record, RecordFile
from .search import ModelSearch, RandomSearch
from .space import Schedule, TaskSpace
from .task import device_key, Task, versions

BATCH = 4
LEAST_S = 20e-6  # calls below that are not tuned: their times are the clock's and the caller's
TURNS = 5  # in which a new best and the default are measured alone, one after the other
PATIENCE = 4  # batches without a better one, after which a task is done
TOLD = Callable[[str, int], None]


@dataclass
class Progress:
    """A task while it is tuned. `before_s` is its default's time, `after_s` that of the confirmed `best`."""

    task: Task
    space: TaskSpace
    search: RandomSearch | None = None
    seconds: dict[Schedule, float] = field(default_factory=dict)
    digests: dict[Schedule, str] = field(default_factory=dict)
    before_s: float = float("inf")
    after_s: float = float("inf")
    best: Schedule | None = None
    failures: int = 0
    stale: int = 0
    refused: set[Schedule] = field(default_factory=set)
    is_done: bool = False

    @property
    def default(self) -> Schedule:
        return self.space.default

    @property
    def weight(self) -> float:
        """Seconds of a step that it takes now, less for each batch that brought nothing."""
        return self.task.count * min(self.before_s, self.after_s) / (1 + self.stale)

    def joined(self) -> list[Schedule]:
        """The schedule that changes what the best ones change, each other knobs: those of another part of
        the kernel. Empty if it was measured.
        """
        usual = self.default
        knobs = list(usual.knobs)
        for s in sorted(self.seconds, key=lambda s: self.seconds[s]):
            if (s.kernel, s.threads) == (usual.kernel, usual.threads) and self.seconds[s] < self.before_s:
                changed = [k for k, (x, y) in enumerate(zip(s.knobs, usual.knobs)) if x != y]
                if all(knobs[k] == usual.knobs[k] for k in changed):
                    for k in changed:
                        knobs[k] = s.knobs[k]
        found = replace(usual, knobs=tuple(knobs))
        return [] if found in self.seconds or self.space.kernel(found) is None else [found]


class Tuner:
    """Tunes tasks of one backend into a file of records. `tell` hears what each batch was, and its size."""

    def __init__(
        self,
        tasks: Sequence[Task],
        backend: Backend,
        file: RecordFile,
        measurer: Measurer,
        tell: TOLD = lambda line, count: None,
        *,
        by_model: bool | None = None,
        seed: int = 0,
    ) -> None:
        self._file, self._measurer, self._tell = file, measurer, tell
        self._device = device_key(backend)
        self._model = model.TreeModel() if (model.available() if by_model is None else by_model) else None
        self._seed = seed
        self.tasks = [Progress(task, task.space(backend)) for task in tasks]

    def _search(self, p: Progress) -> RandomSearch:
        """The search of a task, made at its first turn: spaces are large, and many tasks take little time."""
        if p.search is None:
            others = [s for s in p.space.legal if s != p.default]
            if self._model is None:
                p.search = RandomSearch(others, self._seed)
            else:
                features = {s: p.space.features(s) for s in others}
                p.search = ModelSearch(others, features, self._model, self._seed)
        return p.search

    def run(self, seconds: float) -> None:
        """Tune for so long, or until nothing is left to try. KeyboardInterrupt loses no finished batch."""
        end = time.monotonic() + seconds
        for p in self.tasks:
            if time.monotonic() < end:
                self._batch(p, [p.default])  # which tasks matter
            p.is_done = not LEAST_S <= p.before_s < float("inf")
        while time.monotonic() < end:
            left = [p for p in self.tasks if not p.is_done]
            if not left:
                return
            p = max(left, key=lambda p: p.weight)
            drawn = self._search(p).next(BATCH) if p.stale < PATIENCE else []
            if schedules := drawn or p.joined():
                self._batch(p, schedules)
            p.is_done = not schedules

    def _batch(self, p: Progress, schedules: Sequence[Schedule]) -> None:
        found = self._measurer.measure(p.task, schedules)
        if self._model is not None:
            rows = [p.space.features(o.schedule) for o in found]
            self._model.learn(rows, [o.seconds for o in found], p.task.key)
        for o in found:
            p.seconds[o.schedule] = o.seconds
            p.failures += o.timed is None
            if o.timed:
                p.digests[o.schedule] = o.timed.digest
        if p.default in (o.schedule for o in found):
            p.before_s = p.after_s = p.seconds[p.default]
        self._put(p, [o for o in found if o.timed], p.before_s, False)
        self._tell(f"{p.task.request.op.op_name} {p.task.name}", len(found))
        self._confirm(p)

    def _confirm(self, p: Progress) -> None:
        """Measure the fastest schedule and the default alone, in turns, if that may be GAIN faster."""
        fresh = [s for s in p.seconds if s not in p.refused and s != p.best and s != p.default]
        found = min(fresh, key=lambda s: p.seconds[s], default=None)
        limit = min(p.before_s * (1 - GAIN), p.seconds.get(p.best, float("inf")) if p.best else float("inf"))
        p.stale += 1
        if found is not None and p.seconds[found] < limit:
            own, usual = self._measurer.in_turns(p.task, [found, p.default], TURNS)
            p.refused.add(found)
            if all(o.timed for o in (*own, *usual)):
                here, there = (median(o.seconds for o in some) for some in (own, usual))
                if here < there * (1 - GAIN) and here / there < p.after_s / p.before_s:
                    p.best, p.stale = found, 0
                    p.before_s, p.after_s = there, here
                    p.seconds[found] = here
                    middle = sorted(own, key=lambda o: o.seconds)[len(own) // 2]
                    self._put(p, [middle], there, True)

    def _put(self, p: Progress, outcomes: Sequence[Outcome], default_s: float, confirmed: bool) -> None:
        if not default_s < float("inf"):
            return
        rows = [
            Record(
                p.task.key,
                self._device,
                o.schedule,
                p.task.request.op.op_name,
                o.timed.seconds,
                o.timed.cold,
                default_s,
                confirmed,
                p.digests.get(o.schedule, ""),
                versions(),
                int(time.time()),
            )
            for o in outcomes
            if o.timed
        ]
        self._file.put(rows)
