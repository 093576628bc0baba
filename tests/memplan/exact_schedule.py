"""The least recompute time within an arena, proven by constraint programming; for problems of some 70 tasks.

The planner is compared with this, so nothing here comes from it but the plain `Problem`. What is searched:
forward tasks run once in their order; then, before each backward task, any set of forward tasks runs again,
smallest number first, each task at most `runs` times in all. Of a value

    forward                          stage 0                  stage 1
    f0 f1 f2 ... fn                  [f0 f1 ... fn] b0        [f0 f1 ... fn] b1  ...       places of one line
       #=========>                                               #==============>
       first interval, always        optional intervals: whether, in which stage, until where

the first interval starts at its place and ends anywhere; each later run starts another one. Every read lies
in one interval; bytes of intervals that meet, padded, and of workspaces, fit the arena. Where an operator may
overwrite an input, that input's interval may end just before the place that reads it. Then seconds of later
runs are minimised. Intervals, a few for each value, instead of a variable for each pair of task and stage are
the idea of B. Bartan, H. Li, H. Teague, C. Lott, B. Dilkina 2023, "Moccasin: efficient tensor
rematerialization for neural networks". In-place reads and workspaces are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from mxlite.memplan.problem import Problem

ALIGN = 64
PLACES = 1_000_000  # seconds become whole numbers: the longest task is this long


def bytes_of(problem: Problem, v: int) -> int:
    """Bytes of value `v` in the arena, rounded up as buffers are."""
    value = problem.values[v]
    return 0 if value.fixed else -(-value.nbytes // ALIGN) * ALIGN


def pairs_of(problem: Problem, t: int) -> list[tuple[int, int]]:
    """(output, input) values of task `t` that may share bytes."""
    task, values = problem.tasks[t], problem.values
    return [
        (o, i)
        for o, i in task.in_place
        if o in task.outputs
        and task.inputs.count(i) == 1
        and not (values[o].fixed or values[i].fixed)
        and values[o].nbytes == values[i].nbytes
    ]


def replay(problem: Problem, order: Sequence[int]) -> tuple[int, float]:
    """(most bytes at one step, seconds of what runs again) of tasks run in `order`.

    Each read means the last run of whoever makes the value. Bytes are held from that run to the last read.
    """
    tasks = problem.tasks
    newest: dict[int, tuple[int, int]] = {}  # of a value: (step, value) of its last run
    reads: list[list[tuple[int, int]]] = []
    until: dict[tuple[int, int], int] = {}
    for s, t in enumerate(order):
        reads.append([newest[v] for v in tasks[t].inputs if v in newest])
        for instance in reads[s]:
            until[instance] = s
        for v in tasks[t].outputs:
            if v >= 0 and not problem.values[v].fixed:
                newest[v] = (s, v)
    extra, seen = 0.0, set()
    held: set[tuple[int, int]] = set()
    most = 0
    for s, t in enumerate(order):
        if t in seen:
            extra += tasks[t].seconds
        made = [
            (s, v)
            for v in tasks[t].outputs
            if v >= 0 and not problem.values[v].fixed and ((s, v) in until or v in tasks[t].always)
        ]
        seen.add(t)
        taken: set[int] = set()
        given: set[int] = set()
        dying = {v for at, v in reads[s] if until[at, v] == s}
        for o, i in pairs_of(problem, t):
            if (s, o) in made and o not in taken and i in dying and i not in given:
                taken.add(o)
                given.add(i)
        held.update(made)
        most = max(
            most,
            sum(bytes_of(problem, v) for _, v in held)
            + _scratch(problem, t)
            - sum(bytes_of(problem, i) for i in given),
        )
        held = {h for h in held if until.get(h, -1) > s}
    return most, extra


def _scratch(problem: Problem, t: int) -> int:
    return -(-problem.tasks[t].workspace // ALIGN) * ALIGN


def may_repeat(problem: Problem) -> list[int]:
    """The forward tasks that may run again."""
    return [
        t
        for t, task in enumerate(problem.tasks[: problem.num_forward])
        if task.recomputable
        and not task.mutates
        and any(v >= 0 and not problem.values[v].fixed for v in task.outputs)
    ]


def brute_force(problem: Problem, runs: int = 2) -> list[tuple[int, float]]:
    """The (bytes, seconds) that no other schedule beats in both, by trying all; for a few tasks only."""
    forward = list(range(problem.num_forward))
    backward = list(range(problem.num_forward, len(problem.tasks)))
    found: dict[int, float] = {}

    def orders(stage: int, left: dict[int, int]) -> Iterator[list[int]]:
        if stage == len(backward):
            yield []
            return
        free = [t for t, n in left.items() if n]
        for size in range(len(free) + 1):
            for chosen in combinations(free, size):
                rest = {t: n - (t in chosen) for t, n in left.items()}
                for tail in orders(stage + 1, rest):
                    yield [*chosen, backward[stage], *tail]

    for order in orders(0, dict.fromkeys(may_repeat(problem), runs - 1)):
        most, extra = replay(problem, forward + order)
        found[most] = min(extra, found.get(most, extra))
    front: list[tuple[int, float]] = []
    for most, extra in sorted(found.items()):
        if not front or extra < front[-1][1]:
            front.append((most, extra))
    return front


@dataclass(frozen=True)
class Answer:
    """`order`: tasks as they run, None if there is none. `bound`: no schedule has fewer extra seconds.
    `proven`: `order` is optimal, or there is proven to be none.
    """

    order: tuple[int, ...] | None
    extra_seconds: float
    bound: float
    proven: bool


def solve(
    problem: Problem,
    arena: int,
    *,
    runs: int = 3,
    effort: float = 20.0,
    hint: Sequence[int] | None = None,
    tolerance: float = 0.0,
    workers: int = 1,
) -> Answer:
    """The schedule of least recompute time within `arena` bytes, each task run at most `runs` times.

    `effort` is the solver's own count of work, near seconds, the same on every machine. `tolerance`: a share
    of the optimum that may be missing. `hint`: tasks as some schedule runs them, to start from.
    """
    from ortools.sat.python import cp_model

    if any(t.update or t.mirror for t in problem.tasks):
        raise ValueError("Updates and marks are not modelled.")
    model = _Model(cp_model.CpModel(), problem, arena, runs)
    model.build()
    if hint is not None:
        model.hint(hint)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = effort
    solver.parameters.relative_gap_limit = tolerance
    status = solver.solve(model.model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        order = model.order(solver)
        most, extra = replay(problem, order)
        assert most <= arena, "The model and its replay do not agree."
        bound = solver.best_objective_bound / model.scale
        return Answer(tuple(order), extra, bound, status == cp_model.OPTIMAL)
    return Answer(None, float("inf"), 0.0, status == cp_model.INFEASIBLE)


class _Model:
    def __init__(self, model: Any, problem: Problem, arena: int, runs: int) -> None:
        self.model, self.problem, self.arena, self.runs = model, problem, arena, runs
        self.n = problem.num_forward
        self.stages = len(problem.tasks) - self.n
        self.end = self.n + self.stages * (self.n + 1)
        longest = max((t.seconds for t in problem.tasks), default=0.0)
        self.scale = PLACES / longest if longest else 1.0
        self.again: dict[tuple[int, int], Any] = {}  # (task, run) -> whether
        self.stage: dict[tuple[int, int], Any] = {}
        self.place: dict[tuple[int, int], Any] = {}
        self.start: dict[
            tuple[int, int], Any
        ] = {}  # (value, run) -> place, and the place behind its last read
        self.stop: dict[tuple[int, int], Any] = {}
        self.intervals: list[Any] = []
        self.demands: list[int] = []

    def at(self, t: int) -> int:
        """The place of task `t`'s first run."""
        return t if t < self.n else self.n + (t - self.n) * (self.n + 1) + self.n

    def build(self) -> None:
        problem, model = self.problem, self.model
        self.made = {v: t for t, task in enumerate(problem.tasks) for v in task.outputs if v >= 0}
        self.readers: dict[int, list[int]] = {}
        for t, task in enumerate(problem.tasks):
            for v in dict.fromkeys(task.inputs):
                self.readers.setdefault(v, []).append(t)
        self.repeat = set(may_repeat(problem))
        for t in sorted(self.repeat):
            self._runs_of(t)
        for t, task in enumerate(problem.tasks):
            for v in task.outputs:
                if v >= 0 and not problem.values[v].fixed:
                    self._value(t, v)
        for t in range(len(problem.tasks)):
            self._reads(t, 0)
            if scratch := _scratch(problem, t):
                self._hold(model.new_fixed_size_interval_var(self.at(t), 1, f"w{t}"), scratch)
        for (t, k), present in self.again.items():
            self._reads(t, k)
            if scratch := _scratch(problem, t):
                piece = model.new_optional_fixed_size_interval_var(self.place[t, k], 1, present, f"w{t}.{k}")
                self._hold(piece, scratch)
        model.add_cumulative(self.intervals, self.demands, self.arena)
        cost = {t: round(problem.tasks[t].seconds * self.scale) for t in self.repeat}
        model.minimize(sum(cost[t] * x for (t, _), x in self.again.items()))

    def _hold(self, interval: Any, nbytes: int) -> None:
        if nbytes:
            self.intervals.append(interval)
            self.demands.append(nbytes)

    def _runs_of(self, t: int) -> None:
        """Later runs of `t`: the second only if there is a first, in a later stage."""
        model = self.model
        for k in range(1, self.runs):
            self.again[t, k] = model.new_bool_var(f"again{t}.{k}")
            self.stage[t, k] = model.new_int_var(0, self.stages - 1, f"stage{t}.{k}")
            self.place[t, k] = self.n + self.stage[t, k] * (self.n + 1) + t
            if k > 1:
                model.add_implication(self.again[t, k], self.again[t, k - 1])
                model.add(self.stage[t, k] > self.stage[t, k - 1]).only_enforce_if(self.again[t, k])
            model.add(self.stage[t, k] == 0).only_enforce_if(~self.again[t, k])

    def _value(self, t: int, v: int) -> None:
        """The intervals of a value."""
        model, nbytes = self.model, bytes_of(self.problem, v)
        kept = v in self.problem.tasks[t].always
        runs = self.runs if t in self.repeat else 1
        for k in range(runs):
            start = self.place[t, k] if k else self.at(t)
            least = 1 if kept else 0  # what nobody reads is not made, unless the kernel always writes it
            length = model.new_int_var(least, self.end, f"length{v}.{k}")
            stop = model.new_int_var(0, self.end, f"stop{v}.{k}")
            self.start[v, k], self.stop[v, k] = start, stop
            if k:
                present = self.again[t, k]
                piece = model.new_optional_interval_var(start, length, stop, present, f"v{v}.{k}")
                # Two runs are never held at the same time.
                model.add(self.stop[v, k - 1] <= start).only_enforce_if(present)
                model.add(length == least).only_enforce_if(~present)
                model.add(stop == 0).only_enforce_if(~present)
            else:
                piece = model.new_interval_var(start, length, stop, f"v{v}")
            self._hold(piece, nbytes)

    def _reads(self, t: int, k: int) -> None:
        """Each input of run `k` of task `t` lies in an interval of its value."""
        model, problem = self.model, self.problem
        place = self.place[t, k] if k else self.at(t)
        present = self.again[t, k] if k else None
        overwritten: dict[int, list[Any]] = {}
        if pairs := pairs_of(problem, t):
            joins = {}
            for o, i in pairs:
                if i in self.made:
                    joins[o, i] = model.new_bool_var(f"join{t}.{k}.{o}.{i}")
                    if o not in problem.tasks[t].always:
                        # An output that is not made takes nothing over.
                        model.add(self.stop[o, k] > place).only_enforce_if(joins[o, i])
                    if present is not None:
                        model.add_implication(joins[o, i], present)
                    overwritten.setdefault(i, []).append(joins[o, i])
            for side in (0, 1):
                for v in dict.fromkeys(p[side] for p in joins):
                    model.add_at_most_one(x for p, x in joins.items() if p[side] == v)
        for v in dict.fromkeys(problem.tasks[t].inputs):
            if v not in self.made or problem.values[v].fixed:
                continue
            maker = self.made[v]
            behind = place + 1 - sum(overwritten.get(v, []))
            if k == 0 and (t < self.n or maker not in self.repeat):
                model.add(self.stop[v, 0] >= behind)
                continue
            inside = []
            for j in range(self.runs if maker in self.repeat else 1):
                x = model.new_bool_var(f"read{t}.{k}.{v}.{j}")
                inside.append(x)
                model.add(self.stop[v, j] >= behind).only_enforce_if(x)
                if j:
                    model.add_implication(x, self.again[maker, j])
                    # In one stage the smaller number runs first, so comparing stages is enough.
                    if k:
                        model.add(self.stage[maker, j] <= self.stage[t, k]).only_enforce_if(x)
                    else:
                        model.add(self.stage[maker, j] <= t - self.n).only_enforce_if(x)
            if present is None:
                model.add_exactly_one(inside)
            else:
                model.add(sum(inside) == present)

    def hint(self, order: Sequence[int]) -> None:
        """Tell which tasks run again in which stage."""
        stage, count = 0, dict.fromkeys(self.repeat, 0)
        for t in order[self.n :]:
            if t >= self.n:
                stage += 1
                continue
            count[t] += 1
            if (t, count[t]) in self.again:
                self.model.add_hint(self.stage[t, count[t]], stage)
        for (t, k), x in self.again.items():
            self.model.add_hint(x, k <= count[t])

    def order(self, solver: Any) -> list[int]:
        """The tasks as the solution runs them."""
        placed = [(self.at(t), t) for t in range(len(self.problem.tasks))]
        for (t, k), x in self.again.items():
            if solver.value(x):
                placed.append((self.n + solver.value(self.stage[t, k]) * (self.n + 1) + t, t))
        return [t for _, t in sorted(placed)]
