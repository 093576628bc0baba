"""Planned bytes of published networks by strategy, compared with MXNet 1.9.1 and memonger; nothing is run.
executed.

    python benchmarks/memory.py            a few minutes; writes results/<date>-memory.md and its plots
    python benchmarks/memory.py --quick    seconds, small networks only; prints only

MXLITE_MXNET_PYTHON names a Python that has MXNet 1.9.1; then it plans the smaller networks in the same run,
otherwise ours are compared only with the constants of networks/measured.py.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from harness import heading, markdown, mxnet_python, plot, RESULTS, Worker
from harness.machine import today
from networks.measured import LSTM, Measured, PUBLISHED, RESNET

import mxlite as mx
from mxlite.memplan import (
    by_bytes,
    cheap,
    check,
    find_cuts,
    live_ranges,
    make_plan,
    make_schedule,
    MemoryPlan,
    partial,
    Problem,
)
from mxlite.memplan.remat.split import strides, total_bytes

BATCH = 32
DEPTHS = (50, 101, 152, 200, 500, 1001)
LIVE_DEPTH = 200  # MXNet plans up to this depth in the same run
MIB = 2**20
ANY = 2**61
TOPOLOGIES = {"memonger": "post-activation", "v2": "pre-activation"}
FORMS = {"loss per step": False, "one softmax over concat": True}

ABOUT = """\
Numbers are MiB. What is compared is what MXNet's "Total MB allocated" counts: the results of all operators,
outputs among them, without arguments, gradients of arguments, auxiliary states. Both bind with
grad_req="write", so the data gets a gradient too. For mxlite that is the arena plus the outputs. mxlite also
plans the workspaces of its kernels, which MXNet does not: they lie in the arena and are counted from
sharing on ("of it ws": at the fullest step); for none and in-place "ws" comes on top, one for each call.

- none: every result has bytes of its own. in-place: operators may overwrite an input.
- sharing: in-place, and the bytes of the dead are used again. The default, in whose backward pass norms, sums
  and maxima are made again.
- drop cheap: batch norm, activation, pooling and sums run again in backward.
- sublinear: the least memory for at most one more forward pass (segments between cuts, Algorithm 7 and every
  stride); its time is what `memory_budget=` with these bytes needs.
- least: the budget that MemoryBudgetError names as one that works, whatever it takes.
- Every plan from sharing on has passed the judge, which replays it and shares no code with the planner.
- Post-activation is the network of memonger's example, pre-activation that of MXNet's image classification.
- Per cents are predicted recompute time as a share of the step; one more forward pass is {forward}.
- MXNet and memonger are constants measured earlier with MXNet 1.9.1; "now" was planned by MXNet in this run.
- plan s: seconds for inference, kernels and the sharing plan; search s: for the search behind "least".

"""


@dataclass(frozen=True)
class Planned:
    """Results for one network: bytes by strategy, outputs included, and their costs."""

    size: int
    tasks: int
    none: int
    in_place: int
    sharing: int
    workspace: int
    workspaces: int
    drop_cheap: tuple[int, float]
    sublinear: tuple[int, float]
    least: tuple[int, float]
    forward_share: float
    plan_s: float
    search_s: float
    measured: Measured | None
    live: tuple[int, int] | None


def study(
    size: int, net: Any, shapes: dict[str, tuple[int, ...]], measured: Measured | None, live: Any
) -> Planned:
    """Plan `net` under every strategy."""
    start = perf_counter()
    sharing = net.memory_plan(mx.cpu(), **shapes)
    plan_s = perf_counter() - start
    problem = sharing.problem
    # Without a budget a step recomputes cheap results; plans within a budget are made for another step.
    within = net.memory_plan(mx.cpu(), memory_budget=ANY, **shapes).problem
    start = perf_counter()
    try:
        least = net.memory_plan(mx.cpu(), memory_budget=1, **shapes)
    except mx.MemoryBudgetError as error:
        least = net.memory_plan(mx.cpu(), memory_budget=error.least_feasible_bytes, **shapes)
    search_s = perf_counter() - start
    forward = sum(t.seconds for t in within.tasks[: within.num_forward]) / within.step_seconds
    # The search may know a faster plan of equal size.
    small = sublinear(within, forward)
    small = net.memory_plan(mx.cpu(), memory_budget=small.peak_bytes, **shapes)
    return Planned(
        size=size,
        tasks=len(problem.tasks),
        none=results(problem, in_place=False),
        in_place=results(problem, in_place=True),
        sharing=counted(sharing),
        workspace=sharing.breakdown["workspace"],
        workspaces=sum(t.workspace for t in problem.tasks),
        drop_cheap=cost(make_plan(within, cheap(within))),
        sublinear=cost(small),
        least=cost(least),
        forward_share=forward,
        plan_s=plan_s,
        search_s=search_s,
        measured=measured,
        live=None if live is None else (live[0], live[1]),
    )


def counted(plan: MemoryPlan) -> int:
    """Bytes that MXNet would count: arena (workspaces included) and outputs; the plan is verified first."""
    check(plan)
    return plan.arena_bytes + plan.breakdown["outputs"]


def results(problem: Problem, *, in_place: bool) -> int:
    """Bytes of all results without sharing, outputs included and workspaces not."""
    schedule = make_schedule(problem, [0] * problem.num_forward)
    ranges = live_ranges(schedule, in_place=in_place, workspaces=False).ranges
    return sum(r.nbytes for r in ranges) + problem.fixed_bytes.get("outputs", 0)


def cost(plan: MemoryPlan) -> tuple[int, float]:
    return counted(plan), plan.extra_time


def sublinear(problem: Problem, limit: float) -> MemoryPlan:
    """The smallest plan of one level of segments whose extra time is at most `limit`.

    All are candidates of mxlite's own search, so a budget of this size is feasible.
    """
    cuts = find_cuts(problem)
    candidates = [cheap(problem)]
    candidates += [partial(cuts, s, 1.0) for s in strides(cuts)]
    candidates += [by_bytes(cuts, total_bytes(problem) >> i) for i in range(1, 9)]
    found = []
    for counts in candidates:
        schedule = make_schedule(problem, counts)
        if schedule.extra_time <= limit * 1.0001:
            found.append((live_ranges(schedule).max_live_bytes, schedule.extra_time, counts))
    return make_plan(problem, min(found)[2])


# -- tables ------------------------------------------------------------------------------------


def mib(nbytes: int) -> str:
    return f"{nbytes / MIB:.0f}"


def with_time(pair: tuple[int, float]) -> str:
    return f"{mib(pair[0])} +{100 * pair[1]:.0f} %"


def table(rows: list[Planned], size: str) -> str:
    """Two tables: without and with recomputation."""
    dash = "-"

    def of(row: Planned, name: str) -> str:
        value = getattr(row.measured, name) if row.measured else None
        return dash if value is None else str(value)

    def ratio(nbytes: int, row: Planned, name: str) -> str:
        return f"{nbytes / MIB / getattr(row.measured, name):.2f}" if row.measured else dash

    keep = markdown(
        [size, "ops", "none", "MXNet", "in-place", "MXNet", "ws"]
        + ["sharing", "of it ws", "MXNet", "now", "ratio", "plan s"],
        [
            [
                r.size, r.tasks, mib(r.none), of(r, "none"), mib(r.in_place), of(r, "in_place"),
                mib(r.workspaces),
                mib(r.sharing), mib(r.workspace), of(r, "sharing"), dash if r.live is None else r.live[0],
                ratio(r.sharing, r, "sharing"), f"{r.plan_s:.2f}",
            ]
            for r in rows
        ],
    )  # fmt: skip
    drop = markdown(
        [size, "drop cheap", "MXNet mirror", "sublinear", "memonger", "ratio", "least", "ratio", "search s"],
        [
            [
                r.size, with_time(r.drop_cheap), of(r, "mirror"), with_time(r.sublinear), of(r, "memonger"),
                ratio(r.sublinear[0], r, "memonger"), with_time(r.least), ratio(r.least[0], r, "memonger"),
                f"{r.search_s:.1f}",
            ]
            for r in rows
        ],
    )  # fmt: skip
    return f"Without recomputation:\n\n{keep}\nWith recomputation:\n\n{drop}"


def targets(families: dict[str, list[Planned]]) -> str:
    """Table of the targets and whether they are met, network by network."""
    missed = []
    count = 0
    for name, rows in families.items():
        for r in rows:
            if r.measured is None:
                continue
            count += 2
            if r.sharing > r.measured.sharing * MIB:
                missed.append(f"{name}, {r.size}: sharing {mib(r.sharing)}, MXNet {r.measured.sharing}")
            if r.sublinear[0] > r.measured.memonger * MIB:
                missed.append(
                    f"{name}, {r.size}: sublinear {mib(r.sublinear[0])}, memonger {r.measured.memonger}"
                )
    lines = [
        "## Targets",
        "",
        "Sharing at or below MXNet's plan, sublinear at or below memonger's, for the same network:",
    ]
    lines.append(f"{count - len(missed)} of {count} met." + ("" if missed else " None missed."))
    lines += [f"- MISSED {m} MiB" for m in missed]
    pairs = [
        ((r.measured.sharing, r.measured.nodes), r.live, f"{name}, {r.size}")
        for name, rows in families.items()
        for r in rows
        if r.live and r.measured
    ]
    if pairs:
        same = sum(constant == live for constant, live, _ in pairs)
        lines.append(
            f"MXNet planned {len(pairs)} of them again in this run; bytes and nodes as before: {same}."
        )
        lines += [
            f"- DIFFERENT {which}: {live} now, {constant} then"
            for constant, live, which in pairs
            if constant != live
        ]
    return "\n".join(lines) + "\n"


# -- the run -----------------------------------------------------------------------------------


def study_all(peer: Worker | None, quick: bool) -> dict[str, list[Planned]]:
    """Family -> results of its networks, smallest first."""
    families: dict[str, list[Planned]] = {}
    for topology, name in TOPOLOGIES.items():
        rows = families[f"ResNet, {name}"] = []
        for depth in DEPTHS:
            if quick and depth > 101:
                continue
            note(f"{topology} {depth}")
            net = mx.models.get(f"resnet{depth}_{topology}")
            shapes = mx.models.shapes_of(f"resnet{depth}_{topology}", BATCH)
            live = ask(peer, net, shapes) if depth <= LIVE_DEPTH else None
            rows.append(study(depth, net, shapes, RESNET.get((topology, depth)), live))
    for form, joined in FORMS.items():
        rows = families[f"LSTM, {form}"] = []
        for steps in (8,) if quick else (8, 16, 32, 64):
            note(f"LSTM, {form}, {steps} steps")
            net = mx.models.get("lstm_unrolled", steps=steps, joined=joined)
            shapes = mx.models.shapes_of("lstm_unrolled", 64, steps=steps)
            rows.append(study(steps, net, shapes, LSTM.get((form, steps)), ask(peer, net, shapes)))
    return families


def ask(peer: Worker | None, net: Any, shapes: dict[str, tuple[int, ...]]) -> Any:
    """MXNet's plan of the same network, read from the same file; None without MXNet."""
    return None if peer is None else peer.ask(do="plan", symbol=net.tojson(), shapes=shapes)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small networks only, no result file")
    parser.add_argument("--output", type=Path, help="folder of the results (default: benchmarks/results)")
    parser.add_argument("--plots", choices=("svg", "png"), default="svg", help="form of the plots")
    args = parser.parse_args()
    output = args.output or (None if args.quick else RESULTS)

    with ExitStack() as stack:
        peer = versions = None
        if python := mxnet_python():
            env = {"MXNET_SUBGRAPH_BACKEND": "NONE"}
            peer = stack.enter_context(Worker(python, "memory_worker.py", "mxnet", env=env))
            versions = peer.ask(do="versions")
        text = heading("Planned memory", versions)
        start = perf_counter()
        families = study_all(peer, args.quick)
    shares = [r.forward_share for rows in families.values() for r in rows]
    text += f"- all of it took {perf_counter() - start:.0f} s\n\n"
    text += ABOUT.format(forward=f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %")
    text += targets(families) + f"\n{PUBLISHED}\n"
    drawn: dict[str, str] = {}
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        drawn = plot.draw(families, output, f"{today()}-memory", args.plots)
    for name, rows in families.items():
        kind, _, form = name.partition(", ")
        batch = (
            f"batch {BATCH}, 3x224x224" if kind == "ResNet" else "4 layers of 1024, batch 64, 5000 classes"
        )
        tables = table(rows, "depth" if kind == "ResNet" else "steps")
        text += f"\n## {kind}: {form}\n\nfloat32, {batch}.\n\n{tables}"
        if name in drawn:
            text += f"\n![memory of {name}]({drawn[name]})\n"
    print(text)
    if output is not None:
        (output / f"{today()}-memory.md").write_text(text)
        note(f"written: {today()}-memory.md" + "".join(f", {d}" for d in drawn.values()))


if __name__ == "__main__":
    main()
