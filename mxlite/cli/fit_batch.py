"""`mxlite fit-batch`: the largest batch whose training step fits, by planning alone."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

from ..core.bytesize import format_bytes, parse_bytes
from ..core.errors import MemoryBudgetError, MXLiteError, ShapeError
from ..core.table import percent
from ..memplan import MemoryPlan, Template
from ..memplan.remat.search import frontier_of
from .request import add_model, add_request, Request, request_of
from .words import show

MOST = 1 << 20  # samples
FIRST = (1, 2, 4, 8)  # the first batches that are tried
BEYOND = 3  # batches that are tried after one that does not fit


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
    search = _BatchSearch(request, budget, limit, arguments.verbose)
    batch, plan = search.largest()
    if plan is None:
        show(search.why_none())
        return 1
    show(f"{replace(request, batch=batch).describe()}\n\n{plan.summary()}\n")
    within = "" if arguments.extra_time is None else f" with at most {percent(limit)} extra time"
    show(f"Batch {batch} fits {format_bytes(budget)}{within}.{search.beside(batch)}")
    return 0


@dataclass(frozen=True)
class _Tried:
    """The outcome of one batch: its plan within the budget if one was found.

    `is_slow`: the plan exceeds the limit on extra time. `is_last`: larger batches are not expected to do
    better. `is_quick`: the plan is from a template, and a search may find another. `is_proven`: no plan
    exists. `needs`: the bytes of keeping everything and the lower bound. `than`: a smaller batch that needs
    no more of both and is the last, so that this one was not searched. `wrong`: why the network does not take
    the batch.
    """

    plan: MemoryPlan | None = None
    is_slow: bool = False
    is_last: bool = True
    is_quick: bool = False
    is_proven: bool = False
    needs: tuple[int, int] = (0, 0)
    than: int = 0
    wrong: ShapeError | None = None

    @property
    def is_good(self) -> bool:
        return self.plan is not None and not self.is_slow

    def is_less(self, needs: tuple[int, int]) -> bool:
        """True if this batch is the last although it needs no more than `needs`."""
        mine, theirs = self.needs, needs
        return self.is_last and self.wrong is None and mine[0] <= theirs[0] and mine[1] <= theirs[1]


class _BatchSearch:
    """A search for the largest batch: doubling, then bisection, then a look at the next ones.

    Larger batches need more, as a rule. But a kernel may take less scratch for 4 samples than for 3, or be
    another one, so the batches that fit need not be an interval, nor begin at 1.

    The decisions of one batch's search are a template for others: a plan from a template is checked against
    the budget and takes milliseconds. A batch for which no template fits is searched itself, and so is the
    largest: the result is the plan that binding finds.
    """

    def __init__(self, request: Request, budget: int, limit: float, verbose: bool) -> None:
        self.request, self.budget, self.limit, self.verbose = request, budget, limit, verbose
        self.templates: list[Template] = []  # the newest first
        self.tried: dict[int, _Tried] = {}

    def at(self, batch: int) -> Request:
        return replace(self.request, batch=batch)

    def largest(self) -> tuple[int, MemoryPlan | None]:
        """The batch and its plan; 0 and None if none was found. Raises ShapeError if no batch has a shape."""
        while True:
            low = next((b for b in FIRST if not self.outcome(b).is_last), 0)
            if low:
                low = self._beyond(self._halved(low))
            good = [b for b, t in self.tried.items() if t.is_good]
            if not good:
                if all(t.wrong for t in self.tried.values()):
                    raise next(t.wrong for t in self.tried.values() if t.wrong)
                return 0, None
            batch = self._beyond(max(good))
            if self.searched_again(batch):
                plan = self.tried[batch].plan
                assert plan is not None
                return batch, replace(plan, budget_bytes=self.budget)

    def _halved(self, low: int) -> int:
        """A batch that is not the last, although the next one is, found by bisection."""
        high = MOST + 1
        while high - low > 1:
            middle = min(2 * low, MOST) if high > MOST else (low + high) // 2
            if self.outcome(middle).is_last:
                high = middle
            else:
                low = middle
        return low

    def _beyond(self, low: int) -> int:
        """The largest batch from `low` on that BEYOND batches in a row follow which are the last."""
        batch = low
        while batch < min(low + BEYOND, MOST):
            batch += 1
            if not self.outcome(batch).is_last:
                low = batch
        return low

    def searched_again(self, batch: int) -> bool:
        """True if a search finds a plan for a batch whose template plan is good; its result is stored."""
        tried = self.tried[batch]
        if not tried.is_quick:
            return True
        assert tried.plan is not None
        try:
            plan = tried.plan.within(self.budget)
        except MemoryBudgetError:
            self.tried[batch] = replace(tried, plan=None, is_last=True)
            return False
        self.tried[batch] = replace(self.judged(plan), needs=tried.needs)
        return self.tried[batch].is_good

    def outcome(self, batch: int) -> _Tried:
        """The outcome of this batch, which is tried once."""
        if batch not in self.tried:
            tried = self.tried[batch] = self.try_batch(batch)
            if self.verbose:
                show(f"batch {batch}: {self.described(tried)}")
        return self.tried[batch]

    def try_batch(self, batch: int) -> _Tried:
        """Plan a batch; only one between both bounds needs a search."""
        try:
            plan = self.at(batch).keep_all()
        except ShapeError as error:
            return _Tried(wrong=error)
        needs = plan.peak_bytes, plan.lower_bound_bytes
        if plan.peak_bytes <= self.budget:
            return replace(self.judged(plan), needs=needs)
        if plan.lower_bound_bytes > self.budget:
            return _Tried(is_proven=True, needs=needs)
        if (quick := self.from_template(plan)) is not None:
            return replace(self.judged(quick), is_quick=True, needs=needs)
        if than := next((b for b, t in self.tried.items() if b < batch and t.is_less(needs)), 0):
            return _Tried(needs=needs, than=than)
        try:
            return replace(self.judged(self.searched(plan)), needs=needs)
        except MemoryBudgetError:
            return _Tried(needs=needs)

    def judged(self, plan: MemoryPlan) -> _Tried:
        """The outcome of a plan that fits. Recomputation that is done although there is room, such as that of
        16-bit copies of weights, is a smaller share of a larger batch's time: a larger batch may be fast
        enough if this one is too slow.
        """
        slow = plan.extra_time > self.limit
        return _Tried(plan, slow, slow and plan.peak_bytes != plan.keep_all_peak_bytes)

    def from_template(self, plan: MemoryPlan) -> MemoryPlan | None:
        """A plan for the step of `plan` that fits and is fast enough; None if no template gives one."""
        for template in self.templates:
            for problem in () if plan.steps is None else plan.steps:
                candidate = template.plan(problem, self.budget, frontier_of)
                if candidate is not None and candidate.extra_time <= self.limit:
                    kept = plan.keep_all_peak_bytes
                    return replace(candidate, steps=plan.steps, keep_all_peak_bytes=kept)
        return None

    def searched(self, plan: MemoryPlan) -> MemoryPlan:
        """The fastest plan that fits for the step of `plan`; its decisions become a template."""
        best = plan.within(self.budget)
        if self.request.strategy == "sharing" and self.request.offload is None:
            self.templates.insert(0, Template(best))
        return best

    # -- messages ------------------------------------------------------------------------------

    def described(self, found: _Tried) -> str:
        if found.plan is not None:
            verdict = "too slow" if found.is_slow else "fits"
            nbytes, extra = format_bytes(found.plan.peak_bytes), percent(found.plan.extra_time)
            return f"{verdict}: {nbytes}, {extra} extra time"
        if found.wrong is not None:
            return f"the network does not take it: {found.wrong}"
        if found.than:
            return f"not searched: needs more than {found.than}"
        return "cannot fit: that is proven" if found.is_proven else "does not fit: no plan is found"

    def beside(self, batch: int) -> str:
        """The outcomes of larger batches, and of smaller ones that do not fit, in words."""
        next_ones = [b for b in range(batch + 1, batch + 1 + BEYOND) if b in self.tried]
        larger = [b for b in next_ones if not self.tried[b].than]
        more = [b for b in next_ones if self.tried[b].than]
        smaller = [b for b in sorted(self.tried) if b < batch and not self.tried[b].is_good]
        said = []
        if larger:
            said.append(
                f"Batch {larger[0]} does not" + (f", nor {_listed(larger[1:])}" if larger[1:] else "")
            )
        if more:
            which = max(self.tried[b].than for b in more)
            need = "need" if more[1:] else "needs"
            said.append(f"{_listed(more)} {need} more than {which}" + ("" if larger else ", which does not"))
        told = "; ".join(said) or "No larger one is tried"
        least = f" Of smaller ones that were tried, {_listed(smaller)} do not." if smaller else ""
        return f" {told}.{least}"

    def why_none(self) -> str:
        """Why none of the tried batches is good, in words."""
        tried = f"Batches tried: {_listed(sorted(self.tried))}."
        if slow := [b for b in sorted(self.tried) if self.tried[b].plan is not None]:
            fits = (
                f"Batch {slow[0]} fits {format_bytes(self.budget)} only with more than {percent(self.limit)}"
            )
            return f"{fits} extra time. {tried}"
        least = min(b for b, t in self.tried.items() if t.wrong is None)
        try:
            self.at(least).plan(self.budget)
        except MemoryBudgetError as error:
            proven = [b for b in sorted(self.tried) if self.tried[b].is_proven]
            more = f" Of {_listed(proven)} that is proven by lower bounds." if proven else ""
            return f"{self.at(least).describe()}\n\n{error}\n{tried} None fits.{more}"
        raise AssertionError("a plan that a search has not found was found by another")


def _listed(batches: list[int]) -> str:
    """Numbers as `1, 2 and 4`."""
    numbers = [str(b) for b in batches]
    return " and ".join([", ".join(numbers[:-1]), numbers[-1]] if len(numbers) > 1 else numbers)
