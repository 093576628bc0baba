"""Choice of a form for each kernel of a plan: its number of threads, and the workspace that they need.

A workspace lives for one step only, so whether a kernel may use its large one depends on that step alone:

    bytes |      .--.                      ceiling
          |------|--|--------------------- - - - -
          |   .--'##'--.     ____          # workspace with all threads: above the ceiling
          |  /    ++    \\   / ## \\         + with fewer: below it
          | /     ++     `-'  ##  `-.      the other step has room for all
          +--------------------------- steps

So schedules are searched for as if all workspaces had their smallest size at no loss of time, and then each
kernel of a schedule gets the most threads with which all of its steps stay below a ceiling. The ceilings do
not depend on the budget: whatever fits a smaller budget is also open to a plan of a larger one.
"""

from __future__ import annotations

from math import floor, log

import numpy as np

from ..placement.liveness import live_ranges
from ..plan import make_plan, MemoryPlan
from ..problem import padded, Problem
from ..remat import split
from ..remat.pool import Point
from ..remat.schedule import make_schedule, RUN, Schedule

RUNG = 1.005  # ratio of ceilings


def leanest(plan: MemoryPlan) -> MemoryPlan:
    """The plan that keeps everything, with the most threads per kernel that its fewest bytes allow."""
    problem = plan.problem
    if not problem.has_forms:
        return plan
    point, forms = Point(plan.method, bytes(split.forced(problem)), 0, 0.0), FormChoice(problem, "sharing")
    least = forms.least(point)
    return forms.plan(0, point, least.placed_bytes) or least


class FormChoice:
    """Choice of the forms of kernels in the schedules of one problem."""

    def __init__(self, problem: Problem, strategy: str) -> None:
        self.problem, self.strategy = problem, strategy
        self.forms = [(t, task.forms) for t, task in enumerate(problem.tasks) if task.forms]
        self.place = {t: i for i, (t, _) in enumerate(self.forms)}
        most = max(len(forms) for _, forms in self.forms)
        # A kernel with fewer forms than others repeats its last one.
        padding = [(*forms, *(forms[-1:] * (most - len(forms)))) for _, forms in self.forms]
        self.scratch = np.array([[padded(nbytes) for _, nbytes in row] for row in padding])
        seconds = np.array([problem.tasks[t].seconds for t, _ in self.forms])
        counts = np.array([[n for n, _ in row] for row in padding], np.float64)
        self.longer = seconds[:, None] * (counts[:, :1] / counts - 1)  # extra, by form
        self._needs: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def within(self, number: int, point: Point, ceiling: int) -> tuple[float, np.ndarray]:
        """(extra seconds of this point's step, form of each kernel) below a ceiling in bytes."""
        beside, runs = self._of(number, point)
        fits = beside[:, None] + self.scratch <= ceiling
        form = np.where(fits.any(axis=1), fits.argmax(axis=1), self.scratch.shape[1] - 1)
        return float((runs * self.longer[np.arange(len(form)), form]).sum()), form

    def plan(self, number: int, point: Point, arena_budget: int) -> MemoryPlan | None:
        """The fastest of this point's plans whose placed arena is within a budget; None if there is none."""
        before: bytes | None = None
        for rung in range(floor(log(max(1, arena_budget)) / log(RUNG)), -1, -1):
            ceiling = floor(RUNG**rung)
            if ceiling < point.live_bytes:
                break
            _, form = self.within(number, point, ceiling)
            if form.tobytes() != before:
                before = form.tobytes()
                plan = self.made(point, form)
                if plan.placed_bytes <= arena_budget:
                    return plan
        plan = self.least(point)
        return plan if plan.placed_bytes <= arena_budget else None

    def least(self, point: Point) -> MemoryPlan:
        """The point's plan in which all kernels have the least workspace."""
        return self.made(point, np.full(len(self.forms), self.scratch.shape[1] - 1))

    def made(self, point: Point, form: np.ndarray) -> MemoryPlan:
        """The point's plan with the given forms."""
        threads = list(self.problem.threads)
        for (t, forms), k in zip(self.forms, form.tolist()):
            if k:
                threads[t] = forms[min(k, len(forms) - 1)][0]
        problem = self.problem.in_forms(threads)
        assert problem is not None
        return make_plan(problem, point.choice, strategy=self.strategy, method=point.method, room=point.room)

    def _of(self, number: int, point: Point) -> tuple[np.ndarray, np.ndarray]:
        """For each kernel the most bytes live beside its workspace, and how often it runs."""
        if number not in self._needs:
            schedule = make_schedule(self.problem.leanest, point.choice, point.room)
            self._needs[number] = self._beside(schedule)
        return self._needs[number]

    def _beside(self, schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
        beside, runs = np.zeros(len(self.forms), np.int64), np.zeros(len(self.forms), np.int64)
        ranges = live_ranges(schedule, in_place=self.strategy != "none").ranges
        change = np.zeros(len(schedule.task) + 1, np.int64)
        nbytes = np.array([padded(r.nbytes) for r in ranges], np.int64)
        np.add.at(change, [r.start for r in ranges], nbytes)
        np.add.at(change, [r.stop for r in ranges], -nbytes)
        live = np.cumsum(change).tolist()
        for s, (kind, t) in enumerate(zip(schedule.kinds, schedule.task)):
            if kind == RUN and (i := self.place.get(t, -1)) >= 0:
                runs[i] += 1
                beside[i] = max(beside[i], live[s] - self.scratch[i, -1])
        return beside, runs
