"""`mxlite frontier`: budget against extra time."""

from __future__ import annotations

import argparse
import io
from typing import Any

from ..core.bytesize import format_bytes
from ..core.errors import MemoryBudgetError, MXLiteError
from ..core.table import percent, table
from ..memplan import MemoryPlan
from .request import add_model, add_request, Request, request_of
from .writing import write

BUDGETS = 12


def add(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "frontier", help="budget against extra time, from the least that works to keeping everything"
    )
    add_model(command)
    add_request(command)
    command.add_argument("--budgets", type=int, default=BUDGETS, metavar="K", help="how many (default 12)")
    command.add_argument("--svg", metavar="FILE", help="draw it (needs matplotlib)")
    command.add_argument("--png", metavar="FILE", help="draw it (needs matplotlib)")
    return command


def run(arguments: argparse.Namespace) -> int:
    if not 2 <= arguments.budgets <= 1000:
        raise MXLiteError(f"--budgets must be from 2 to 1000, got {arguments.budgets}.")
    draw = _drawing() if arguments.svg or arguments.png else None
    request = request_of(arguments)
    plans = frontier(request, arguments.budgets)
    most = max(p.extra_time for p in plans)
    rows = [
        (
            format_bytes(p.budget_bytes or p.peak_bytes),
            format_bytes(p.peak_bytes),
            percent(p.extra_time),
            "#" * round(30 * p.extra_time / most) if most else "",
            p.method,
        )
        for p in plans
    ]
    print(f"{request.describe()}\n")
    print(table(("budget", "peak", "extra time", "", "how"), rows, left=(3, 4)))
    bound, least = (format_bytes(n) for n in (plans[0].lower_bound_bytes, plans[0].peak_bytes))
    print(f"\nProven lower bound: {bound}. Nothing below {least} is known.")
    for form, path in (("svg", arguments.svg), ("png", arguments.png)):
        if path:
            assert draw is not None
            write(path, draw(request.describe(), plans, form))
    return 0


def frontier(request: Request, count: int) -> list[MemoryPlan]:
    """Plans for `count` budgets, the least that works first, in equal ratios up to keeping everything."""
    full = request.plan()
    try:
        request.plan(1)
        least = full.peak_bytes
    except MemoryBudgetError as error:
        least = error.least_feasible_bytes
    if least >= full.peak_bytes:
        return [full]
    ratio = (full.peak_bytes / least) ** (1 / (count - 1))
    budgets = sorted({least, *(int(least * ratio**i) for i in range(1, count - 1))})
    return [*map(request.plan, budgets), full]


def _drawing() -> Any:
    """The function that draws; MXLiteError if matplotlib is not there."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MXLiteError(
            f"Drawing needs matplotlib ({error}). Install it with: pip install 'mxlite[viz]'"
        ) from None

    def draw(title: str, plans: list[MemoryPlan], form: str) -> bytes:
        with rc_context({"svg.hashsalt": "mxlite", "font.family": "sans-serif"}):
            figure = Figure(figsize=(8, 4.5), layout="constrained")
            axes = figure.subplots()
            axes.plot([p.peak_bytes / 2**20 for p in plans], [100 * p.extra_time for p in plans], "o-")
            axes.axvline(plans[0].lower_bound_bytes / 2**20, color="grey", linestyle="--")
            axes.set_title(title, fontsize="medium")
            axes.set_xlabel("peak, MiB (dashed: proven lower bound)")
            axes.set_ylabel("extra time, %")
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            buffer = io.BytesIO()
            figure.savefig(buffer, format=form, metadata={"Date": None} if form == "svg" else None)
            return buffer.getvalue()

    return draw
