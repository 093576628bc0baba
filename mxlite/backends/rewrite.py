"""The one mechanism by which graphs are rewritten: what a pass is, in which order passes run, who looks on.

A pass gives, for a step, another one that computes the same. It is declared where it is written, with its
name, when it applies and behind which others it comes:

    @graph_pass(Stage.STEP, after=("split_gradients",), anchors=(Cast,))
    def inline_weight_casts(step: Step, target: Target) -> Step:

Backends list the passes that they want (see `Backend`). Here they run, one behind another, and here somebody
may look on: a check of every rewrite, or a test that counts them.

    with observed(seen.append):
        net.simple_bind(…)
    [(r.name, r.changed) for r in seen]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any

from ..core.errors import RewriteError
from ..core.record import record
from ..graph import Entry, Graph, in_order, Node, Op
from .passes import NAMES
from .rewrite_step import Step as Step


class Stage(Enum):
    """When a pass applies."""

    FORWARD = "to the forward graph, before it is differentiated"
    STEP = "to a whole step"
    UNBOUNDED = "to a whole step behind those, where nobody names a budget"
    BOUNDED = "to a whole step behind those, where somebody names a budget"
    FORWARD_VARIANT = "to the forward graph: within a budget there is a plan of both"
    STEP_VARIANT = "to a whole step: within a budget there is a plan of both"
    CONSTANTS = "to an inference pass whose parameters stay"


@dataclass(frozen=True, eq=False)
class Pass:
    """A rewrite: `run(step, target)` gives another step, the same one where there is nothing to do.

    `target` is the backend's, see `passes/target.py`. `after` are passes that come before this one, if they
    are there at all. `anchors` are operators of which a step must have one: else the pass does not run. For a
    variant, `instead` says in words what its step does, and `pays(step)` whether it is worth a plan.
    """

    name: str
    run: Callable[[Step, Any], Step]
    stage: Stage
    after: tuple[str, ...] = ()
    anchors: tuple[type[Op] | None, ...] = ()
    instead: str = ""
    pays: Callable[[Step], bool] = lambda step: True

    def applies(self, step: Step) -> bool:
        """True if the step has an operator that the pass looks for."""
        return not self.anchors or not step.operator_types.isdisjoint(self.anchors)


def graph_pass(
    stage: Stage,
    after: tuple[str, ...] = (),
    anchors: tuple[type[Op] | None, ...] = (),
    instead: str = "",
    pays: Callable[[Step], bool] = lambda step: True,
) -> Callable[[Callable[[Step, Any], Step]], Pass]:
    """Declares a function to be a pass of its name."""
    return lambda run: Pass(run.__name__, run, stage, after, anchors, instead, pays)


@cache
def ordered(passes: tuple[Pass, ...]) -> tuple[Pass, ...]:
    """`passes`, each behind those that it comes after; else as they are listed. O(passes ** 2).

    Raises RewriteError for a name that is no pass's, one that two have, and where some come after each other.
    """
    names = [p.name for p in passes]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise RewriteError(f"There are two passes {twice}.")
    for p in passes:
        if unknown := sorted(set(p.after) - {*names, *NAMES}):
            raise RewriteError(f"The pass {p.name!r} comes after {unknown}, and there is no such pass.")
    left, found = list(passes), []
    while left:
        waiting = {p.name for p in left}
        free = next((p for p in left if waiting.isdisjoint(p.after)), None)
        if free is None:
            raise RewriteError(
                f"Each of the passes {[p.name for p in left]} comes after another one of them."
            )
        left.remove(free)
        found.append(free)
    return tuple(found)


@dataclass(frozen=True)
class Pipeline:
    """Passes of a backend, in any order that `after` allows, and the target that they ask."""

    passes: tuple[Pass, ...] = ()
    target: Any = None

    def of(self, stage: Stage) -> tuple[Pass, ...]:
        """The passes of a stage, in their order."""
        return tuple(p for p in ordered(self.passes) if p.stage is stage)

    def run(self, stage: Stage, step: Step) -> Step:
        """`step` through each pass of a stage, as if they were one."""
        for work in self.of(stage):
            step = self.apply(work, step)
        return step

    def apply(self, work: Pass, step: Step) -> Step:
        """`step` through one pass."""
        after = work.run(step, self.target) if work.applies(step) else step
        if after.graph is not step.graph and step.num_forward is not None:
            graph, count = _read(step, after)
            after = after.became(graph, num_forward=count)
        return told(Rewrite(work.name, step, after))


@record
class Rewrite:
    """The pass `name` has made the step `after` of `before`: one of the same graph where it found nothing."""

    name: str
    before: Step
    after: Step

    @property
    def changed(self) -> bool:
        return self.after.graph is not self.before.graph

    @property
    def moved(self) -> Mapping[Entry, Entry]:
        """The entries that now replace those that are kept."""
        return {at: self.after.stands.get(e, at) for e, at in self.before.stands.items()}


Observer = Callable[[Rewrite], object]

_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())
_always: list[Observer] = []


def always_observed(observer: Observer) -> Observer:
    """Declares an observer that is told of every pass of every thread, before any other."""
    _always.append(observer)
    return observer


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Inside, `observer` is told of every pass that this thread runs."""
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


def _read(before: Step, step: Step) -> tuple[Graph, int]:
    """The graph of `step` without nodes that a pass has left without a reader, and how many nodes forward has
    then.

    A pass makes another node of each reader of an array, or has some of them make it again; who made it is
    then to go, too: a kernel would have nowhere to write. O(inputs).
    """
    after, num_forward = step.graph, step.num_forward
    assert num_forward is not None
    unread = _unread(step)
    if unread:
        unread -= _unread(before)
    if not unread:
        return after, num_forward
    order = tuple(n for n in after.nodes if n not in unread)
    return replace(after, order=order), num_forward - sum(n in unread for n in step.forward)


def _unread(step: Step) -> set[Node]:
    """The operator nodes of which nobody reads anything, and that change nothing."""
    needed = {e.node for e in step.shown} | set(step.graph.effects)
    unread: set[Node] = set()
    for node in reversed(step.graph.nodes):
        if node.op is None or node in needed or node.op.mutated(node.attrs):
            needed.update(e.node for e in (*node.inputs, *node.after))
        else:
            unread.add(node)
    return unread


def told(rewrite: Rewrite) -> Step:
    """The step that a pass has made, in an order in which it can run, when all observers have seen it."""
    if rewrite.changed:
        made = rewrite.after
        rewrite = replace(rewrite, after=made.became(in_order(made.graph, rewrite.name)))
    for observer in (*_always, *_observers.get()):
        observer(rewrite)
    return rewrite.after
