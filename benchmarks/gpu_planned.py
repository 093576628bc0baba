"""Planned bytes of the networks of benchmarks/gpu.py, compared with estimates of PyTorch eager's (no GPU).

    python benchmarks/gpu_planned.py            a minute; writes results/<date>-gpu-planned.md
    python benchmarks/gpu_planned.py --quick    small networks; prints only

Nothing is executed. Plans are made for an absent GPU, without workspace that cuBLASLt and cuDNN may need.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from gpu_columns import nets as known
from gpu_columns.columns import BUDGETS, MOST_EXTRA, ROOM
from gpu_columns.search import bisected
from harness import heading, markdown, RESULTS
from harness.machine import today
from networks.suite import MOMENTUM, Net
from planning.at_least import least_extra_time

import mxlite as mx
from mxlite.backends import planning_backend
from mxlite.backends.gpu.runtime.rates import H200
from mxlite.executor.run.graph_program import program_order

GIB = 2**30
PRECISIONS = {"float32": None, "bfloat16": "bfloat16"}
TF32 = "MXLITE_ALLOW_TF32"
RATES: dict[str, tuple[str | None, str]] = {
    "float32": (None, "0"),
    "TF32": (None, "1"),
    "bfloat16": ("bfloat16", "1"),
}
"""Type in which products are computed, by the settings of `amp` and TF32."""
TARGET = 0.7

ABOUT = """\
GiB. A step is forward, cross entropy, backward and SGD with momentum; parameters, momentum and batch are
counted. mxlite: what the plan says, the batch that waits (staging) included, and without recomputation
beyond what a step without a budget always has. floor: no plan takes less (all that no plan changes, and what
one step must have at hand). PyTorch eager: an estimate, not a measurement; see gpu_columns/torch_peak.py.

"""

STREAMS = """\
Predicted milliseconds of a step without a budget, and what a second stream could spare: if kernels get the
device one after the other while launches go on beside them, and at most, if they do not hinder each other.

"""


def planned(net: Net, amp: str | None = None, budget: int | None = None, batch: int | None = None) -> Any:
    """The plan for a GPU. Raises MemoryBudgetError."""
    sgd, shapes = mx.optimizer.SGD(momentum=MOMENTUM), net.shapes
    if batch is not None:
        shapes = {n: (batch, *s[1:]) for n, s in shapes.items()}
    return net.symbol().memory_plan(mx.gpu(0), amp=amp, memory_budget=budget, optimizer=sgd, **shapes)


def peaks(nets: Sequence[Net]) -> str:
    """A row for each network and precision."""
    from gpu_columns import torch_peak

    rows = []
    for net in nets:
        for title, amp in PRECISIONS.items():
            plan, theirs = planned(net, amp), torch_peak.peak(net, autocast=amp is not None)
            ratio = plan.peak_bytes / theirs
            met = "yes" if ratio <= TARGET else "NO"
            numbers = (plan.peak_bytes, plan.lower_bound_bytes, theirs)
            rows.append([f"{net.title}, {title}", *(f"{n / GIB:.3f}" for n in numbers), f"{ratio:.2f}", met])
            print(*rows[-1], flush=True)
    return markdown(["step", "mxlite", "floor", "PyTorch eager", "ratio", f"<= {TARGET}"], rows)


def budgets(net: Net, limits: dict[str, int]) -> str:
    """Predicted extra time within budgets at an H200's rates, for each precision, and its lower bound."""
    rows, before = [], os.environ.get(TF32)
    for precision, (amp, tf32) in RATES.items():
        os.environ[TF32] = tf32
        free = planned(net, amp)
        rows.append([precision, "none", f"{free.peak_bytes / GIB:.3f}", "-", "-", "-"])
        for name, limit in limits.items():
            start = perf_counter()
            try:
                plan = planned(net, amp, budget=limit)
                taken, bound = perf_counter() - start, least_extra_time(plan.problem, limit)
                least = "no ortools" if bound is None else f"{100 * bound:.1f} %"
                row = [f"{plan.peak_bytes / GIB:.3f}", f"{100 * plan.extra_time:.1f} %", least]
            except mx.MemoryBudgetError as error:
                taken = perf_counter() - start
                row = [f"{error.least_feasible_bytes / GIB:.3f} at least", "-", "-"]
            rows.append([precision, name, *row, f"{taken:.1f}"])
            print(*rows[-1], flush=True)
    del os.environ[TF32]
    if before is not None:
        os.environ[TF32] = before
    columns = [
        "products in",
        "budget",
        "planned",
        "extra time, predicted",
        "no plan below",
        "seconds to plan",
    ]
    return markdown(columns, rows)


def streams(nets: Sequence[Net]) -> str:
    """Time that a second stream of kernels could save of a step, by the plan's own times and order."""
    rows = []
    for net in nets:
        for title, amp in PRECISIONS.items():
            plan = planned(net, amp)
            for_one, shared, alone = (ending(plan, n, s) for n, s in ((1, True), (2, True), (2, False)))
            spared = [f"{100 * (1 - x / for_one):.1f} %" for x in (shared, alone)]
            rows.append([f"{net.title}, {title}", f"{1e3 * for_one:.3f}", *spared])
            print(*rows[-1], flush=True)
    return markdown(["step", "ms on one", "two spare", "at most"], rows)


def ending(plan: Any, kernels: int, shared: bool) -> float:
    """Time at which a step on so many streams ends. A launch runs beside work of the other streams; `shared`:
    kernels use the device one after the other, otherwise they run concurrently.
    """
    order, tasks = program_order(plan, kernels, planning_backend().remote), plan.problem.tasks
    ends: list[float] = []
    last: dict[int, float] = {}
    device = 0.0
    for s, t in enumerate(plan.schedule.task):
        ready = max([last.get(order.stream[s], 0.0), *(ends[p] for p in order.waits[s])])
        launch = min(H200.launch_s, tasks[t].seconds)
        start = max(ready + launch, device) if shared else ready + launch
        ends.append(start + tasks[t].seconds - launch)
        last[order.stream[s]] = ends[s]
        device = max(device, ends[s])
    return max(ends)


def batches(net: Net, nbytes: int) -> str:
    """The largest batch within `nbytes`."""
    from gpu_columns import torch_peak

    def fits(batch: int) -> bool:
        try:
            return bool(planned(net, budget=nbytes, batch=batch).extra_time <= MOST_EXTRA)
        except mx.MemoryBudgetError:
            return False

    ours, eager = bisected(fits, 4096), torch_peak.largest(net, nbytes)
    again = torch_peak.largest(net, nbytes, checkpointed=True)
    rows = [
        [f"mxlite, at most {100 * MOST_EXTRA:.0f} % more time", ours, "-"],
        ["PyTorch eager", eager, f"{ours / max(1, eager):.2f}"],
        ["PyTorch, a checkpoint for each block", again, f"{ours / max(1, again):.2f}"],
    ]
    return markdown(["column", "batch", "mxlite's / its"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small networks")
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    import torch

    start = perf_counter()
    nets = known.small() if args.quick else known.nets()
    text = heading("Planned memory on a GPU", {"PyTorch (nothing of it is run)": torch.__version__})
    parts = {"Peak of a step": ABOUT + peaks(nets), "Streams of kernels": STREAMS + streams(nets)}
    if not args.quick:
        (resnet,) = (n for n in nets if n.name == "resnet50")
        deep = known.deep()
        parts[deep.title + " within budgets"] = budgets(deep, BUDGETS)
        parts[f"Largest batch of ResNet-50 in {ROOM / 1e9:g} GB, float32"] = batches(resnet, ROOM)
    text += f"- all of it took {(perf_counter() - start) / 60:.1f} minutes\n"
    text += "".join(f"\n## {title}\n\n{found}" for title, found in parts.items())
    print(text)
    output = args.output or (None if args.quick else RESULTS)
    if output is not None:
        (output / f"{today()}-gpu-planned.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
