"""Templates: a planned step whose structure is reused for other sizes.

Another batch size changes how many bytes a value has, what a workspace needs and how long a task takes. It
does not change which task reads which value. So the schedule that counts or runs give stays the same to the
step, and so do live ranges wherever the same outputs may overwrite their inputs. Offsets are new, but their
order need not be:

    planned              twice the batch, but for c

    | c |  d  |          |  d  |          each buffer goes on top of those that it lay above, directly or
    |---+-----|          |     |          with others in between: at the highest of their ends. Only those
    |    b    |          |  b  |          directly below (seen from above, at some step) matter
    |---------|          |  a  |

If all sizes grow by one factor, no buffer lies higher than that factor times its old offset, so the arena
stays as close to the bound. If they do not, the arena may have gaps: then everything is placed anew.

A budget may require other counts: more recomputation for larger sizes, less for smaller ones.
Points of the frontier of the first sizes are evaluated on the new ones, and the fastest that fits is taken;
where none does, a search follows.

The result of a template depends on which sizes came first, so templates are used only on request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...core.cached import cached_property, Remembered
from ..order.order import Bytes
from ..placement.arena import place
from ..placement.liveness import live_ranges, LiveRange, most_live
from ..plan import make_plan, MemoryPlan
from ..problem import padded, Problem
from ..remat import split
from ..remat.evaluate import Evaluator
from ..remat.frontier import Frontier
from ..remat.pool import Point
from ..remat.schedule import Choice, make_schedule, Runs

RUNGS = 48  # of a ladder
PLACED = 3  # rungs that seem to fit and are placed before a search is preferred
REMEMBERED = 8  # schedules of one template
PILES = 3  # stackings of each: one for large batches, say, and one for small ones

Structure = tuple[object, ...]
_Key = tuple[int, ...] | Runs  # a choice


def structure(problem: Problem) -> Structure:
    """A problem without names, kernels, bytes and seconds; equal for steps that differ only in size."""
    return (
        problem.num_forward,
        tuple(v.fixed for v in problem.values),
        tuple(
            (
                t.op, t.inputs, t.outputs, t.in_place, t.mutates, t.recomputable, t.cheap, t.update, t.mirror,
                t.stage, t.always, t.preview,
            )
            for t in problem.tasks
        ),
    )  # fmt: skip


class Template:
    """Plans for problems of the structure that `plan` has; see `plan_memory`."""

    def __init__(self, plan: MemoryPlan) -> None:
        self.first = plan
        self.has_ladder = any(plan.schedule.copy)  # a search was made for it
        self._ladder: list[Point] | None = None
        self._stackings = Remembered[_Key, list[Stacking]](REMEMBERED)

    @cached_property
    def structure(self) -> Structure:
        return structure(self.first.problem)

    def plan(
        self, problem: Problem, budget: int | None, frontier_of: Callable[[Problem], Frontier]
    ) -> MemoryPlan | None:
        """A plan within `budget`, or None if the structure differs or nothing known fits. O(steps).

        `frontier_of` gives the frontier of the first problem, should it be needed.
        """
        if problem.host or self.first.problem.host or structure(problem) != self.structure:
            return None
        marked = tuple(split.forced(problem))
        keep_all = self._with_choice(problem, marked, split.keeping(problem))
        keep_all = replace(keep_all, budget_bytes=budget, keep_all_peak_bytes=keep_all.peak_bytes)
        if budget is None or keep_all.peak_bytes <= budget:
            return keep_all
        found = self._within(problem, budget, frontier_of)
        if found is None:
            return None
        return replace(found, budget_bytes=budget, keep_all_peak_bytes=keep_all.peak_bytes)

    def _within(
        self, problem: Problem, budget: int, frontier_of: Callable[[Problem], Frontier]
    ) -> MemoryPlan | None:
        """The fastest point of the ladder whose placed arena fits."""
        room = budget - problem.fixed_total
        if problem.least_arena > room or not self.has_ladder:
            return None
        if self._ladder is None:
            first = self.first.problem
            self._ladder = _spread(frontier_of(first.whole or first).points)
        live, seconds = Evaluator(problem.leanest).choices([p.choice for p in self._ladder])
        if problem.has_forms:
            costs = zip(self._ladder, live.tolist(), seconds.tolist())
            points = [replace(p, live_bytes=nbytes, seconds=s) for p, nbytes, s in costs]
            return Frontier(problem, "sharing", tuple(sorted(points, key=lambda p: p.seconds))).at(room)
        fitting = [i for i in np.lexsort((live, seconds)).tolist() if live[i] <= room]
        for i in fitting[:PLACED]:
            plan = self._with_choice(problem, self._ladder[i].choice, self._ladder[i].method)
            if plan.arena_bytes <= room:
                return plan
        return None

    def _with_choice(self, problem: Problem, choice: Choice, method: str) -> MemoryPlan:
        key = choice if isinstance(choice, Runs) else tuple(choice)
        known = self._stackings.get(key)
        if known is None and key in self._own:
            known = [Stacking(self.first)]
            self._stackings.put(key, known)
        if known is None:
            plan = make_plan(problem, choice, method=method)
            self._stackings.put(key, [Stacking(plan)])
            return plan
        for stacking in known:
            found = stacking.plan(problem)
            if found is not None:
                return found
        plan = known[0].placed(problem)
        self._stackings.put(key, [Stacking(plan), *known[: PILES - 1]])
        return plan

    @cached_property
    def _own(self) -> frozenset[_Key]:
        """Choices that certainly give the schedule of the first plan."""
        schedule = self.first.schedule
        if self.first.host_bytes:
            return frozenset()
        runs = schedule.runs
        counts = tuple(map(len, runs.stages))
        same = not any(counts) or make_schedule(schedule.problem, counts).runs == runs
        return frozenset([runs, counts] if same else [runs])


def _spread(points: Sequence[Point]) -> list[Point]:
    """At most RUNGS of the points, evenly spread, the first and the last included."""
    if len(points) <= RUNGS:
        return list(points)
    return [points[i] for i in np.linspace(0, len(points) - 1, RUNGS).astype(int).tolist()]


class Stacking:
    """A placed schedule whose stacking order can be repeated with other sizes."""

    def __init__(self, plan: MemoryPlan) -> None:
        self.first = plan
        problem, schedule, ranges = plan.problem, plan.schedule, plan.liveness.ranges
        self.joins = problem.joins
        self.works = _works(problem)
        # Source of each buffer's size: a value, or ~t for the workspace of task t.
        self.source = [
            schedule.value_of[r.members[0]] if r.members else ~schedule.task[r.start] for r in ranges
        ]
        self.start = [r.start for r in ranges]
        self.stop = [r.stop for r in ranges]
        self.stacked = plan.placed_bytes, plan.max_live_bytes
        self.order = sorted(range(len(ranges)), key=lambda b: (plan.offsets[b], ranges[b].start, b))
        skyline = Bytes()  # of steps: who is on top at each
        self.below: list[tuple[int, ...]] = [()] * len(ranges)
        for b in self.order:
            self.below[b] = tuple(dict.fromkeys(skyline.take(self.start[b], self.stop[b], b)))

    def plan(self, problem: Problem) -> MemoryPlan | None:
        """The plan with the same schedule and stacking for the sizes of `problem`, of equal structure.
        O(steps).

        None where live ranges differ, or where more bytes are lost to gaps than in the first plan.
        """
        first = self.first
        if problem.joins != self.joins or _works(problem) != self.works:
            return None
        values, tasks = problem.values, problem.tasks
        nbytes = [values[v].nbytes if v >= 0 else tasks[~v].workspace for v in self.source]
        offsets, placed = self._stack(nbytes)
        live = most_live(self.start, self.stop, nbytes)
        old, old_live = self.stacked
        if placed > live and placed * old_live > old * live:
            return None
        ranges = tuple(
            r if r.nbytes == n else LiveRange(r.members, r.start, r.stop, n)
            for r, n in zip(first.liveness.ranges, nbytes)
        )
        liveness = replace(first.liveness, ranges=ranges)
        schedule = replace(first.schedule, problem=problem)
        return replace(
            first, schedule=schedule, liveness=liveness, offsets=tuple(offsets), placed_bytes=placed
        )

    def placed(self, problem: Problem) -> MemoryPlan:
        """The plan with the same schedule, placed anew."""
        schedule = replace(self.first.schedule, problem=problem)
        liveness = live_ranges(schedule)
        found = place(liveness.ranges, liveness.max_live_bytes)
        return replace(
            self.first, schedule=schedule, liveness=liveness, offsets=found.offsets, placed_bytes=found.nbytes
        )

    def _stack(self, nbytes: Sequence[int]) -> tuple[list[int], int]:
        """Offsets of the stacked buffers, and the bytes they take."""
        top, offsets = [0] * len(nbytes), [0] * len(nbytes)
        for b in self.order:
            low = 0
            for under in self.below[b]:
                if top[under] > low:
                    low = top[under]
            offsets[b] = low
            top[b] = low + padded(nbytes[b])
        return offsets, max(top, default=0)


def _works(problem: Problem) -> tuple[bool, ...]:
    """True for each task that has a workspace."""
    return tuple(t.workspace > 0 for t in problem.tasks)
