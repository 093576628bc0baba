"""Measurement of schedules: built in worker processes, timed on reserved cores.

    cores of this process    timers, each on as many as a task has threads | builders on those that are left

If no core is left, all of a batch is built first, on every core, and then timed. A schedule that crashes
its process, hangs or computes something else is an outcome as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from time import monotonic
from typing import Any

from .control import Degree, Patience, to_repeat
from .process import cores_here, Worker
from .space import Schedule
from .task import Task
from .worker import Timed

MOST_WORKERS = 8  # of each kind


@dataclass(frozen=True)
class Outcome:
    """The times of one schedule, or why it has none."""

    schedule: Schedule
    timed: Timed | None
    failure: str = ""

    @property
    def seconds(self) -> float:
        return self.timed.seconds if self.timed else float("inf")


class Measurer:
    """Measures schedules of tasks with `threads` threads. `serial`: nothing runs beside a measurement."""

    def __init__(self, threads: int, serial: bool = False, cores: Sequence[int] | None = None) -> None:
        here = list(cores_here() if cores is None else cores)
        each = max(1, min(threads, len(here)))
        spare = len(here) - each
        count = 1 if serial or spare < 1 else min(MOST_WORKERS, max(1, (len(here) - 1) // each))
        self._timers = [Worker(here[k * each : (k + 1) * each]) for k in range(count)]
        left = here[count * each :]
        self._beside = bool(left) and not serial  # builders have cores of their own
        where = [] if serial else left or here
        self._builders = [Worker([core]) for core in where[:MOST_WORKERS]]
        self.degree = Degree(count)
        self._patience: dict[Task, Patience] = {}

    def measure(self, task: Task, schedules: Sequence[Schedule]) -> list[Outcome]:
        """The outcome of each schedule; one in five is measured again alone, and that counts."""
        found = self._batch(task, schedules, self.degree.now)
        good = [i for i, o in enumerate(found) if o.timed]
        drifts = []
        if len(schedules) > 1 and (self.degree.now > 1 or self._beside):
            for k in to_repeat([found[i].seconds for i in good]):
                i = good[k]
                (again,) = self._batch(task, [schedules[i]], 1)
                if again.timed:
                    drifts.append(abs(again.seconds / found[i].seconds - 1))
                found[i] = again
            self.degree.learn(drifts)
        return found

    def in_turns(self, task: Task, schedules: Sequence[Schedule], turns: int) -> list[list[Outcome]]:
        """The outcomes of some schedules that are measured one after the other, so many times."""
        rounds = [[self._batch(task, [s], 1)[0] for s in schedules] for _ in range(turns)]
        return [list(own) for own in zip(*rounds)]

    def _batch(self, task: Task, schedules: Sequence[Schedule], at_once: int) -> list[Outcome]:
        patience = self._patience.setdefault(task, Patience())
        found: list[Outcome | None] = [None] * len(schedules)
        timers, to_time = self._timers[:at_once], list(range(len(schedules)))
        builders = self._builders if len(schedules) > 1 else []
        to_build: list[int] = []
        if builders:
            to_time, to_build = [], to_time

        def give(workers: Sequence[Worker], what: str, numbers: list[int]) -> None:
            for worker in workers:
                if worker.busy is None and numbers:
                    i = numbers.pop(0)
                    worker.ask(what, task, schedules[i], patience.limit_s, (what, i, monotonic()))

        def settle(worker: Worker, kind: str, result: Any, busy: Any) -> None:
            what, i, began = busy
            if kind == "failed":
                found[i] = Outcome(schedules[i], None, result)
            elif what == "build":
                to_time.append(i)
            else:
                patience.add(monotonic() - began)
                found[i] = Outcome(schedules[i], Timed(*result))

        while True:
            give(builders, "build", to_build)
            if self._beside or not any(w.busy for w in builders):
                give(timers, "time", to_time)
            busy = [w for w in (*builders, *timers) if w.busy is not None]
            if not busy:
                break
            left = min(w.deadline for w in busy) - monotonic()
            ready = wait([w.pipe for w in busy if w.pipe], max(0.0, left))
            for worker in busy:
                asked = worker.busy
                if worker.pipe in ready:
                    settle(worker, *worker.answer(), asked)
                elif monotonic() > worker.deadline:
                    limit = worker.deadline - asked[2]
                    worker.stop()
                    settle(worker, "failed", f"hang: no answer within {limit:.1f} s", asked)
        return [o for o in found if o is not None]

    def close(self) -> None:
        """End all processes."""
        for worker in (*self._timers, *self._builders):
            worker.stop()

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
