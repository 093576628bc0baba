"""Measurement of schedules: worker processes build a batch, and then another one times it.

    builders, one on each core, until all are built | the timer, on as many cores as a task has threads

Nothing runs beside a measurement. A schedule that crashes its process, hangs or computes something else is an
outcome as any other.

DOPpler (Borowiec et al., "DOPpler: Parallel Measurement Infrastructure for Auto-Tuning Deep Learning Tensor
Programs", TPDS 2023) times several schedules at once, too, and controls how many by what a repetition alone
differs by. Kernels here use all cores: nothing is left to be controlled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from statistics import median
from time import monotonic
from typing import Any

from .process import cores_here, Worker
from .space import Schedule
from .task import Task
from .worker import Timed

MOST_BUILDERS = 8
LEAST_S, MOST_S = 2.0, 20.0  # of one measurement
TIMES = 4.0  # median measurements after which one is given up


@dataclass(frozen=True)
class Outcome:
    """The times of one schedule, or why it has none."""

    schedule: Schedule
    timed: Timed | None
    failure: str = ""

    @property
    def seconds(self) -> float:
        return self.timed.seconds if self.timed else float("inf")


class Patience:
    """How long a measurement may take: a few times what others of the task took."""

    def __init__(self) -> None:
        self._took: list[float] = []

    def add(self, seconds: float) -> None:
        self._took.append(seconds)

    @property
    def limit_s(self) -> float:
        return min(MOST_S, max(LEAST_S, TIMES * median(self._took))) if self._took else MOST_S


class Measurer:
    """Measures schedules of tasks with `threads` threads. `serial`: the process that times builds, too."""

    def __init__(self, threads: int, serial: bool = False, cores: Sequence[int] | None = None) -> None:
        here = list(cores_here() if cores is None else cores)
        self._timer = Worker(here[: max(1, threads)])
        self._builders = [] if serial else [Worker([core]) for core in here[:MOST_BUILDERS]]
        self._patience: dict[Task, Patience] = {}

    def measure(self, task: Task, schedules: Sequence[Schedule]) -> list[Outcome]:
        """The outcome of each schedule."""
        fates: dict[int, Outcome] = {}
        numbers = list(range(len(schedules)))
        if self._builders and len(schedules) > 1:
            for i, (kind, result) in self._run(self._builders, "build", task, schedules, numbers).items():
                if kind == "failed":
                    fates[i] = Outcome(schedules[i], None, result)
        left = [i for i in numbers if i not in fates]
        for i, (kind, result) in self._run([self._timer], "time", task, schedules, left).items():
            is_timed = kind != "failed"
            fates[i] = (
                Outcome(schedules[i], Timed(*result)) if is_timed else Outcome(schedules[i], None, result)
            )
        return [fates[i] for i in numbers]

    def in_turns(self, task: Task, schedules: Sequence[Schedule], turns: int) -> list[list[Outcome]]:
        """The outcomes of some schedules that are measured one after the other, so many times."""
        rounds = [[self.measure(task, [s])[0] for s in schedules] for _ in range(turns)]
        return [list(own) for own in zip(*rounds)]

    def _run(
        self,
        workers: Sequence[Worker],
        what: str,
        task: Task,
        schedules: Sequence[Schedule],
        numbers: Sequence[int],
    ) -> dict[int, tuple[str, Any]]:
        """The answers of workers that share these schedules, by their numbers."""
        patience = self._patience.setdefault(task, Patience())
        found: dict[int, tuple[str, Any]] = {}
        left = list(numbers)
        while True:
            for worker in workers:
                if worker.busy is None and left:
                    i = left.pop(0)
                    worker.ask(what, task, schedules[i], patience.limit_s, (i, monotonic()))
            busy = [w for w in workers if w.busy is not None]
            if not busy:
                return found
            soon = min(w.deadline for w in busy) - monotonic()
            ready = wait([w.pipe for w in busy if w.pipe], max(0.0, soon))
            for worker in busy:
                i, began = worker.busy
                if worker.pipe in ready:
                    found[i] = worker.answer()
                    if what == "time" and found[i][0] != "failed":
                        patience.add(monotonic() - began)
                elif monotonic() > worker.deadline:
                    limit = worker.deadline - began
                    worker.stop()
                    found[i] = "failed", f"hang: no answer within {limit:.1f} s"

    def close(self) -> None:
        """End all processes."""
        for worker in (self._timer, *self._builders):
            worker.stop()

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
