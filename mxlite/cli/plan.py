"""`mxlite plan`: the memory of one step, and if it fits a budget."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from ..core.bytesize import format_bytes
from ..core.errors import MemoryBudgetError, MXLiteError
from ..memplan.report import drawn, form_of, image_of, page_of, trace_of
from .frontier import frontier
from .request import add_model, add_request, budget_of, request_of
from .words import show
from .writing import check_writable, write

PLANS = 10  # plans of a page's slider


def add(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "plan", help="the memory plan of a training step, and whether it fits a budget"
    )
    add_model(command)
    command.add_argument(
        "--budget", metavar="BYTES", help="as 4GiB; without it the planner recomputes nothing"
    )
    add_request(command)
    command.add_argument("--draw", action="store_true", help="draw the arena with characters")
    command.add_argument("--html", metavar="FILE", help="write the plan as one page that opens offline")
    command.add_argument(
        "--budgets", type=int, default=PLANS, metavar="K",
        help="how many the page's slider has, from the least to keeping all (default 10; 1: no slider)",
    )  # fmt: skip
    command.add_argument(
        "--image", metavar="FILE", help="draw the arena as .svg, .png or .pdf (needs matplotlib)"
    )
    command.add_argument("--trace", metavar="FILE", help="write the steps in modelled time, for Perfetto")
    command.add_argument("--json", metavar="FILE", help="write the plan as data, for `diff`")
    command.add_argument("-v", "--verbose", action="store_true", help="say how long planning took")
    return command


def run(arguments: argparse.Namespace) -> int:
    request, budget = request_of(arguments), budget_of(arguments)
    if not 1 <= arguments.budgets <= 100:
        raise MXLiteError(f"--budgets must be from 1 to 100, got {arguments.budgets}.")
    # Refuse now rather than after planning.
    check_writable(arguments.html, arguments.image, arguments.trace, arguments.json)
    form = form_of(arguments.image) if arguments.image else ""
    start = time.perf_counter()
    try:
        plan = request.plan(budget)
    except MemoryBudgetError as error:
        show(f"{request.describe()}\n\n{error}")
        return 1
    if arguments.verbose:
        show(f"Planned in {time.perf_counter() - start:.2f} s.", aside=True)
    show(f"{request.describe()}\n\n{plan.summary()}")
    if budget is not None:
        show(f"\nIt fits: {format_bytes(budget - plan.peak_bytes)} of {format_bytes(budget)} stay free.")
    if arguments.draw:
        show(f"\n{drawn(plan)}")
    if arguments.html:
        plans = frontier(request, arguments.budgets) if arguments.budgets > 1 else []
        write(arguments.html, page_of(plan, plans, request.describe()).encode())
    if arguments.image:
        write(arguments.image, image_of(plan, form, request.describe()))
    if arguments.trace:
        write(arguments.trace, json.dumps(trace_of(plan)).encode())
    if arguments.json:
        write(arguments.json, plan.to_json().encode())
    return 0
