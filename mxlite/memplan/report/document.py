"""Data for the page's script: plans as plain data, as short as they can be without compression.

    {"title", "shown": which plan first, "problems": [...], "plans": [...]}

A problem has names and numbers of tasks and values; plans of one network share it. A plan has its steps, its
instances (numbered in the order of writing) and its buffers. `web/data.js` reads it all back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..plan import MemoryPlan
from ..problem import padded, Problem
from .boxes import KINDS
from .certificate import certificate_of
from .coding import packed, shortened, steps_of

Data = dict[str, Any]


def document(plans: Sequence[MemoryPlan], shown: int, title: str) -> Data:
    """The document of these plans, which first shows the one with number `shown`."""
    numbers: dict[str, int] = {}
    problems: list[Data] = []
    made: list[Data] = []
    for plan in plans:
        digest = plan.problem.digest
        if digest not in numbers:
            numbers[digest] = len(problems)
            problems.append(_problem(plan.problem))
        made.append({"problem": numbers[digest], **_plan(plan)})
    return {"title": title, "shown": shown, "kinds": KINDS, "problems": problems, "plans": made}


def _problem(problem: Problem) -> Data:
    tasks, values = problem.tasks, problem.values
    ops, op = _table([t.op for t in tasks])
    kernels, kernel = _table([t.kernel for t in tasks])
    task_shared, task_names = shortened([t.name for t in tasks])
    value_shared, value_names = shortened([v.name for v in values])
    fixed = [[v for v in t.inputs if values[v].fixed] for t in tasks]
    return {
        "tasks": [task_shared, task_names],
        "values": [value_shared, value_names],
        "ops": ops,
        "op": op,
        "kernels": kernels,
        "kernel": kernel,
        "picoseconds": packed([min(max(0, round(t.seconds * 1e12)), 2**53) for t in tasks]),
        "fixedReads": _rows(fixed),
        "fixedWrites": _rows([t.mutates for t in tasks]),
        "numForward": problem.num_forward,
        "fixedBytes": problem.fixed_total,
    }


def _table(words: Sequence[str]) -> tuple[list[str], str]:
    """The distinct words, and for each position the index of its word."""
    number = {w: i for i, w in enumerate(dict.fromkeys(words))}
    return list(number), packed([number[w] for w in words])


def _rows(rows: Sequence[Sequence[int]]) -> list[str]:
    """Lists of numbers as text: their lengths, and all numbers in one row."""
    return [packed([len(r) for r in rows]), steps_of([n for r in rows for n in r])]


def _plan(plan: MemoryPlan) -> Data:
    schedule, ranges = plan.schedule, plan.liveness.ranges
    # Instances are renumbered in the order in which steps write them; those outside the arena get no number.
    number: dict[int, int] = {}
    made_at: list[int] = []
    reads: list[int] = []
    read_count: list[int] = []
    for s, (ins, outs) in enumerate(zip(schedule.inputs, schedule.outputs)):
        known = [len(number) - number[i] for i in dict.fromkeys(ins) if i in number]
        read_count.append(len(known))
        reads += known
        for i in outs:
            if i >= 0 and plan.liveness.range_of[i] >= 0:
                number[i] = len(number)
                made_at.append(s)
    sizes = sorted({padded(r.nbytes) for r in ranges})
    size = {n: i for i, n in enumerate(sizes)}
    unit = int(np.gcd.reduce(np.array([0, *plan.offsets], np.int64))) or 1
    return {
        "method": plan.how,
        "budget": plan.budget_bytes,
        "peak": plan.peak_bytes,
        "arena": plan.arena_bytes,
        "bound": plan.lower_bound_bytes,
        "keepAll": plan.keep_all_peak_bytes,
        "extra": plan.extra_time,
        "recomputed": plan.recomputed,
        "breakdown": plan.breakdown,
        "certificate": certificate_of(plan),
        "numForward": schedule.num_forward,
        "task": steps_of(schedule.task),
        "copy": packed(schedule.copy),
        "stepKind": packed(schedule.kind),
        "offloaded": plan.offloaded,
        "hostBytes": plan.host_bytes,
        "readCount": packed(read_count),
        "reads": packed(reads),
        "made": steps_of(made_at),
        "value": steps_of([schedule.value_of[i] for i in number]),
        "buffer": steps_of([plan.liveness.range_of[i] for i in number]),
        "start": steps_of([r.start for r in ranges]),
        "steps": packed([r.stop - r.start for r in ranges]),
        "sizes": sizes,
        "size": packed([size[padded(r.nbytes)] for r in ranges]),
        "unit": unit,
        "offset": packed([o // unit for o in plan.offsets]),
    }
