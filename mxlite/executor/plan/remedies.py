"""Remedies if no plan fits: another batch, 16 bits, an update inside the step. With numbers.

Programs that share one budget, such as the steps of several buckets, are considered together: a remedy
makes all of them fit. Each remedy is planned if that is fast, and else estimated from the refused
plan and marked as an estimate. The amount of planning depends on the number of tasks alone: an error must not
take minutes, and must say the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...core import current_context
from ...core.bytesize import format_bytes
from ...core.cached import cached_property
from ...core.errors import MemoryBudgetError, MXLiteError
from ...core.table import percent
from ...graph import Entry, Graph, Shape, UpdateRule
from ...memplan import MemoryPlan, Ranks
from ...memplan.holders import short
from ...memplan.refusal import PER_BATCH
from ...ops import find_op
from ..request.infer import infer
from .candidates import Candidates
from .lazy_steps import LazySteps
from .lower import Lowered
from .step import input_names

WORK = 1500  # tasks in all plans made for one error
ORDINALS = ("first", "second", "third", "fourth")
RANKS = 64  # at most, of those that are tried
SHARED = (
    ("auto-optimizer", "the optimizer's states, each with such a batch (kvstore='dist_sync')"),
    (
        "auto",
        "weights, too (ranks=mx.memplan.Ranks() of Module; each with such a batch, kvstore='dist_sync')",
    ),
)
"""Arrays that ranks may share, as `Ranks.shard` and in words."""
PLANS = 12  # tries at most, however small the networks

Fixed = Mapping[str, int]


@dataclass(frozen=True)
class Refused:
    """A program that does not fit, and the least budget with which it would."""

    asked: Candidates
    least_feasible_bytes: int


@dataclass(frozen=True)
class Question:
    """The request to the planner, and its `error`.

    `refused` are the programs that do not fit, the one that needs most first; `others` share the budget and
    fit. `fixed(programs, separate)` are all bytes outside their arena by category; if `separate`, with those
    of an optimizer beside the steps.
    """

    refused: Sequence[Refused]
    others: Sequence[Candidates]
    fixed: Callable[[Sequence[Lowered], bool], Fixed]
    error: MemoryBudgetError

    @property
    def programs(self) -> list[Candidates]:
        """All, those that do not fit first."""
        return [*(r.asked for r in self.refused), *self.others]

    @property
    def largest(self) -> Candidates:
        return self.refused[0].asked

    @cached_property
    def lowered(self) -> Lowered:
        """The largest, with all that lies outside the arena."""
        found = [_lowered(c) for c in self.programs]
        return replace(found[0], problem=replace(found[0].problem, fixed_bytes=self.fixed(found, True)))

    @property
    def apart(self) -> bool:
        """True if the device has memory of its own, so that host memory comes on top."""
        return (self.largest.request.ctx or current_context()).device_type == "gpu"


@dataclass(frozen=True)
class Outcome:
    """Result of planning all programs: `nbytes` of the largest plan, or of a budget that would do."""

    fits: bool
    nbytes: int
    extra_time: float


Change = Callable[[Candidates], Candidates]  # of a program; the same one if it does not change


@dataclass
class _Asker:
    """Planner with a limited number of `plans`, and of tasks in all of them, `work`."""

    question: Question
    work: int = field(default_factory=lambda: WORK)
    plans: int = PLANS

    def may(self, change: Change) -> bool:
        """True if there is work left to plan all programs after this change."""
        return self.plans > 0 and self._cost(change) <= self.work

    def __call__(self, change: Change, separate: bool = True) -> Outcome:
        """Result of a change, under which programs that fit and stay unchanged still do.

        Errors other than those of the budget propagate: a network does not allow the change.
        """
        fits, refused = [], []
        for steps in self._owned(change, separate):
            try:
                fits.append(steps.plan(self.question.error.budget_bytes))
            except MemoryBudgetError as error:
                refused.append(error)
        if refused:
            most = max(refused, key=lambda e: e.least_feasible_bytes)
            return Outcome(False, most.least_feasible_bytes, most.least_extra_time)
        return _outcome(fits)

    def fitting(self, change: Change) -> Outcome | None:
        """The same if all programs fit, else None: what would do takes longer to find."""
        fits = []
        for steps in self._owned(change, True):
            plan = steps.fitting(self.question.error.budget_bytes)
            if plan is None:
                return None
            fits.append(plan)
        return _outcome(fits)

    def _owned(self, change: Change, separate: bool) -> list[LazySteps]:
        """The steps of programs that are planned after a change, with all that lies outside the arena."""
        self.plans -= 1
        self.work -= self._cost(change)
        planned, stay = self._after(change)
        steps = [c.steps(None, True, False, _no_advice) for c in planned]
        new = [c.of(s.first).train for s, c in zip(steps, planned)]
        fixed = self.question.fixed([*new, *map(_lowered, stay)], separate)
        return [each.owning(fixed, lowered.problem.fixed_bytes) for each, lowered in zip(steps, new)]

    def _after(self, change: Change) -> tuple[list[Candidates], list[Candidates]]:
        """Programs that are to be planned after a change, and those that stay."""
        q = self.question
        planned, stay = [], []
        for i, c in enumerate(q.programs):
            new = change(c)
            if new is c and i >= len(q.refused):
                stay.append(c)
            else:
                new = replace(new, template=None, like=None)
                asked = dict(memory_budget=q.error.budget_bytes, device=c.described)
                planned.append(new.asking(**asked))  # nothing is timed for it
        trained = [_fed(c) for c in (*planned, *stay) if not c.request.forward_only]
        # Inference for the shapes of steps is part of theirs.
        return [c for c in planned if not c.request.forward_only or _fed(c) not in trained], stay

    def _cost(self, change: Change) -> int:
        """Number of tasks that are planned, about."""
        some = [
            c
            for i, c in enumerate(self.question.programs)
            if i < len(self.question.refused) or change(c) is not c
        ]
        return sum(max(1, len(_lowered(c).problem.tasks)) for c in some)


def _outcome(fits: Sequence[MemoryPlan]) -> Outcome:
    return Outcome(True, max(p.peak_bytes for p in fits), max(p.extra_time for p in fits))


def _fed(asked: Candidates) -> tuple[Any, ...]:
    """A network and the shapes of its inputs."""
    graph = asked.inferred
    return graph.outputs, {n.name: graph.shapes[Entry(n)] for n in graph.variables if n.name in asked.given}


def _lowered(asked: Candidates) -> Lowered:
    """The step with the least proven lower bound."""
    return min((m.train for m in asked.made), key=lambda train: train.problem.lower_bound_bytes)


def _no_advice(error: MemoryBudgetError, besides: Fixed) -> str:
    return ""


def advice(question: Question) -> str:
    """Lines for the error's message: the task of the bound with its shapes, then the remedies."""
    ask = _Asker(question)
    lines = [*_bound_task(question.lowered)]
    found = [
        *_safely(_fused, question, ask),
        *_safely(_mixed, question, ask),
        *_safely(_unmixed, question, ask),
        *_safely(_offload, question, ask),
        *_safely(_input_gradients, question, ask),
        *_safely(_batch, question, ask),
        *_safely(_ranks, question, ask),
    ]
    if found:
        several = len(question.refused) > 1
        lines += ["What would help all of them:" if several else "What would help:"]
        lines += [f"  - {line}" for line in found]
    return "\n".join(lines)


def _safely(remedy: Any, *args: Any) -> list[str]:
    """Lines of a remedy, none if it fails: an error message must come in any case."""
    try:
        return list(remedy(*args))
    except MXLiteError:
        return []


def _bound_task(lowered: Lowered) -> Iterator[str]:
    """The largest single task with the shapes of its inputs and outputs."""
    nbytes, at = lowered.problem.task_bound
    if not nbytes or nbytes < lowered.problem.least_bound:
        return
    call, task = lowered.calls[at], lowered.problem.tasks[at]

    def kinds(numbers: tuple[int, ...]) -> str:
        found = [f"{lowered.dtype[v].name} {_shape(lowered.shape[v])}" for v in numbers if v >= 0]
        return ", ".join([*found[:4], *(["..."] if len(found) > 4 else [])]) or "nothing"

    work = f", workspace {format_bytes(task.workspace)}" if task.workspace else ""
    yield f"{short(task.name)!r} of the bound: {kinds(call.inputs)} -> {kinds(call.outputs)}{work}."


def _fused(q: Question, ask: _Asker) -> Iterator[str]:
    asked = [r for c in q.programs for r in c.requests.values()]
    if any(c.request.rule is not None for c in q.programs) or "write" not in asked or "add" in asked:
        return
    name = "update inside the step (optimizer=; fused_update=True of Module; loss.hybridize() of Gluon)"
    rule = UpdateRule(find_op("_fused_sgd"), {"rescale_grad": 1.0, "clip_gradient": -1.0})

    def fused(c: Candidates) -> Candidates:
        return c.asking(optimizer=rule) if c.trains else c

    if ask.may(fused):
        yield from _planned(q, f"{name}, with sgd", ask(fused, separate=False))
        return
    nbytes = q.lowered.problem.fixed_bytes.get("gradients", 0)
    yield f"{name}: up to {format_bytes(nbytes)} of gradients need no arrays"


def _mixed(q: Question, ask: _Asker) -> Iterator[str]:
    if q.largest.request.amp is not None or not any(d == np.dtype("float32") for d in q.lowered.dtype):
        return

    def mixed(c: Candidates) -> Candidates:
        return c.asking(amp="bfloat16")

    if ask.may(mixed):
        yield from _planned(q, 'amp="bfloat16"', ask(mixed))
        return
    arena = q.error.least_feasible_bytes - q.lowered.problem.fixed_total
    least = q.error.least_feasible_bytes
    about = f"about {format_bytes(least - arena // 2)} instead of {format_bytes(least)}"
    yield f'amp="bfloat16": {about} (an estimate: half of the arena)'


def _unmixed(q: Question, ask: _Asker) -> Iterator[str]:
    """Remedy for a case in which 16 bits take more: a step that holds less may exist for float32 alone."""

    def unmixed(c: Candidates) -> Candidates:
        return c.asking(amp=None, loss_scale=None)

    if q.largest.request.amp is not None and ask.may(unmixed):
        yield from _planned(q, "float32 alone (amp=None)", ask(unmixed))


def _offload(q: Question, ask: _Asker) -> Iterator[str]:
    if q.largest.request.host is not None or not q.apart:
        return

    def offloaded(c: Candidates) -> Candidates:
        return c.asking(offload="auto")

    if ask.may(offloaded):
        yield from _planned(q, 'offload="auto"', ask(offloaded))
        return
    yield 'offload="auto": kept arrays may wait in host memory (not planned here)'


def _input_gradients(q: Question, ask: _Asker) -> Iterator[str]:
    wanted = [(c, n) for c in q.programs for n in sorted(_data(c)) if c.request.rule is None]
    wanted = [(c, n) for c, n in wanted if c.requests.get(n, "null") != "null"]
    names = list(dict.fromkeys(n for _, n in wanted))
    nbytes = sum(
        c.inferred.nbytes(e) for c, n in wanted for e in map(Entry, c.inferred.arguments) if e.node.name == n
    )
    if names:
        shown = ", ".join(map(repr, map(short, names[:3]))) + (", ..." if len(names) > 3 else "")
        yield f"grad_req='null' for {shown}: {format_bytes(nbytes)} less, if nobody needs their gradients"


def _batch(q: Question, ask: _Asker) -> Iterator[str]:
    """The nearest batch that fits: by linear extrapolation from the least plan, then by planning around it.

    If several programs do not fit, the largest batch that each of them may have.
    """
    fed = [_Fed.of(r.asked) for r in q.refused]
    if any(f.batch < 2 for f in fed):
        return
    most, budget = max(f.batch for f in fed), q.error.budget_bytes
    batches = " and ".join(map(str, sorted({f.batch for f in fed}, reverse=True)))
    name, axis = next(iter(fed[0].axes.items()))
    where = f"the {ORDINALS[axis]} axis of {short(name)!r}"
    what = f"batch {{}} instead of {batches} ({where})"
    held = q.lowered.problem.fixed_total - sum(
        n for r in q.refused for c, n in _lowered(r.asked).problem.fixed_bytes.items() if c in PER_BATCH
    )
    estimates = []
    for r, f in zip(q.refused, fed):
        each = (r.least_feasible_bytes - held) / f.batch
        estimates.append(min(f.batch - 1, int((budget - held) / each)) if each > 0 else 0)
    estimate = min(estimates)
    if estimate < 1 and budget <= held:
        yield f"no smaller batch: {format_bytes(held)} do not depend on it"
        return

    def of_at_most(n: int) -> Change:
        smaller = {id(r.asked): f.with_batch(n) for r, f in zip(q.refused, fed) if f.batch > n}
        return lambda c: c.of_graph(smaller[id(c)]) if id(c) in smaller else c

    low, high, fits, guess = 0, most, None, max(1, estimate)
    refused = (most, q.error.least_feasible_bytes)
    while high - low > 1 and ask.may(change := of_at_most(guess)):
        tried = ask(change)
        if tried.fits:
            first = fits is None
            low, fits = guess, tried
            guess = low + 1 if first else (low + high) // 2
        else:
            # The line through the least bytes of the last two that did not fit.
            high, least = guess, tried.nbytes
            each = (refused[1] - least) / max(1, refused[0] - guess)
            refused = (guess, least)
            on_line = int(high - (least - budget) / each) if each > 0 else low
            guess = min(max(on_line, low + 1), high - 1) if fits is None else (low + high) // 2
    if fits is not None:
        rest = f"; {low + 1} does not" if high == low + 1 else ""
        yield f"{what.format(low)}: {_fits(fits)}{rest}"
    elif high == 1:
        yield "no smaller batch: a batch of 1 does not fit either"
    elif estimate >= 1:
        yield f"{what.format(estimate)}: fits by an estimate; `mxlite fit-batch` finds it by planning"


def _ranks(q: Question, ask: _Asker) -> Iterator[str]:
    """The least number of ranks that make it fit by sharing the optimizer's states, and perhaps weights."""
    asked = q.largest.request
    states = q.lowered.problem.fixed_bytes.get("optimizer", 0)
    if q.apart or asked.rule is None or not (states and asked.rule.splits) or asked.scale is not None:
        return

    named = None
    for shard, shared in SHARED:
        low, high, fits = _least_ranks(asked.ranks, ask, shard)
        if fits is not None and (named is None or high < named):
            named, rest = high, f"; {low} do not" if 1 < low == high - 1 else ""
            yield f"{high} ranks that share {shared}: {_fits(fits)}{rest}"
    if named is not None:
        return
    spare = states - (q.error.least_feasible_bytes - q.error.budget_bytes)
    if low == asked.ranks.count and 0 < states < RANKS * spare:
        yield f"{-(-states // spare)} ranks that share {SHARED[0][1]}: fits by an estimate"


def _least_ranks(now: Ranks, ask: _Asker, shard: str) -> tuple[int, int, Outcome | None]:
    """The most ranks known not to do, the least that do where these `shard` something, and the outcome."""

    def over(count: int) -> Change:
        return lambda c: c.asking(ranks=replace(now, count=count, shard=shard)) if c.trains else c

    low, high, fits = now.count, 0, None
    while (guess := 2 * low if fits is None else (low + high) // 2) <= RANKS and low + 1 != high:
        if not ask.may(over(guess)):
            break
        tried = ask.fitting(over(guess))
        low, high, fits = (guess, high, fits) if tried is None else (low, guess, tried)
    return low, high, fits


@dataclass(frozen=True)
class _Fed:
    """Inputs of a program: `shapes` by name, and the batch axes among their `axes`."""

    asked: Candidates
    shapes: Mapping[str, Shape]
    axes: Mapping[str, int]

    @classmethod
    def of(cls, asked: Candidates) -> _Fed:
        _, shapes = _fed(asked)
        data = _data(asked)
        return cls(asked, shapes, _batch_axes({n: s for n, s in shapes.items() if n in data and s}))

    @property
    def batch(self) -> int:
        name, axis = next(iter(self.axes.items()), ("", 0))
        return self.shapes[name][axis] if self.axes else 0

    def with_batch(self, new: int) -> Graph:
        """The network with the batch size `new`."""
        graph, data = self.asked.inferred, _data(self.asked)
        known = {
            n: tuple(new if axis == self.axes.get(n) else length for axis, length in enumerate(s))
            for n, s in self.shapes.items()
            if n in data
        }
        types = {n.name: graph.dtypes[Entry(n)] for n in graph.variables}
        return infer(Graph(graph.outputs), known, types)


def _batch_axes(shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Batch axes of these inputs: the first one, or the one of the single length that all share.

    If neither applies, it is taken to be the first axis of the first of them.
    """
    if len({s[0] for s in shapes.values()}) > 1:
        shared = set.intersection(*map(set, shapes.values()))
        if len(shared) == 1 and (length := shared.pop()) > 1:
            if all(s.count(length) == 1 and s.index(length) < len(ORDINALS) for s in shapes.values()):
                return {n: s.index(length) for n, s in shapes.items()}
    first = next(iter(shapes.values()), ())
    return {n: 0 for n, s in shapes.items() if s[0] == first[0]}


def _data(asked: Candidates) -> set[str]:
    """Names of inputs that are no parameters."""
    return input_names(asked.inferred, list(asked.given))


def _planned(q: Question, what: str, found: Outcome) -> Iterator[str]:
    """Result of planning a remedy; nothing if it takes no less than the request."""
    if found.fits:
        yield f"{what}: {_fits(found)}"
    elif found.nbytes < q.error.least_feasible_bytes:
        yield f"{what}: not enough, needs {format_bytes(found.nbytes)}"


def _fits(found: Outcome) -> str:
    return f"fits, {format_bytes(found.nbytes)} with {percent(found.extra_time)} extra time"


def _shape(shape: Shape) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"
