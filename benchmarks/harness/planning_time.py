"""Table of planning times: one row for each problem, seconds of this thread."""

from __future__ import annotations

import os
from collections.abc import Mapping
from time import thread_time

import numpy as np

from mxlite.memplan import make_plan, plan_memory, Problem
from mxlite.memplan.remat import search
from mxlite.memplan.remat.evaluate import Evaluator

HEAD = ["problem", "forward", "tasks", "evaluate, ms", "place, s", "first budget, s", "next budget, s"]
CANDIDATES = 64


def planning_time(problems: Mapping[str, Problem], share: float = 0.5) -> list[list[object]]:
    """Rows under HEAD: one candidate of many, one plan, the first budget of a problem, and another one.

    Budgets are `share` of the arena that keeps everything, and a little less. No cache is used, neither in
    memory nor on disk.
    """
    rows: list[list[object]] = []
    switch = os.environ.get("MXLITE_PLAN_CACHE")
    os.environ["MXLITE_PLAN_CACHE"] = "0"
    try:
        for name, problem in problems.items():
            search._plans.clear()
            search._frontiers.clear()
            evaluator, rng = Evaluator(problem), np.random.default_rng(0)
            counts = rng.integers(0, 2, (CANDIDATES, problem.num_forward))
            evaluator.many(counts[:1])  # builds the tables
            spent = []
            began = thread_time()
            evaluator.many(counts)
            spent.append(f"{1e3 * (thread_time() - began) / CANDIDATES:.2f}")
            began = thread_time()
            arena = make_plan(problem).arena_bytes
            spent.append(f"{thread_time() - began:.2f}")
            for part in (share, 0.9 * share):
                began = thread_time()
                plan_memory(problem, problem.fixed_total + int(part * arena))
                spent.append(f"{thread_time() - began:.2f}")
            rows.append([name, problem.num_forward, len(problem.tasks), *spent])
    finally:
        if switch is None:
            del os.environ["MXLITE_PLAN_CACHE"]
        else:
            os.environ["MXLITE_PLAN_CACHE"] = switch
    return rows
