"""Predicted against measured extra time of plans within a budget, with costs timed by `device="measured"`.

    python benchmarks/calibration.py            a few minutes; writes results/<date>-calibration.md
    python benchmarks/calibration.py --quick    smaller networks, fewer rounds; prints only
        MXLITE_NUM_THREADS=1 python benchmarks/calibration.py --cpu    where cores are shared
        python benchmarks/calibration.py --only unet --kernels         and times by kernel

Each network is bound once without a budget and once for each budget; then all its executors take turns, so
that other load on the machine affects all alike. A turn is two steps, of which the second is timed: the first
finds the caches filled by another executor. Extra time is the median over rounds of the ratio to the step
that keeps everything, in the same round.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
from harness import heading, markdown, RESULTS, Spread
from harness.machine import today

import mxlite as mx
from mxlite.core.errors import MemoryBudgetError
from mxlite.memplan import MemoryPlan
from mxlite.memplan.cost import locality

ABOUT = """\
Extra time is what recomputation adds, as a share of the step that keeps all: predicted by the plan from its
step on scratch arrays (`device="measured"`), and measured. Kernels are timed before the networks are bound,
then all plans are tried in turns. Points are the difference of predicted and measured per cents; the aim is
5. `sum` is what the kernels' mean times in steps say, by which plans are chosen, `modelled` what the default
costs (10 TFLOP/s, 600 GB/s) say of the same plan. With --kernels follow the milliseconds of a step of each
plan by kernel: as predicted from its time in steps and what it finds in the cache, and as `mx.profiler` finds
them by the clock, medians of steps of their own.

"""

Clock = Callable[[], float]

PROFILED = 10  # steps
MOST_KERNELS = 12  # listed for a plan; the others are summed

SHARES = (0.8, 0.6, 0.45, 0.3, 0.2)  # of the arena that keeps everything


@dataclass(frozen=True)
class Case:
    """A network: `name` in the zoo, batch, and the options it is built with."""

    name: str
    batch: int
    options: dict[str, Any]

    def symbol(self) -> tuple[Any, dict[str, Any]]:
        return mx.models.get(self.name, **self.options), mx.models.shapes_of(
            self.name, self.batch, **self.options
        )


CASES = (
    Case("resnet20_cifar", 32, {}),
    Case("resnet56_cifar", 32, {}),
    Case("lstm_unrolled", 16, {}),
    Case("unet", 1, {}),
    Case("mlp", 256, {"hidden": (512,) * 16, "features": 512}),
)
QUICK = (Case("resnet20_cifar", 8, {}), Case("mlp", 64, {"hidden": (128,) * 8, "features": 128}))


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


def requests(net: Any, shapes: dict[str, Any]) -> dict[str, str]:
    data = {*shapes, "softmax_label"}
    return {n: "null" if n in data else "write" for n in net.list_arguments()}


def study(case: Case, rounds: int, clock: Clock, with_kernels: bool) -> Study:
    """Plans of one network at some budgets, predicted and run."""
    net, shapes = case.symbol()
    ask = dict(grad_req=requests(net, shapes), **shapes)
    done = net.calibrate(mx.cpu(), **ask)
    whole, budgets = net.memory_plan(mx.cpu(), device="measured", **ask), []
    for share in SHARES:
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
        for array in executor.arg_arrays:
            array[:] = fill.normal(scale=0.05, size=array.shape)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--cpu", action="store_true", help="processor time, where others use the cores too")
    parser.add_argument("--only", help="one network, by name")
    parser.add_argument("--kernels", action="store_true", help="predicted and measured time by kernel, too")
    args = parser.parse_args()
    clock = process_time if args.cpu else perf_counter
    rounds = args.rounds or (5 if args.quick else 15)
    text, worst = heading("Predicted and measured extra time", None) + "\n" + ABOUT, 0.0
    print(text)
    for case in QUICK if args.quick else CASES:
        if args.only not in (None, case.name):
            continue
        found = study(case, rounds, clock, args.kernels)
        part = f"## {case.name}, batch {case.batch}\n\n{found.done[:1].upper()}{found.done[1:]}; it took "
        part += (
            f"{1e3 * found.measured_s:.2f} ms, {100 * (found.measured_s / found.predicted_s - 1):+.0f} %.\n\n"
        )
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
            for r in found.rows
        ]
        head = ("budget", "predicted, %", "measured, %", "points", "sum, %", "modelled, %")
        part += markdown((*head, "predicted, ms", "measured, ms"), table) + "\n"
        for name, kernels in zip(("keep all", *(row[0] for row in table)), found.kernels):
            part += f"### {name}\n\n{kernels}\n"
        worst = max([worst, *(abs(100 * (r.predicted - r.measured)) for r in found.rows)])
        print(part, flush=True)
        text += part + "\n"
    last = f"Largest difference: {worst:.1f} points.\n"
    print(last)
    if not args.quick and args.only is None:
        (RESULTS / f"{today()}-calibration.md").write_text(text + last)


if __name__ == "__main__":
    main()
