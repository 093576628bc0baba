"""`mxlite diff`: two plans side by side."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ..core.bytesize import format_bytes
from ..core.errors import FormatError, MemoryBudgetError, MXLiteError, PlanError
from ..core.table import percent, printable, table
from ..memplan import MemoryPlan
from .request import add_request, budget_of, request_of
from .source import ZOO
from .words import show

LARGEST_FILE = 1 << 30  # bytes of a plan file
MARK = '"mxlite_memory_plan"'  # a plan's first key


def add(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "diff", help="two plans side by side: bytes by category, peak, time"
    )
    for name in ("a", "b"):
        command.add_argument(
            name, metavar=f"PLAN_{name.upper()}", help="JSON file of `plan --json`, or a MODEL to plan"
        )
    command.add_argument("--budget", metavar="BYTES", help="for MODELs: plan within a budget")
    add_request(command)
    return command


def run(arguments: argparse.Namespace) -> int:
    plans: list[MemoryPlan] = []
    for text in (arguments.a, arguments.b):
        try:
            plans.append(_plan(arguments, text))
        except MemoryBudgetError as error:
            show(f"{text}\n\n{error}")
            return 1
    a, b = plans
    counted = [
        *((c, a.breakdown[c], b.breakdown[c]) for c in a.breakdown),
        ("peak", a.peak_bytes, b.peak_bytes),
        ("peak, keeping all", a.keep_all_peak_bytes, b.keep_all_peak_bytes),
        ("proven lower bound", a.lower_bound_bytes, b.lower_bound_bytes),
    ]
    rows: list[tuple[object, ...]] = [
        (name, format_bytes(x), format_bytes(y), _signed(y - x)) for name, x, y in counted if x or y
    ]
    x, y = (1e3 * p.predicted_seconds for p in (a, b))
    rows.append(("predicted step", f"{x:.4g} ms", f"{y:.4g} ms", f"{y - x:+.3g} ms"))
    x, y = a.predicted_extra_time, b.predicted_extra_time
    rows.append(("predicted extra time", percent(x), percent(y), f"{100 * (y - x):+.1f} %"))
    operations = len(a.problem.tasks), len(b.problem.tasks)
    for name, m, n in (("operations", *operations), ("run again", a.recomputed, b.recomputed)):
        rows.append((name, m, n, f"{n - m:+d}"))
    for letter, text, plan in (("A", arguments.a, a), ("B", arguments.b, b)):
        show(f"{letter}: {printable(text)}, {printable(plan.how)}")
    show()
    show(table(("", "A", "B", "B - A"), rows))
    return 0


def _signed(nbytes: int) -> str:
    return ("+" if nbytes > 0 else "") + format_bytes(nbytes)


def _plan(arguments: argparse.Namespace, text: str) -> MemoryPlan:
    """The plan in a file, if the file holds one, else the plan of a model."""
    if not text.startswith(ZOO) and not text.endswith(".onnx"):
        start = b""
        if os.path.isfile(text):
            with open(text, "rb") as file:
                start = file.read(4096)
        if MARK.encode() in start:
            return read_plan(text)
    return request_of(arguments, text).plan(budget_of(arguments))


def read_plan(path: str) -> MemoryPlan:
    """The plan in an untrusted file. Raises FormatError."""
    size = os.path.getsize(path)
    if size > LARGEST_FILE:
        raise FormatError(f"{path} has {size} bytes; a plan has at most {LARGEST_FILE}.")
    try:
        with open(path, encoding="utf-8") as file:
            return MemoryPlan.from_json(file.read())
    except PlanError as error:
        raise FormatError(f"{path}: the plan is not sound: {error}") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is no plan: its byte {error.start} is not UTF-8 text.") from None
    except MXLiteError as error:
        raise FormatError(f"{path}: {error}") from None
