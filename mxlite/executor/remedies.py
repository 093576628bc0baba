"""What would help where no plan fits: another batch, 16 bits, an update inside the step. With numbers.

Each remedy is planned by itself where that is quick, and else reckoned from the refused plan and said to be
an estimate. How much is planned depends on the number of tasks alone: an error must not take minutes, and
must say the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.bytesize import format_bytes
from ..core.errors import MemoryBudgetError, MXLiteError
from ..core.table import percent
from ..graph import Entry, Graph, Shape, UpdateRule
from ..memplan import HostLink, MemoryPlan
from ..memplan.holders import short
from ..memplan.refusal import PER_BATCH
from ..ops import find_op
from .infer import infer
from .lower import Lowered
from .step import input_names

WORK = 1500  # tasks in all plans made for one error
ORDINALS = ("first", "second", "third", "fourth")
PLANS = 12  # at most, however small the network


@dataclass(frozen=True)
class Question:
    """What was asked of the planner, and its `error`. `plan(inferred, requests, rule, amp, host)` asks again.

    `apart`: whether the device has memory of its own, so that host memory is more.
    """

    inferred: Graph
    given: frozenset[str]
    requests: Mapping[str, str]
    rule: UpdateRule | None
    amp: Any
    host: HostLink | None
    apart: bool
    lowered: Lowered
    error: MemoryBudgetError
    plan: Callable[[Graph, Mapping[str, str], UpdateRule | None, Any, HostLink | None], MemoryPlan]


@dataclass
class _Asker:
    """Asks a limited number of questions."""

    question: Question
    left: int = field(init=False)

    def __post_init__(self) -> None:
        tasks = max(1, len(self.question.lowered.problem.tasks))
        self.left = min(PLANS, WORK // tasks)

    def __call__(self, **changed: Any) -> MemoryPlan | MemoryBudgetError:
        """A plan, or why there is none. Other errors pass: the network does not allow the change."""
        self.left -= 1
        q = self.question
        try:
            return q.plan(
                changed.get("inferred", q.inferred),
                changed.get("requests", q.requests),
                changed.get("rule", q.rule),
                changed.get("amp", q.amp),
                changed.get("host", q.host),
            )
        except MemoryBudgetError as error:
            return error


def advice(question: Question) -> str:
    """Lines for the message of the error: the task of the bound with its shapes, then what would help."""
    ask = _Asker(question)
    lines = [*_bound_task(question.lowered)]
    found = [
        *_safely(_fused, question, ask),
        *_safely(_mixed, question, ask),
        *_safely(_unmixed, question, ask),
        *_safely(_offload, question, ask),
        *_safely(_input_gradients, question, ask),
        *_safely(_batch, question, ask),
    ]
    if found:
        lines += ["What would help:", *(f"  - {line}" for line in found)]
    return "\n".join(lines)


def _safely(remedy: Any, *args: Any) -> list[str]:
    """An error message must come, whatever a remedy meets."""
    try:
        return list(remedy(*args))
    except MXLiteError:
        return []


def _bound_task(lowered: Lowered) -> Iterator[str]:
    """The largest single task with the shapes of what it reads and makes."""
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
    if q.rule is not None or not any(r == "write" for r in q.requests.values()):
        return
    if any(r == "add" for r in q.requests.values()):
        return
    name = "update inside the step (optimizer=, or fused_update=True of Module)"
    if ask.left > 0:
        rule = UpdateRule(find_op("_fused_sgd"), {"rescale_grad": 1.0, "clip_gradient": -1.0})
        yield from _planned(q, f"{name}, with sgd", ask(rule=rule))
        return
    nbytes = q.lowered.problem.fixed_bytes.get("gradients", 0)
    yield f"{name}: up to {format_bytes(nbytes)} of gradients need no arrays"


def _mixed(q: Question, ask: _Asker) -> Iterator[str]:
    if q.amp is not None or not any(d == np.dtype("float32") for d in q.lowered.dtype):
        return
    if ask.left > 0:
        yield from _planned(q, 'amp="bfloat16"', ask(amp="bfloat16"))
        return
    arena = q.error.least_feasible_bytes - q.lowered.problem.fixed_total
    least = q.error.least_feasible_bytes
    about = f"about {format_bytes(least - arena // 2)} instead of {format_bytes(least)}"
    yield f'amp="bfloat16": {about} (an estimate: half of the arena)'


def _unmixed(q: Question, ask: _Asker) -> Iterator[str]:
    """Where 16 bits take more: a step that holds less may be one for float32 alone."""
    if q.amp is None or ask.left < 1:
        return
    yield from _planned(q, "float32 alone (amp=None)", ask(amp=None))


def _offload(q: Question, ask: _Asker) -> Iterator[str]:
    if q.host is not None or not q.apart:
        return
    if ask.left > 0:
        yield from _planned(q, 'offload="auto"', ask(host=HostLink()))
        return
    yield 'offload="auto": kept arrays may wait in host memory (not planned here)'


def _input_gradients(q: Question, ask: _Asker) -> Iterator[str]:
    names = [n for n in sorted(_data(q)) if q.requests.get(n, "null") != "null" and q.rule is None]
    nbytes = sum(q.inferred.nbytes(Entry(n)) for n in q.inferred.arguments if n.name in names)
    if names:
        shown = ", ".join(map(repr, map(short, names[:3]))) + (", ..." if len(names) > 3 else "")
        yield f"grad_req='null' for {shown}: {format_bytes(nbytes)} less, if nobody needs their gradients"


def _batch(q: Question, ask: _Asker) -> Iterator[str]:
    """The nearest batch that fits: on a straight line from the least plan, then by planning around it."""
    shapes = {n.name: q.inferred.shapes[Entry(n)] for n in q.inferred.arguments if n.name in q.given}
    axes = _batch_axes({n: s for n, s in shapes.items() if n in _data(q) and s})
    name, axis = next(iter(axes.items()), ("", 0))
    batch = shapes[name][axis] if axes else 0
    if batch < 2:
        return
    what = f"batch {{}} instead of {batch} (the {ORDINALS[axis]} axis of {short(name)!r})"
    held = sum(n for c, n in q.lowered.problem.fixed_bytes.items() if c not in PER_BATCH)
    each = (q.error.least_feasible_bytes - held) / batch
    estimate = min(batch - 1, int((q.error.budget_bytes - held) / each)) if each > 0 else 0
    if estimate < 1 and q.error.budget_bytes <= held:
        yield f"no smaller batch: {format_bytes(held)} do not depend on it"
        return
    low, high, plan, guess = 0, batch, None, max(1, estimate)
    refused = (batch, q.error.least_feasible_bytes)
    while high - low > 1 and ask.left > 0:
        tried = ask(inferred=_with_batch(q, shapes, axes, guess))
        if isinstance(tried, MemoryPlan):
            first = plan is None
            low, plan = guess, tried
            guess = low + 1 if first else (low + high) // 2
        else:
            # The line through the least bytes of the last two that did not fit.
            high, least = guess, tried.least_feasible_bytes
            each = (refused[1] - least) / max(1, refused[0] - guess)
            refused = (guess, least)
            on_line = int(high - (least - q.error.budget_bytes) / each) if each > 0 else low
            guess = min(max(on_line, low + 1), high - 1) if plan is None else (low + high) // 2
    if plan is not None:
        rest = f"; {low + 1} does not" if high == low + 1 else ""
        yield f"{what.format(low)}: {_fits(plan)}{rest}"
    elif high == 1:
        yield "no smaller batch: a batch of 1 does not fit either"
    elif estimate >= 1:
        yield f"{what.format(estimate)}: fits by an estimate; `mxlite fit-batch` finds it by planning"


def _batch_axes(shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Where the batch stands in these inputs: on the first axis, or where the one length is that all share.

    Where neither is so, it is taken to be the first axis of the first of them.
    """
    if len({s[0] for s in shapes.values()}) > 1:
        shared = set.intersection(*map(set, shapes.values()))
        if len(shared) == 1 and (length := shared.pop()) > 1:
            if all(s.count(length) == 1 and s.index(length) < len(ORDINALS) for s in shapes.values()):
                return {n: s.index(length) for n, s in shapes.items()}
    first = next(iter(shapes.values()), ())
    return {n: 0 for n, s in shapes.items() if s[0] == first[0]}


def _with_batch(q: Question, shapes: Mapping[str, Shape], axes: Mapping[str, int], new: int) -> Graph:
    """The network with the batch, which stands on `axes` of inputs, made `new` long."""
    data = _data(q)
    known = {
        n: tuple(new if axis == axes.get(n) else length for axis, length in enumerate(s))
        for n, s in shapes.items()
        if n in data
    }
    types = {n.name: q.inferred.dtypes[Entry(n)] for n in q.inferred.variables}
    return infer(Graph(q.inferred.outputs), known, types)


def _data(q: Question) -> set[str]:
    """Names of inputs that are no parameters."""
    return input_names(q.inferred, list(q.given))


def _planned(q: Question, what: str, found: MemoryPlan | MemoryBudgetError) -> Iterator[str]:
    """What came out of planning a remedy; nothing where it takes no less than what was asked for."""
    if isinstance(found, MemoryPlan):
        yield f"{what}: {_fits(found)}"
    elif found.least_feasible_bytes < q.error.least_feasible_bytes:
        yield f"{what}: not enough, needs {format_bytes(found.least_feasible_bytes)}"


def _fits(plan: MemoryPlan) -> str:
    return f"fits, {format_bytes(plan.peak_bytes)} with {percent(plan.extra_time)} extra time"


def _shape(shape: Shape) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"
