"""`mxlite plan`: what one step takes, and whether it fits."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from ..core.bytesize import format_bytes
from ..core.errors import MemoryBudgetError
from ..memplan.report import page
from .request import add_model, add_request, budget_of, request_of
from .writing import write


def add(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "plan", help="the memory plan of a training step, and whether it fits a budget"
    )
    add_model(command)
    command.add_argument("--budget", metavar="BYTES", help="as 4GiB; without it nothing is recomputed")
    add_request(command)
    command.add_argument("--html", metavar="FILE", help="write the plan as one page that opens offline")
    command.add_argument("--json", metavar="FILE", help="write the plan as data, for `diff`")
    command.add_argument("-v", "--verbose", action="store_true", help="say how long planning took")
    return command


def run(arguments: argparse.Namespace) -> int:
    request, budget = request_of(arguments), budget_of(arguments)
    start = time.perf_counter()
    try:
        plan = request.plan(budget)
    except MemoryBudgetError as error:
        print(f"{request.describe()}\n\n{error}")
        return 1
    if arguments.verbose:
        print(f"Planned in {time.perf_counter() - start:.2f} s.", file=sys.stderr)
    print(f"{request.describe()}\n\n{plan.summary()}")
    if budget is not None:
        print(f"\nIt fits: {format_bytes(budget - plan.peak_bytes)} of {format_bytes(budget)} stay free.")
    if arguments.html:
        write(arguments.html, page(plan).encode())
    if arguments.json:
        write(arguments.json, plan.to_json().encode())
    return 0
