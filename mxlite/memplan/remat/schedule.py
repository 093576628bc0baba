"""Schedules with rematerialization: the order of tasks, and which of them are recomputed.

Each forward task v has a count c(v). With 0 its outputs are kept from the forward pass until backward has
used them. With 1 they are dropped, and v is recomputed just before backward needs it; the result
stays until its last use. A higher count is the number of temporary runs: those
write what a segment of other runs needs, which is freed at the segment's end, and the run after them writes
the result that stays.

    c:        0   2   2   1   2   2   0   2   2   1   2   2   0
    forward   o---.---.---.---.---.---o---.---.---.---.---.---o      o kept, . dropped at once
    recompute (last segment)          o---.---.---+                  + stays while the segment is worked on
    recompute                                     +---.---.---o      backward walks back over these,
    recompute                         o---.---.---+                  then over these, then the first segment

The order is written down as it arises: before each backward task, every missing input is recomputed,
and the missing inputs of that, smallest task number first. A result that is live is not recomputed.

Tianqi Chen, Bing Xu, Chiyuan Zhang, Carlos Guestrin 2016, "Training Deep Nets with Sublinear Memory Cost",
introduce such counts (mirror counts: m = 1 gives their segments, higher counts their recursion).
There the k-th copy of a task reads copies of the same generation, computed for it alone; here it reads
whatever is live. So a count may be chosen for each task by itself, and plans near the optimum of small graphs
exist that the generations cannot express.

A schedule of `Runs` can say more than counts: it lists the backward tasks before which each forward task is
recomputed. There a result may be kept until backward has used it once, then be dropped and recomputed for its
next use. Whatever the runs are, each read finds the newest result; only bytes and time differ.

The count OFFLOADED, -1, means that v's outputs wait for backward in host memory. Steps of two more kinds
copy them out and back; transfer.py chooses their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.cached import cached_property
from ..problem import Problem
from .kinds import FETCH as FETCH, RUN as RUN, STORE as STORE
from .transfer import waiting_seconds, with_transfers

OFFLOADED = -1
"""The mirror count of a forward task whose outputs wait for backward in host memory."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The recomputations of a schedule: for each forward task the backward tasks that it runs before.

    `stages[t]` ascends: forward task t runs before these backward tasks. They are numbered from 0, without
    updates. Among tasks that run before the same one, the smallest number comes first.
    """

    stages: tuple[tuple[int, ...], ...]


Choice = Sequence[int] | Runs
"""Choice from which a schedule is made: mirror counts, one for each forward task, or the runs themselves."""


@dataclass(frozen=True)
class Schedule:
    """The steps of one training step in order.

    Step s runs task `task[s]`, as copy `copy[s]` (0: the first time). `inputs[s]` and `outputs[s]` are
    instances; instance i holds value `value_of[i]`. Outputs are -1 where no step reads them. The first
    `num_forward` steps are the forward pass.

    `kind[s]` is RUN, STORE or FETCH; an empty `kind` means that all steps run. A store reads one instance of
    the arena and writes one of the same value in host memory, a fetch the other way round; their `task` is
    the one that made the value, their `copy` 0.
    """

    problem: Problem
    task: tuple[int, ...]
    copy: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    value_of: tuple[int, ...]
    num_forward: int
    kind: tuple[int, ...] = ()

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """The kind of each step."""
        return self.kind or (RUN,) * len(self.task)

    @cached_property
    def hosted(self) -> frozenset[int]:
        """The instances in host memory."""
        return frozenset(row[0] for k, row in zip(self.kind, self.outputs) if k == STORE)

    @property
    def recompute_seconds(self) -> float:
        """Modelled time of all recomputation, added up by task number."""
        tasks = self.problem.tasks
        total = 0.0  # not sum(), whose rounding differs between versions of Python
        for t in sorted(t for t, k in zip(self.task, self.copy) if k):
            total += tasks[t].seconds
        return total

    @cached_property
    def runs(self) -> Runs:
        """The recomputations of this schedule."""
        stages: list[list[int]] = [[] for _ in range(self.problem.num_forward)]
        tasks, j = self.problem.tasks, 0
        for kind, t, k in zip(self.kinds, self.task, self.copy):
            if kind == RUN and k:
                stages[t].append(j)
            elif kind == RUN and t >= self.problem.num_forward and not tasks[t].update:
                j += 1
        return Runs(tuple(map(tuple, stages)))

    @cached_property
    def waiting_seconds(self) -> float:
        """Modelled time that kernels wait for copies from and to host memory."""
        return waiting_seconds(self) if self.kind else 0.0

    @property
    def extra_seconds(self) -> float:
        """Modelled time beyond that of a step that keeps everything: recomputation and waits for copies."""
        return self.recompute_seconds + self.waiting_seconds

    @property
    def extra_time(self) -> float:
        """`extra_seconds` as a share of the step without them."""
        total = self.problem.step_seconds
        return self.extra_seconds / total if total else 0.0


def make_schedule(problem: Problem, choice: Choice, room: int = 0) -> Schedule:
    """The schedule for mirror counts or for runs.

    A task that cannot be recomputed runs once, whatever `choice` says, and so does one that would read
    storage after backward has changed it. Copies from and to host memory overlap with kernels as far as that
    needs no more live bytes than the schedule needs anyway, or than `room`. O(steps).
    """
    schedule, fetched = without_copies(problem, choice)
    return with_transfers(schedule, fetched, room) if fetched else schedule


def without_copies(problem: Problem, choice: Choice) -> tuple[Schedule, dict[int, int]]:
    """The steps of `make_schedule` that run, and the instance of each value that must be fetched for them."""
    once = {t for t, task in enumerate(problem.tasks) if not task.recomputable or task.mutates}
    while True:
        if isinstance(choice, Runs):
            steps = _emit_runs(problem, choice.stages, once)
        else:
            steps = _emit_counts(problem, choice, once)
        late = _late_readers(problem, steps)
        if not late:
            counts = [0] * problem.num_forward if isinstance(choice, Runs) else choice
            return _number(problem, steps, {t for t, c in enumerate(counts) if c < 0})
        once |= late


def _emit_counts(problem: Problem, mirror: Sequence[int], once: set[int]) -> list[tuple[int, int]]:
    """Steps (task, copy) in order without updates, for mirror counts; tasks `once` run once."""
    counts = [0 if m > 0 and t in once else m for t, m in enumerate(mirror)]
    tasks, num_forward = problem.tasks, problem.num_forward
    reads = problem.reads
    steps = [(t, 0) for t in range(num_forward)]
    runs = [0] * num_forward  # recomputations so far
    there = [c <= 0 for c in counts]  # live for the rest of backward
    for t in range(num_forward, len(tasks)):
        if tasks[t].update:
            continue
        stack = [u for u in reads[t] if not there[u]]
        if stack:
            missing: set[int] = set()
            while stack:
                u = stack.pop()
                if u not in missing:
                    missing.add(u)
                    stack += [p for p in reads[u] if not there[p]]
            for u in sorted(missing):
                runs[u] += 1
                steps.append((u, runs[u]))
                there[u] = runs[u] >= counts[u]
        steps.append((t, 0))
    return steps


def _emit_runs(problem: Problem, stages: Sequence[Sequence[int]], once: set[int]) -> list[tuple[int, int]]:
    """Steps (task, copy) in order without updates, for `Runs.stages`; tasks `once` run once."""
    tasks, num_forward = problem.tasks, problem.num_forward
    before: dict[int, list[tuple[int, int]]] = {}
    for u, row in enumerate(stages):
        for k, j in enumerate(row if u not in once else ()):
            before.setdefault(j, []).append((u, k + 1))
    steps = [(t, 0) for t in range(num_forward)]
    backward = (t for t in range(num_forward, len(tasks)) if not tasks[t].update)
    for j, t in enumerate(backward):
        steps += before.get(j, ())
        steps.append((t, 0))
    return steps


def _late_readers(problem: Problem, steps: list[tuple[int, int]]) -> set[int]:
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
    return late


def _number(
    problem: Problem, steps: list[tuple[int, int]], offloaded: set[int]
) -> tuple[Schedule, dict[int, int]]:
    """Insert the updates, number every value that is written, and drop outputs that nothing reads.

    Copy 0 of value v is instance v; later copies, and values fetched from host memory, get the following
    numbers.
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

    # Tasks with no recomputed inputs, almost all of them, keep their own tuple.
    moved = offloaded.union(t for t, k in steps if k)
    plain = [moved.isdisjoint(row) for row in reads]
    newest = [-1 if t in offloaded else 0 for t in range(num_forward)]  # the copy that is read now
    inputs: list[tuple[int, ...]] = []
    for t, k in steps:
        row = tasks[t].inputs
        if plain[t] or (k == 0 and t < num_forward):
            inputs.append(row)
        else:
            numbered = []
            for v in row:
                p = producer[v]
                n = newest[p] if 0 <= p < num_forward else 0
                numbered.append(later(v, n) if n else v)
            inputs.append(tuple(numbered))
        if k:
            newest[t] = k
    read = bytearray(len(value_of))
    for row in inputs:
        for i in row:
            read[i] = 1
    fetched = {v: i for (v, k), i in instance.items() if k < 0}
    for v in fetched:
        read[v] = 1
    outputs: list[tuple[int, ...]] = []
    for t, k in steps:
        row = tasks[t].outputs
        if k:
            # A recomputation must not rewrite what the user may already have been given.
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
    schedule = Schedule(
        problem,
        tuple(t for t, _ in steps),
        tuple(k for _, k in steps),
        tuple(inputs),
        tuple(outputs),
        tuple(value_of),
        num_forward,
    )
    return schedule, fetched


def _with_updates(problem: Problem, steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Put each update right after the last step that writes its inputs or reads what it changes."""
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
