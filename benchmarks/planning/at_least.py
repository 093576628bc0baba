"""Lower bound of the time of recomputation within a budget: a linear program, solved by ortools.

When backward begins, each forward result that it reads is held, or the task that produces it is recomputed;
recomputed tasks read results for which the same is true; and the held results fit the arena. Every plan
without copies to the host satisfies this, so the minimum over all fractional solutions is a bound. It
ignores which results are available later, when segments are recomputed.
"""

from __future__ import annotations

import importlib.util

from mxlite.memplan import Problem


def least_extra_time(problem: Problem, budget: int) -> float | None:
    """Lower bound of `MemoryPlan.extra_time` of all plans within `budget` bytes; None without ortools.

    Infinite if there is no such plan.
    """
    if importlib.util.find_spec("ortools") is None:
        return None
    from ortools.linear_solver import pywraplp

    solver = pywraplp.Solver.CreateSolver("GLOP")
    first, tasks, values = problem.num_forward, problem.tasks, problem.values
    made = problem.arena_producer
    again = [solver.NumVar(0, float(t.recomputable), "") for t in tasks[:first]]
    held = {v: solver.NumVar(0, 1, "") for v, p in enumerate(made) if 0 <= p < first}
    for t, task in enumerate(tasks):
        for v in task.inputs:
            if v in held:
                there = held[v] + again[made[v]]
                solver.Add(there >= (1 if t >= first else again[t]))
    solver.Add(sum(values[v].nbytes * x for v, x in held.items()) <= budget - problem.fixed_total)
    solver.Minimize(sum(1e3 * t.seconds * x for t, x in zip(tasks, again)))
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return float("inf")
    seconds = problem.step_seconds + solver.Objective().Value() / 1e3
    return float(seconds / (problem.base_seconds or problem.step_seconds) - 1)
