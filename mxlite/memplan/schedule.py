"""Which task runs when, and which of them run again: mirroring.

Tianqi Chen, Bing Xu, Chiyuan Zhang, Carlos Guestrin 2016, "Training Deep Nets with Sublinear Memory
Cost". Each forward task v has a mirror count m(v). With m(v) = 0 its outputs are kept from the forward pass
until backward has used them. With m(v) = 1 they are dropped and v runs a second time, just before
backward needs it. Counts above 1 give the recursive scheme: the k-th copy of v reads, of each of its
inputs u, copy min(k, m(u)); so tasks with count 1 are the kept points *inside* a segment that is
itself recomputed, and backward reads copy m(v) of everything.

    m:        0   2   2   1   2   2   0   2   2   1   2   2   0
    forward   o---.---.---.---.---.---o---.---.---.---.---.---o      o kept, . dropped at once
    copy 1    (last segment)          o---.---.---+                  + kept while the segment is worked on
    copy 2                                        +---.---.---o      backward walks back over these,
    copy 2                            o---.---.---+                  then over these, then the first segment

The paper duplicates nodes in the graph and lets the executor find an order. Here the order is written
down as it arises: before each backward task, whatever it needs and is not there is run, smallest task number
first. That is the paper's "logical execution order" and linear in its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .problem import Problem


@dataclass(frozen=True)
class Schedule:
    """The steps of a training step in order.

    Step s runs task `task[s]`, as copy `copy[s]` (0: the first time). `inputs[s]` and `outputs[s]` are
    instances; instance i holds value `value_of[i]`. Outputs are -1 where no step reads them. The first
    `num_forward` steps are the forward pass.
    """

    problem: Problem
    task: tuple[int, ...]
    copy: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    value_of: tuple[int, ...]
    num_forward: int

    @property
    def extra_seconds(self) -> float:
        """Modelled time of everything that runs more than once, added up by task number."""
        tasks = self.problem.tasks
        total = 0.0  # not sum(), which rounds otherwise in some versions of Python
        for t in sorted(t for t, k in zip(self.task, self.copy) if k):
            total += tasks[t].seconds
        return total

    @property
    def extra_time(self) -> float:
        """Recompute time as a share of the step without it."""
        total = self.problem.step_seconds
        return self.extra_seconds / total if total else 0.0


def make_schedule(problem: Problem, mirror: Sequence[int]) -> Schedule:
    """The schedule for mirror counts `mirror`, one for each forward task.

    A task that cannot be recomputed counts as 0 whatever `mirror` says, and so does one that would read
    storage after an update has changed it. O(steps).
    """
    counts = [
        (m if problem.tasks[t].recomputable and not problem.tasks[t].mutates else 0)
        for t, m in enumerate(mirror)
    ]
    while True:
        steps = _emit(problem, counts)
        late = _late_readers(problem, *steps)
        if not late:
            return _number(problem, *steps)
        for t in late:
            counts[t] = 0


def _emit(problem: Problem, counts: list[int]) -> tuple[list[tuple[int, int]], list[int]]:
    """Steps (task, copy) in order without updates, and the counts they were made for."""
    tasks, num_forward = problem.tasks, problem.num_forward
    reads = problem.reads
    steps = [(t, 0) for t in range(num_forward)]
    done: list[int] = [0] * num_forward  # bit k: copy k has run
    for t in range(num_forward, len(tasks)):
        if tasks[t].update:
            continue
        missing: list[tuple[int, int]] = []
        stack = [(u, counts[u]) for u in reads[t]]
        while stack:
            u, k = stack.pop()
            if k == 0 or done[u] >> k & 1:
                continue
            done[u] |= 1 << k
            missing.append((u, k))
            for p in reads[u]:
                n = counts[p]
                if n:
                    stack.append((p, k if k < n else n))
        if missing:
            missing.sort()
            steps += missing
        steps.append((t, 0))
    return steps, counts


def _late_readers(problem: Problem, steps: list[tuple[int, int]], counts: list[int]) -> set[int]:
    """Forward tasks whose copies would read storage that a backward task has changed by then."""
    watched = problem.changed_by_backward
    if not watched:
        return set()
    tasks, num_forward = problem.tasks, problem.num_forward
    changed: set[int] = set()
    late: set[int] = set()
    for t, k in steps[num_forward:]:
        if k:
            if not changed.isdisjoint(tasks[t].inputs):
                late.add(t)
        elif tasks[t].mutates:
            changed.update(tasks[t].mutates)
    return {t for t in late if counts[t]}


def _number(problem: Problem, steps: list[tuple[int, int]], counts: list[int]) -> Schedule:
    """Insert the updates, give every value that is written a number of its own, drop what nobody reads.

    Copy 0 of value v is instance v; later copies get the numbers behind.
    """
    tasks, values, producer = problem.tasks, problem.values, problem.arena_producer
    num_forward, reads = problem.num_forward, problem.reads
    steps = _with_updates(problem, steps)
    value_of = list(range(len(values)))
    instance: dict[tuple[int, int], int] = {}

    def later(v: int, k: int) -> int:
        i = instance.get((v, k))
        if i is None:
            i = instance[v, k] = len(value_of)
            value_of.append(v)
        return i

    # Inputs from nothing that is recomputed are the task's own tuple: almost all of them.
    plain = [not any(counts[p] for p in row) for row in reads]
    inputs: list[tuple[int, ...]] = []
    for t, k in steps:
        row = tasks[t].inputs
        if plain[t] or (k == 0 and t < num_forward):
            inputs.append(row)
            continue
        numbered = []
        for v in row:
            p = producer[v]
            n = counts[p] if 0 <= p < num_forward else 0
            if k and k < n:
                n = k
            numbered.append(later(v, n) if n else v)
        inputs.append(tuple(numbered))
    read = bytearray(len(value_of))
    for row in inputs:
        for i in row:
            read[i] = 1
    outputs: list[tuple[int, ...]] = []
    for t, k in steps:
        row = tasks[t].outputs
        if k:
            # A second run must not write again what the user may already have been given.
            always = tasks[t].always
            row = tuple(
                -1 if v < 0 or values[v].fixed else later(v, k) if v in always else instance.get((v, k), -1)
                for v in row
            )
        else:
            for v in row:
                if v >= 0 and not read[v] and not values[v].fixed:
                    made = tasks[t].always
                    row = tuple(
                        v if v >= 0 and (read[v] or values[v].fixed or v in made) else -1 for v in row
                    )
                    break
        outputs.append(row)
    return Schedule(
        problem,
        tuple(t for t, _ in steps),
        tuple(k for _, k in steps),
        tuple(inputs),
        tuple(outputs),
        tuple(value_of),
        num_forward,
    )


def _with_updates(problem: Problem, steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Put each update right behind the last step that makes its inputs or reads what it changes."""
    if not problem.updates:
        return steps
    tasks, producer, touched = problem.tasks, problem.producer, problem.updated_inputs
    last_read: dict[int, int] = {}
    made_at = [0] * len(tasks)
    for s, (t, k) in enumerate(steps):
        if k == 0:
            made_at[t] = s
        for v in touched[t]:
            last_read[v] = s
    behind: dict[int, list[int]] = {}
    for t in problem.updates:
        at = max(problem.num_forward - 1, 0)  # an update belongs to the backward pass, whatever it reads
        for v in tasks[t].inputs:
            if (p := producer[v]) >= 0 and made_at[p] > at:
                at = made_at[p]
        for v in tasks[t].mutates:
            at = max(at, last_read.get(v, 0))
        behind.setdefault(at, []).append(t)
    merged: list[tuple[int, int]] = []
    for s, step in enumerate(steps):
        merged.append(step)
        if s in behind:
            merged += [(t, 0) for t in behind[s]]
    return merged
