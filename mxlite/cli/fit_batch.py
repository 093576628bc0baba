"""`mxlite fit-batch`: the largest batch whose training step fits, by planning alone."""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..core.bytesize import format_bytes, parse_bytes
from ..core.errors import MemoryBudgetError, MXLiteError
from ..core.table import percent
from ..memplan import MemoryPlan, Template
from ..memplan.search import frontier_of
from .request import add_model, add_request, Request, request_of
from .words import show

MOST = 1 << 20  # samples


def add(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "fit-batch", help="the largest batch that fits a budget, by planning alone"
    )
    add_model(command)
    command.add_argument("--budget", metavar="BYTES", required=True, help="as 4GiB")
    command.add_argument(
        "--extra-time", type=float, metavar="PERCENT", help="at most this much recomputation (default: any)"
    )
    add_request(command, batch=False)
    command.add_argument("-v", "--verbose", action="store_true", help="print each batch that is tried")
    return command


def run(arguments: argparse.Namespace) -> int:
    request, budget = request_of(arguments), parse_bytes(arguments.budget)
    limit = float("inf") if arguments.extra_time is None else arguments.extra_time / 100
    if not limit >= 0:
        raise MXLiteError(f"--extra-time must be at least 0, got {arguments.extra_time}.")
    search = _Search(request, budget, limit, arguments.verbose)
    try:
        batch, plan = search.largest()
    except MemoryBudgetError as error:
        show(f"{search.at(1).describe()}\n\n{error}")
        return 1
    if plan is None:
        show(f"Batch 1 fits {format_bytes(budget)} only with more than {percent(limit)} extra time.")
        return 1
    show(f"{replace(request, batch=batch).describe()}\n\n{plan.summary()}\n")
    within = "" if arguments.extra_time is None else f" with at most {percent(limit)} extra time"
    more = " No larger one is tried." if batch == MOST else f" Batch {batch + 1} does not."
    show(f"Batch {batch} fits {format_bytes(budget)}{within}.{more}")
    return 0


class _Search:
    """Doubling, then halving. Larger batches need more: what fits is an interval that starts at 1.

    What a search has found for one batch is a template for others: a plan of a template keeps its budget, so
    what it says fits, fits, and takes milliseconds. A batch that no template makes fit is searched itself.
    """

    def __init__(self, request: Request, budget: int, limit: float, verbose: bool) -> None:
        self.request, self.budget, self.limit, self.verbose = request, budget, limit, verbose
        self.templates: list[Template] = []  # the last found first

    def at(self, batch: int) -> Request:
        return replace(self.request, batch=batch)

    def largest(self) -> tuple[int, MemoryPlan | None]:
        """The batch and its plan; a plan of None if batch 1 takes too long. MemoryBudgetError if it does not
        fit."""
        best: MemoryPlan | None = None
        batch, low, high, middle = 0, 0, MOST + 1, 1
        while high - low > 1:
            plan, is_slow = self.try_batch(middle, must=middle == 1)
            if plan is None or (is_slow and plan.peak_bytes != plan.keep_all_peak_bytes):
                high = middle
            else:
                # What is made again although there is room, as 16-bit copies of weights, takes less of a
                # larger batch's time: where that is too slow, more may not be.
                low = middle
                if not is_slow:
                    batch, best = middle, plan
            middle = min(2 * low, MOST) if high > MOST else (low + high) // 2
        return batch, None if best is None else replace(self.at_leisure(best), budget_bytes=self.budget)

    def at_leisure(self, plan: MemoryPlan) -> MemoryPlan:
        """The plan that a search gives where a template was used, unless the template's is faster."""
        if not plan.recomputed:
            return plan
        try:
            other = plan.within(self.budget)
        except MemoryBudgetError:
            return plan
        return other if other.extra_time <= plan.extra_time else plan

    def try_batch(self, batch: int, must: bool = False) -> tuple[MemoryPlan | None, bool]:
        """A plan that fits, or None, and whether it takes too long. Only a batch between both bounds needs a
        search."""
        plan = self.at(batch).keep_all()
        found: MemoryPlan | None = None
        if plan.peak_bytes <= self.budget:
            found = plan
        elif must or plan.lower_bound_bytes <= self.budget:
            found = self.from_template(plan)
            if found is None and must:
                found = self.at(batch).plan(self.budget)  # its error knows what would help
            elif found is None:
                with suppress(MemoryBudgetError):
                    found = self.searched(plan)
        slow = found is not None and found.extra_time > self.limit
        if self.verbose:
            if found is None:
                why = f"does not fit: {format_bytes(plan.peak_bytes)} when all is kept"
            else:
                verdict = "too slow" if slow else "fits"
                why = f"{verdict}: {format_bytes(found.peak_bytes)}, {percent(found.extra_time)} extra time"
            show(f"batch {batch}: {why}")
        return found, slow

    def from_template(self, plan: MemoryPlan) -> MemoryPlan | None:
        """A plan for the step of `plan` that fits and is fast enough; None if no template gives one."""
        for template in self.templates:
            for problem in () if plan.steps is None else plan.steps:
                found = template.plan(problem, self.budget, frontier_of)
                if found is not None and found.extra_time <= self.limit:
                    kept = plan.keep_all_peak_bytes
                    return replace(found, steps=plan.steps, keep_all_peak_bytes=kept)
        return None

    def searched(self, plan: MemoryPlan) -> MemoryPlan:
        """The fastest plan that fits for the step of `plan`; the next batches may use what is found."""
        found = plan.within(self.budget)
        if self.request.strategy == "sharing" and self.request.offload is None:
            self.templates.insert(0, Template(found))
        return found
