"""The answer to a budget that is too small: what would fit, what cannot, and who needs the bytes."""

from __future__ import annotations

from ..core.bytesize import format_bytes
from ..core.errors import MemoryBudgetError
from .plan import MemoryPlan
from .problem import Problem


def too_small(problem: Problem, budget: int, least: MemoryPlan, keep_all: MemoryPlan) -> MemoryBudgetError:
    """The error for a `budget` that no plan fits; `least` is the smallest plan known."""
    bound, at = problem.task_bound
    task = problem.tasks[at] if problem.tasks else None
    parts = ", ".join(
        f"{name} {format_bytes(n)}"
        for name, n in sorted(problem.fixed_bytes.items(), key=lambda i: -i[1])
        if n
    )
    lines = [
        f"No plan fits {format_bytes(budget)} ({budget} bytes).",
        f"A budget of {least.peak_bytes} bytes ({format_bytes(least.peak_bytes)}) does work, with "
        f"{100 * least.extra_time:.1f} % extra time; without recomputation it takes "
        f"{format_bytes(keep_all.peak_bytes)}.",
        f"Proven lower bound: {problem.lower_bound_bytes} bytes ({format_bytes(problem.lower_bound_bytes)}): "
        f"{format_bytes(problem.fixed_total)} that no plan changes ({parts})"
        + (f" and {format_bytes(bound)} for {task.op} {task.name!r} alone." if task else "."),
    ]
    if problem.fixed_total > budget:
        lines.append(
            "The fixed part alone is larger than the budget: a smaller model or batch, an optimizer "
            "with less state, "
            "or its update inside the step (fused, so that gradients need no arrays) would help."
        )
    else:
        lines.append("A smaller batch shrinks the activations in proportion.")
    return MemoryBudgetError(
        "\n".join(lines),
        budget_bytes=budget,
        least_feasible_bytes=least.peak_bytes,
        lower_bound_bytes=problem.lower_bound_bytes,
    )
