"""Rows of a plan's table, for a terminal and a notebook."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from ...core.bytesize import format_bytes
from ...core.table import percent
from ..remat.schedule import RUN

if TYPE_CHECKING:
    from ..plan import MemoryPlan

Row = tuple[str, str, str]
"""Label, amount, and a note in brackets or nothing."""


def rows_of(plan: MemoryPlan) -> tuple[list[Row], list[Row]]:
    """Rows of bytes by category, and rows of totals: the peak beside its references, and times."""
    problem = plan.problem
    parts = [(name, format_bytes(nbytes), "") for name, nbytes in plan.breakdown.items()]
    rows = [("peak", format_bytes(plan.peak_bytes), "")]
    if plan.checkpoint_bytes:
        while_ = "beside the peak, while one is written or read"
        rows.append(("checkpoints", f"+{format_bytes(plan.checkpoint_bytes)}", while_))
    if plan.budget_bytes is not None:
        rows.append(("budget", format_bytes(plan.budget_bytes), ""))
    if plan.keep_all_peak_bytes:
        rows.append(("peak, keeping all", format_bytes(plan.keep_all_peak_bytes), ""))
    rows.append(("proven lower bound", format_bytes(plan.lower_bound_bytes), ""))
    again = f"{plan.recomputed} operation{'' if plan.recomputed == 1 else 's'} run again"
    rows.append(("predicted extra time", percent(plan.predicted_extra_time), again))
    if problem.instead:
        rows.append(("of it from the outset", percent(problem.slowdown - 1), problem.instead))
    if problem.costs:
        rows.append(("predicted step", f"{1e3 * plan.predicted_seconds:.4g} ms", problem.costs))
    steps = zip(plan.schedule.kinds, plan.schedule.task)
    ran = [problem.tasks[t] for kind, t in steps if kind == RUN]
    ran = [t for t in ran if t.exchanges]
    if copies := [t for t in ran if not t.phases]:
        note = f"in {len(copies)} arrays sent or received"
        rows.append(("to and from devices", format_bytes(sum(t.exchanges for t in copies)), note))
    if messages := [t for t in ran if t.phases]:
        shared = sum(bool(t.mutates) for t in messages)
        gathers = [t.name for t in messages if t.recomputable]
        note = f"in {len(messages)}, {1e3 * fsum(t.seconds for t in messages):.3g} ms of waiting for them"
        note += f"; {shared} are updates that ranks share" if shared else ""
        if gathers:
            note += f"; {len(set(gathers))} are weights that ranks share, {len(gathers)} times gathered"
        rows.append(("messages to ranks", format_bytes(sum(t.exchanges for t in messages)), note))
    if problem.host is not None:
        wait = 1e3 * plan.schedule.waiting_seconds
        arrays = f"{plan.offloaded} array{'' if plan.offloaded == 1 else 's'} copied out and back"
        rows.append(
            ("host memory", format_bytes(plan.host_bytes), f"{arrays}, {wait:.3g} ms of waiting for them")
        )
    return parts, rows
