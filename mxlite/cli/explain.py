"""`mxlite explain`: the arrays that hold the memory at the peak, and what would help; or one kernel."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..core.bytesize import format_bytes
from ..core.errors import MemoryBudgetError, MXLiteError
from ..core.table import percent, table
from ..memplan import MemoryPlan
from ..memplan.holders import at_peak, describe_peak, held_table
from . import kernel
from .request import add_model, add_request, budget_of, Request, request_of
from .words import show

TOP = 12
FUSED = "sgd"


def add(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "explain", help="who holds the memory at the peak, and what each remedy would save"
    )
    add_model(command, optional=True)
    command.add_argument(
        "--kernel", metavar="OPERATOR[,OPTION=VALUE...]",
        help="instead of a model: what an operator computes, and the loops of its kernel on the CPU",
    )  # fmt: skip
    command.add_argument("--budget", metavar="BYTES", help="explain the plan within a budget")
    add_request(command)
    command.add_argument("--top", type=int, default=TOP, metavar="K", help="lines of a table (default 12)")
    return command


def run(arguments: argparse.Namespace) -> int:
    if (arguments.model is None) == (arguments.kernel is None):
        raise MXLiteError("explain takes a MODEL or --kernel OPERATOR, one of them.")
    if arguments.kernel is not None:
        return kernel.run(arguments)
    request, budget, top = request_of(arguments), budget_of(arguments), arguments.top
    if top < 1:
        raise MXLiteError(f"--top must be at least 1, got {top}.")
    code = 0
    show(f"{request.describe()}\n")
    try:
        plan = request.plan(budget)
    except MemoryBudgetError as error:
        show(f"{error}\n\nWhat follows explains the plan that keeps everything.\n")
        plan, code = request.plan(), 1
    show(plan.summary())
    held = at_peak(plan)
    if held:
        show(f"\nThe arena is fullest at {describe_peak(plan)}:\n")
        show(held_table(held, top))
        for heading, key in (("what", lambda h: h.kind), ("made by", lambda h: h.op)):
            sums: Counter[str] = Counter()
            for h in held:
                sums[key(h)] += h.nbytes
            show("\n" + table((heading, "bytes"), [(k, format_bytes(n)) for k, n in sums.most_common(top)]))
    full = plan.keep_all_peak_bytes
    rows = [
        (name, format_bytes(p.peak_bytes), format_bytes(full - p.peak_bytes), percent(p.extra_time))
        for name, p in remedies(request, full)
    ]
    if rows:
        show(f"\nWhat each would save of the {format_bytes(full)} that keeping all takes:\n")
        show(table(("remedy", "peak", "saves", "extra time"), rows))
    return code


def remedies(request: Request, full: int) -> Iterator[tuple[str, MemoryPlan]]:
    """(change, plan with it), each change by itself; those that the model does not allow are left out.
    `full`: the bytes without any change.
    """
    changes: list[tuple[str, Request]] = []
    if not request.is_mixed:
        changes.append((f"mixed bfloat16 instead of {request.dtype}", replace(request, dtype="bfloat16")))
    if request.train:
        changes.append(("inference only", replace(request, train=False)))
        if request.optimizer is None:
            changes.append((f"update inside the step ({FUSED})", replace(request, optimizer=FUSED)))
    batch = request.source.batch_of(request.batch)
    if batch is not None and batch > 1:
        changes.append((f"batch {batch // 2} instead of {batch}", replace(request, batch=batch // 2)))
    for name, changed in changes:
        try:
            yield name, changed.plan()
        except MXLiteError:
            continue
    if request.train:
        try:
            least = request.plan(1)
        except MemoryBudgetError as error:
            least = request.plan(error.least_feasible_bytes)
        yield _named("recomputation, to the least", least)
        half = (least.peak_bytes + full) // 2
        if least.peak_bytes < half < full:
            yield _named("recomputation, half of that", request.plan(half))
            if request.offload is None:
                with_host = replace(request, offload="auto")
                yield _named("that much with host memory too", with_host.plan(half))


def _named(what: str, plan: MemoryPlan) -> tuple[str, MemoryPlan]:
    """`what` and `plan`, with a remark about changes to the usual step."""
    return f"{what}, {instead}" if (instead := plan.problem.instead) else what, plan
