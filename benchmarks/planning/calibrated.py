"""Plans of one network within some budgets: the extra time they predict, and that of their programs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from harness import markdown, Spread

import mxlite as mx
from mxlite.core.errors import MemoryBudgetError
from mxlite.memplan import MemoryPlan
from mxlite.memplan.cost import locality

Clock = Callable[[], float]

PROFILED = 10  # steps
MOST_KERNELS = 12  # listed for a plan; the others are summed

SHARES = (0.8, 0.6, 0.45, 0.3, 0.2)  # of the arena that keeps everything


@dataclass(frozen=True)
class Row:
    """Results for one budget: ratios to the step that keeps everything, and seconds of the whole step."""

    budget: int
    predicted: float
    summed: float
    modelled: float
    measured: float
    predicted_s: float
    measured_s: float


@dataclass(frozen=True)
class Study:
    """Results for one network: seconds of the step that keeps everything, what calibration did, a row for
    each budget, and for each plan a table of its kernels if requested.
    """

    predicted_s: float
    measured_s: float
    done: str
    rows: list[Row]
    kernels: list[str]

    @property
    def worst(self) -> float:
        """The largest difference of predicted and measured per cents."""
        return max((abs(100 * (r.predicted - r.measured)) for r in self.rows), default=0.0)

    def table(self) -> str:
        table = [
            (
                mx.format_bytes(r.budget),
                f"{100 * r.predicted:.1f}",
                f"{100 * r.measured:.1f}",
                f"{100 * (r.predicted - r.measured):+.1f}",
                f"{100 * r.summed:.1f}",
                f"{100 * r.modelled:.1f}",
                f"{1e3 * r.predicted_s:.2f}",
                f"{1e3 * r.measured_s:.2f}",
            )
            for r in self.rows
        ]
        head = ("budget", "predicted, %", "measured, %", "points", "sum, %", "modelled, %")
        return markdown((*head, "predicted, ms", "measured, ms"), table)


def requests(net: Any, shapes: Mapping[str, Any]) -> dict[str, str]:
    data = {*shapes, "softmax_label"}
    return {n: "null" if n in data else "write" for n in net.list_arguments()}


def study(
    net: Any,
    shapes: Mapping[str, Any],
    rounds: int,
    clock: Clock,
    with_kernels: bool = False,
    shares: Sequence[float] = SHARES,
    values: Mapping[str, np.ndarray] | None = None,
) -> Study:
    """Plans of one network at some budgets, predicted and run. Arrays are `values`, or small numbers."""
    ask = dict(grad_req=requests(net, shapes), **shapes)
    done = net.calibrate(mx.cpu(), **ask)
    whole, budgets = net.memory_plan(mx.cpu(), device="measured", **ask), []
    for share in shares:
        budget = whole.problem.fixed_total + int(share * whole.arena_bytes)
        try:
            net.memory_plan(mx.cpu(), device="measured", memory_budget=budget, **ask)
        except MemoryBudgetError as error:
            budget = error.least_feasible_bytes
            if budget >= whole.peak_bytes or budget in budgets:
                continue
        budgets.append(budget)
    net.calibrate(mx.cpu(), budgets=budgets, **ask)
    executors = [
        net.simple_bind(mx.cpu(), device="measured", memory_budget=budget, **ask)
        for budget in (None, *budgets)
    ]
    whole = executors[0].memory_plan
    fill = np.random.default_rng(0)
    for executor in executors:
        for name, array in executor.arg_dict.items():
            array[:] = values[name] if values else fill.normal(scale=0.05, size=array.shape)
    times = interleaved([step_of(e) for e in executors], rounds, clock)
    plans = [e.memory_plan for e in executors]
    rows = []
    for plan, budget, seconds in zip(plans[1:], budgets, times[1:]):
        described = net.memory_plan(mx.cpu(), memory_budget=2**61, **ask).problem
        modelled = [t.seconds for t in described.tasks]
        again = sum(modelled[t] for t, k in zip(plan.schedule.task, plan.schedule.copy) if k)
        rows.append(
            Row(
                budget, plan.predicted_seconds / whole.predicted_seconds - 1, plan.extra_time,
                again / sum(modelled), (seconds / times[0]).median - 1,
                plan.predicted_seconds, seconds.median,
            )
        )  # fmt: skip
    kernels = [kernels_of(e, p) for e, p in zip(executors, plans)] if with_kernels else []
    return Study(whole.predicted_seconds, times[0].median, str(done), rows, kernels)


def kernels_of(executor: Any, plan: MemoryPlan) -> str:
    """Table of calls and milliseconds of a step by kernel, slowest first."""
    step = step_of(executor)
    found: dict[tuple[str, str], np.ndarray] = defaultdict(lambda: np.zeros(3))
    for t, call in zip(plan.schedule.task, locality.walk(plan)):
        task = plan.problem.tasks[t]
        found[task.op, task.kernel] += (1, 1e3 * call.seconds, 0)
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    step()
    for _ in range(PROFILED):
        mx.profiler.set_state("run")
        step()
        mx.profiler.set_state("stop")
        for row in json.loads(mx.profiler.dumps(reset=True, format="json"))["Kernels"]:
            times[row["Operator"], row["Kernel"]].append(row["Total"])
    for key, of_steps in times.items():
        found[key] += (0, 0, median(of_steps))
    keys = sorted(found, key=lambda key: -found[key][2])
    parts = {", ".join(key): [key] for key in keys[:MOST_KERNELS]}
    parts |= {"others": keys[MOST_KERNELS:], "all": keys}
    sums = {name: sum((found[key] for key in of), np.zeros(3)) for name, of in parts.items()}
    rows = [(name, f"{n:.0f}", f"{predicted:.2f}", f"{ms:.2f}") for name, (n, predicted, ms) in sums.items()]
    return markdown(("kernel", "calls", "predicted, ms", "measured, ms"), rows)


def step_of(executor: Any) -> Callable[[], None]:
    def step() -> None:
        executor.forward(is_train=True)
        executor.backward()
        mx.nd.waitall()

    return step


def interleaved(steps: list[Callable[[], None]], rounds: int, clock: Clock) -> list[Spread]:
    """Seconds of each step by round; the steps take turns, after one round of warm-up."""
    times: list[list[float]] = [[] for _ in steps]
    for r in range(rounds + 1):
        for step, found in zip(steps, times):
            step()
            start = clock()
            step()
            if r:
                found.append(clock() - start)
    return [Spread(tuple(t)) for t in times]
