"""The time of every kernel call of a bound program, by kind of operator and kernel."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any


def profile(executor: Any, train: bool, step: Callable[[], float], count: int) -> dict[str, Any]:
    """Run `step` `count` times: {"step": seconds of a step, "kinds": [...]}, each kind with its seconds,
    calls, flops and bytes in one step.

    flops are what the operators say, bytes those of all inputs and outputs.
    """
    program = executor._train if train else executor._infer
    plan, lowered = program.plan, program.lowered
    numbers = iter(range(len(plan.schedule.task)))
    spent = [0.0] * len(plan.schedule.task)
    whole = [list(s.calls) for s in program.segments]
    for segment in program.segments:
        segment.calls = [timed(call, spent, next(numbers)) for call in segment.calls]
    try:
        seconds = sum(step() for _ in range(count)) / count
    finally:
        for segment, calls in zip(program.segments, whole):
            segment.calls = calls
    kinds: dict[tuple[str, str], dict[str, Any]] = {}
    for s, t in enumerate(plan.schedule.task):
        task, call = plan.problem.tasks[t], lowered.calls[t]
        key = (task.op, task.kernel)
        kind = kinds.setdefault(
            key, {"op": task.op, "kernel": task.kernel, "seconds": 0.0, "calls": 0, "flops": 0, "nbytes": 0}
        )
        kind["seconds"] += spent[s] / count
        kind["calls"] += 1
        kind["flops"] += flops(call)
        kind["nbytes"] += sum(plan.problem.values[v].nbytes for v in (*task.inputs, *task.outputs))
    return {"step": seconds, "kinds": sorted(kinds.values(), key=lambda k: -k["seconds"])}


def timed(call: Callable[[], None], spent: list[float], s: int) -> Callable[[], None]:
    def run() -> None:
        start = perf_counter()
        call()
        spent[s] += perf_counter() - start

    return run


def flops(call: Any) -> int:
    op = call.node.op
    count = op.forward_op.backward_flops if op.forward_op else op.flops
    return int(count(call.node.attrs, *call.shapes))
