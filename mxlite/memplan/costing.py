"""What mirror counts cost, by machine code: a microsecond for some ten steps.

The loops are those of walking.py. Where llvmlite is not installed nobody asks for this, and the same figures
come from profiles.py and from schedules written down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np

from .compiled import compiled
from .problem import padded, Problem
from .walking import PARTS

Call = Callable[..., int]


@cache
def machine_code() -> Call | None:
    """The walk, compiled once; None without llvmlite."""
    return compiled(PARTS)


class Costing:
    """Costs of candidates of a plain problem (see `profiles.is_plain`), with sharing and in place.

    `walk` is the compiled one; `kind` makes the arrays that it works in.
    """

    def __init__(
        self, problem: Problem, walk: Call, kind: Callable[[np.ndarray], object] = np.asarray
    ) -> None:
        tasks, values, n = problem.tasks, problem.values, problem.num_forward
        self.walk, self.kind = walk, kind
        self.problem = problem
        backward = [t for t in range(n, len(tasks)) if not tasks[t].update]
        self.num_stages = n + max(1, len(backward))
        self.droppable = np.array([t.recomputable and not t.mutates for t in tasks[:n]], bool)
        self.seconds = np.array([t.seconds for t in tasks[:n]], np.float64)
        made = problem.arena_producer
        outputs = [[v for v in t.outputs if v >= 0 and made[v] >= 0] for t in tasks]
        joins = [
            [(outputs[t].index(tasks[t].outputs[out]), tasks[t].inputs[donor]) for out, donor in pairs]
            for t, pairs in enumerate(problem.joins)
        ]
        number: dict[int, int] = {}  # of storage that tasks change
        for task in tasks:
            for v in task.mutates:
                number.setdefault(v, len(number))
        self.outputs = np.array([len(row) for row in outputs[:n]], np.int64)
        always = [v for t in tasks for v in t.always if v >= 0]
        is_always = np.zeros(len(values), np.int64)
        is_always[always] = 1
        self.numbers = (
            n,
            len(tasks),
            len(values),
            len(number),
            len(backward),
            len(problem.updates),
            self.num_stages,
        )
        tables = [
            _array(backward),
            _array(problem.updates),
            _array(t.update for t in tasks),
            _array(padded(t.workspace) for t in tasks),
            _array(padded(v.nbytes) for v in values),
            is_always,
            *_rows(problem.reads),
            *_rows([v for v in t.inputs if made[v] >= 0] for t in tasks),
            *_rows(outputs),
            *_rows([place for place, _ in row] for row in joins),
            _array(donor for row in joins for _, donor in row),
            *_rows([number[v] for v in t.inputs if v in number] for t in tasks),
            *_rows([number[v] for v in t.mutates] for t in tasks),
            *_rows([p for v in tasks[t].inputs if (p := problem.producer[v]) >= 0] for t in problem.updates),
        ]
        self.tables = [kind(t) for t in tables]
        self.steps, self.instances = -1, -1
        self.work: list[object] = []

    def __call__(self, counts: np.ndarray, stages: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(bytes, seconds, whether copies would have come too late) for each row of counts (candidates,
        forward tasks) of 0 and more, of any height.

        Bytes are (candidates, stages), or (candidates, 1) for all of them together. O(steps).
        """
        number, n = counts.shape
        counts = np.where(self.droppable, counts, 0).astype(np.int64)
        self._make_room(int(counts.sum(axis=1).max(initial=0)), int((counts @ self.outputs).max(initial=0)))
        peaks = np.zeros((number, self.num_stages if stages else 1), np.int64)
        runs, late = np.empty((number, n), np.int64), np.empty(number, np.int64)
        most = np.empty(number, np.int64)
        results = [self.kind(a.ravel()) for a in (counts, runs, peaks, most, late)]
        self.walk(number, int(stages), *self.numbers, *self.tables, *self.work, *results)
        shapes = (runs.shape, peaks.shape, most.shape, late.shape)
        again, by_stage, bytes_of, lates = (
            np.asarray(r).reshape(shape) for r, shape in zip(results[1:], shapes)
        )
        seconds = np.zeros(number)
        for i, row in enumerate(again):
            # One after the other by task number, as schedules add them up.
            sums = np.cumsum(np.repeat(self.seconds, row))
            seconds[i] = sums[-1] if len(sums) else 0.0
        return by_stage if stages else bytes_of[:, None], seconds, lates > 0

    def _make_room(self, copies: int, instances: int) -> None:
        """Arrays for so many copies of tasks and of values besides the first."""
        if copies <= self.steps and instances <= self.instances:
            return
        self.steps, self.instances = max(copies, self.steps), max(instances, self.instances)
        n, tasks, values, storage, _, updates, _ = self.numbers
        steps, instances = tasks + self.steps + 2, values + self.instances
        lengths = (
            storage, tasks, n, n, n, n, n, steps, steps, steps, updates, steps, steps,
            values, instances, instances, steps, n, n, self.num_stages, 2,
        )  # fmt: skip
        self.work = [self.kind(np.zeros(length, np.int64)) for length in lengths]


def _array(numbers: Iterable[int]) -> np.ndarray:
    return np.array(list(numbers), np.int64)


def _rows(rows: Iterable[Iterable[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Where each row begins, and all rows end to end."""
    kept = [list(row) for row in rows]
    return np.cumsum([0, *map(len, kept)]).astype(np.int64), _array(x for row in kept for x in row)
