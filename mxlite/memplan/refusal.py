"""The error for a budget that is too small: what would fit, what cannot, and where the bytes go.

Other remedies, such as a smaller batch, are known only to callers who know the network: whoever
catches the error adds them (see executor/plan/remedies.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter

from ..core.bytesize import format_bytes
from ..core.errors import MemoryBudgetError
from .holders import at_peak, describe_peak, held_table, short
from .plan import MemoryPlan
from .problem import Problem
from .remat.frontier import Frontier

NOTABLE = 0.01  # share of the fixed bytes from which on a remedy for them is mentioned
TWICE = 1.0  # extra time, as a share
TOP = 5  # rows of the table in the message
PER_BATCH = ("inputs", "outputs")  # fixed bytes that grow with the batch


def too_small(
    steps: Sequence[Problem], budget: int, frontiers: Sequence[Frontier], keep_all: MemoryPlan
) -> MemoryBudgetError:
    """The error for a `budget` that no plan of `frontiers` fits: those of `steps`, all that there are.

    `keep_all` is the first step's plan that recomputes nothing.
    """
    least = _smallest([(f.least_possible, f.least) for f in frontiers])
    assert least is not None
    quicker = [(f, f.last_within(f.problem.seconds_left(TWICE))) for f in frontiers]
    doubled = _smallest(
        [
            (f.problem.fixed_total + f.points[i].live_bytes, partial(f.plan, i))
            for f, i in quicker
            if i is not None
        ]
    )
    problem = min(steps, key=lambda step: step.lower_bound_bytes)
    bound = problem.lower_bound_bytes
    nearer = ""
    if doubled is not None and doubled.extra_time <= TWICE < least.extra_time:
        nearer = (
            f", one of {doubled.peak_bytes} bytes ({format_bytes(doubled.peak_bytes)}) with "
            f"{100 * doubled.extra_time:.1f} %"
        )
    lines = [
        f"No plan fits {_both(budget)}.",
        f"A budget of {least.peak_bytes} bytes ({format_bytes(least.peak_bytes)}) does work, with "
        f"{100 * least.extra_time:.1f} % extra time{nearer}; without recomputation it takes "
        f"{format_bytes(keep_all.peak_bytes)}.",
        _bound_line(problem),
    ]
    if least.peak_bytes > bound:
        lines.append(
            f"Between these two, {format_bytes(least.peak_bytes - bound)} apart, no plan is known and none "
            f"is excluded."
        )
    else:
        lines.append("Both are one: no plan takes less.")
    if problem.fixed_total > budget:
        lines.append(_fixed_line(problem, budget))
    if held := at_peak(least):
        lines.append(f"Who holds the arena of that plan where it is fullest ({describe_peak(least)}):")
        lines.append(held_table(held, TOP))
    return MemoryBudgetError(
        "\n".join(lines),
        budget_bytes=budget,
        least_feasible_bytes=least.peak_bytes,
        lower_bound_bytes=bound,
        keep_all_peak_bytes=keep_all.peak_bytes,
        least_extra_time=least.extra_time,
    )


def _smallest(plans: list[tuple[int, Callable[[], MemoryPlan]]]) -> MemoryPlan | None:
    """The plan that owns the fewest bytes, among equals the fastest: those that cannot be it are not made.

    Each comes as a number of bytes that it owns at least, and a function that makes it.
    """
    best: MemoryPlan | None = None
    for bound, make in sorted(plans, key=itemgetter(0)):
        if best is not None and bound > best.peak_bytes:
            break
        plan = make()
        if best is None or (plan.peak_bytes, plan.extra_time) < (best.peak_bytes, best.extra_time):
            best = plan
    return best


def _fixed_line(problem: Problem, budget: int) -> str:
    """Advice on the fixed part, which no plan changes: which kinds of bytes could be reduced."""
    held = {name: nbytes for name, nbytes in problem.fixed_bytes.items() if nbytes}
    rest = sum(nbytes for name, nbytes in held.items() if name not in PER_BATCH)
    ways = ["a smaller model or batch" if rest < budget else "a smaller model"]
    if held.get("optimizer", 0) > NOTABLE * problem.fixed_total:
        ways.append("an optimizer with less state")
    if "gradients" in held:
        ways.append("an update inside the step (fused, so that gradients need no arrays)")
    listed = ", or ".join([", ".join(ways[:-1]), ways[-1]] if len(ways) > 1 else ways)
    return f"The fixed part alone is larger than the budget: {listed} would help."


def _bound_line(problem: Problem) -> str:
    """The proven lower bound and what it consists of."""
    nbytes, at = problem.task_bound
    parts = ", ".join(
        f"{name} {format_bytes(n)}"
        for name, n in sorted(problem.fixed_bytes.items(), key=lambda i: -i[1])
        if n
    )
    line = (
        f"Proven lower bound: {problem.lower_bound_bytes} bytes ({format_bytes(problem.lower_bound_bytes)})"
    )
    line += f": {format_bytes(problem.fixed_total)} that no plan changes" + (f" ({parts})" if parts else "")
    if problem.least_bound > nbytes:
        return f"{line} and {format_bytes(problem.least_bound)} for inference, which shares the arena."
    if nbytes:
        task = problem.tasks[at]
        return f"{line} and {format_bytes(nbytes)} for {task.op} {short(task.name)!r} alone."
    return f"{line}."


def _both(nbytes: int) -> str:
    exact = f"{nbytes} bytes"
    return exact if nbytes < 1024 else f"{format_bytes(nbytes)} ({exact})"
