"""`overhead@budget`: extra time at fixed budgets, next to proven optima and the best plans known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness import markdown
from networks.feature_maps import feature_maps, memonger_resnet

import mxlite as mx
from mxlite.memplan import MemoryPlan, Problem
from planning import anchors
from planning.asking import Asked
from planning.exact import reference
from planning.report import percent, Report, say

ABOUT = """\
Feature maps and their gradients only, one backward operator for each forward one, max(flops / 10 T, bytes /
600 G) seconds, backward of a convolution 2x its forward, of a norm 1.5x (networks/feature_maps.py). The first
four are graphs of the Checkmate benchmark by topology, rebuilt with our operators; that benchmark's published
cost profiles are not here, so its tables do not apply, and the anchor is what CP-SAT finds in this run,
started from our plan (each operator at most {runs} times): "proven" where it proves that nothing is faster.
Below 1, the planner is faster than any schedule of that kind (it may run an operator more often). The ResNets
are memonger's; best known are figures measured earlier, with the same problem and cost model (see Headline).
Per cents are of a step.

"""
SMALL, LARGE = 1.05, 1.10
RUNS = 3
UPTO = 72  # largest number of tasks of a small graph


@dataclass(frozen=True)
class Case:
    """A graph to plan. `known`: the best known per cent by share, if the graph is one of an earlier table."""

    title: str
    problem: Callable[[], Problem]
    shares: tuple[float, ...]
    in_place: bool = False
    known: dict[float, float] | None = None
    prove: bool = True


def _maps(name: str, batch: int, side: int, joined: str, **options: Any) -> Problem:
    net = mx.models.get(name, **options)
    return feature_maps(net, {"data": (batch, 3, side, side)}, joined=joined, in_place=False)


CASES = [
    Case("VGG-16", partial(_maps, "vgg16", 32, 224, "Convolution", dropout=0.0), (0.95, 0.90, 0.85)),
    Case("U-Net", partial(_maps, "unet", 8, 256, "Convolution", batch_norm=False), (0.90, 0.80, 0.70, 0.65)),
    Case("MobileNet", partial(_maps, "mobilenet_v1", 32, 224, ""), (0.80, 0.60, 0.45)),
    Case("ResNet-50", partial(_maps, "resnet50", 32, 224, ""), (0.80, 0.60, 0.40)),
    Case(
        "ResNet [1, 2, 2, 1]",
        partial(memonger_resnet, (1, 2, 2, 1), False),
        tuple(anchors.SHARES_OF_19),
        known=anchors.SHARES_OF_19,
    ),
    Case(
        "ResNet [3, 24, 36, 3]",
        partial(memonger_resnet, (3, 24, 36, 3), True),
        tuple(anchors.SHARES_OF_199),
        in_place=True,
        known=anchors.SHARES_OF_199,
        prove=False,
    ),
]
QUICK = ("VGG-16", "U-Net")


def measure(report: Report, quick: bool, effort: float, graphs: Sequence[str] | None = None) -> None:
    title = "Extra time at fixed budgets"
    exact = reference()
    rows: list[list[object]] = []
    worst: dict[str, float] = {}
    about = ABOUT.format(runs=RUNS)
    if exact is None:
        about += "ortools is not installed (extra `exact`): no optima in this run.\n\n"
    wanted = graphs or (QUICK if quick else [c.title for c in CASES])
    for case in CASES:
        if case.title not in wanted:
            continue
        problem = case.problem()
        asked = Asked(problem)
        keep_all = asked.keep_all
        for share in case.shares:
            say(f"overhead: {case.title} at {share:.2f}")
            arena = int(share * keep_all.arena_bytes)
            plan = asked.within(arena)
            best, status = _anchor(case, problem, arena, share, plan, exact, effort)
            ratio = None if plan is None or best is None else _ratio(plan.extra_time, best)
            ours = "-" if plan is None else percent(plan.extra_time)
            if plan is None and best == float("inf"):
                best, status = None, f"{status}: impossible"
            rows.append(
                [
                    case.title, len(problem.tasks), "on" if case.in_place else "off", f"{share:.2f}", ours,
                    "-" if best is None else percent(best), status, "-" if ratio is None else f"{ratio:.3f}",
                ]
            )  # fmt: skip
            if best is not None:
                kind = "small" if len(problem.tasks) <= UPTO else "large"
                worst[kind] = max(worst.get(kind, 0.0), float("inf") if ratio is None else ratio)
            head = ["graph", "tasks", "in place", "budget / keep-all", "ours +%", "anchor +%"]
            report.put(title, about + markdown([*head, "anchor", "ours / anchor"], rows))
    for kind, limit in (("small", SMALL), ("large", LARGE)):
        if kind in worst:
            name = f"extra time / best known, {kind} graphs, worst"
            report.target(name, f"at most {limit}", f"{worst[kind]:.3f}", worst[kind] <= limit)


def _ratio(ours: float, best: float) -> float:
    """ours / best; 1 if both are zero."""
    return ours / best if best else (1.0 if ours == 0 else float("inf"))


def _anchor(
    case: Case, problem: Problem, arena: int, share: float, plan: MemoryPlan | None, exact: Any, effort: float
) -> tuple[float | None, str]:
    """(extra time, where it comes from)."""
    known = case.known[share] / 100 if case.known else None
    if exact is None or not case.prove:
        return known, "best known" if known is not None else "none"
    hint = plan.schedule.task if plan is not None else None
    answer = exact.solve(problem, arena, runs=RUNS, effort=effort, hint=hint)
    found = answer.extra_seconds / problem.step_seconds
    if answer.proven:
        return found, "proven"
    bound = percent(answer.bound / problem.step_seconds)
    if known is not None and known <= found:
        return known, f"best known, bound {bound}"
    if found == float("inf"):
        return known, f"bound {bound}"
    return found, f"CP-SAT, bound {bound}"
