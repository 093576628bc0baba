"""How little time recomputation within a budget can take: a linear programme; ortools solves it.

When backward begins, each result of the forward pass that it reads is held, or the task that makes it runs
again; what runs again reads results for which the same is true; and what is held fits the arena. Every plan
that copies nothing to the host obeys this, so the least seconds of all fractions that do are a bound. It says
nothing of what is at hand later, when stretches are made again.
"""

from __future__ import annotations

import importlib.util

from mxlite.memplan import Problem


def least_extra_time(problem: Problem, budget: int) -> float | None:
    """What `MemoryPlan.extra_time` of no plan within `budget` bytes is below; None without ortools.

    Infinite where there is no such plan.
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
