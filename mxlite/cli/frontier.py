"""`mxlite frontier`: budget against extra time."""

from __future__ import annotations

import argparse
from typing import Any

from ..core.bytesize import format_bytes
from ..core.errors import MXLiteError
from ..core.table import percent, table
from ..memplan import MemoryPlan
from ..memplan.report import budgets_between, curve_of
from ..memplan.report.image import matplotlib
from .request import add_model, add_request, Request, request_of
from .words import show
from .writing import check_writable, write

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
    check_writable(arguments.svg, arguments.png)  # refuse now rather than after planning
    if arguments.svg or arguments.png:
        matplotlib()
    request = request_of(arguments)
    plans = frontier(request, arguments.budgets)
    most = max(p.extra_time for p in plans)
    rows = [
        (
            format_bytes(p.budget_bytes or p.peak_bytes),
            format_bytes(p.peak_bytes),
            percent(p.extra_time),
            "#" * round(30 * p.extra_time / most) if most else "",
            p.how,
        )
        for p in plans
    ]
    show(f"{request.describe()}\n")
    show(table(("budget", "peak", "extra time", "", "how"), rows, left=(3, 4)))
    bound, least = (format_bytes(n) for n in (plans[0].lower_bound_bytes, plans[0].peak_bytes))
    show(f"\nProven lower bound: {bound}. Nothing below {least} is known.")
    for form, path in (("svg", arguments.svg), ("png", arguments.png)):
        if path:
            write(path, curve_of(request.describe(), plans, form))
    return 0


def frontier(request: Request, count: int) -> list[MemoryPlan]:
    """Plans for `count` budgets, the least that works first, in equal ratios up to keeping everything."""
    return budgets_between(request.keep_all(), count)
