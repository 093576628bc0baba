"""The one mechanism by which graphs are rewritten: what a pass is, in which order passes run, who looks on.

A pass gives, for a step, another one that computes the same. It is declared where it is written, with its
name, when it applies and behind which others it comes:

    @graph_pass(Stage.STEP, after=("split_gradients",), anchors=(Cast,))
    def inline_dense_casts(step: Step, target: Target) -> Step:

Backends list the passes that they want (see `Backend`). Here they run, one behind another, and here somebody
may look on: a check of every rewrite, or a test that counts them.

    with observed(seen.append):
        net.simple_bind(…)
    [(r.name, r.changed) for r in seen]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from typing import Any

from ..core.cached import cached_property
from ..core.errors import RewriteError
from ..core.record import record
from ..graph import Entry, Graph, in_order, Node, Op, Rewriter
from .passes import NAMES


@dataclass(frozen=True, eq=False)
class Step:
    """A graph with shapes and dtypes, and what is known of it. A pass makes another one of it.

    `stands` says for each entry that somebody wants, besides the outputs, what stands for it now.
    `num_forward` is the number of operator nodes of the forward pass, which come first; None for a graph that
    is not differentiated yet. `train` is true if the program trains. If the parameters of an inference pass
    stay, `constant` are the entries that do not change from call to call, and `in_place` is true if variables
    may be kept in another form at their place; `forms` are the variables that are, each with its form (see
    `executor/run/away.py`).

    A pass that finds nothing to do returns the step that it was given: what has been found out about its
    graph is there for the next pass.
    """

    graph: Graph
    stands: Mapping[Entry, Entry] = field(default_factory=dict)
    num_forward: int | None = None
    train: bool = True
    constant: Set[Entry] = frozenset()
    in_place: bool = False
    forms: Mapping[Entry, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, graph: Graph, kept: Iterable[Entry] = (), num_forward: int | None = None, **facts: Any
    ) -> Step:
        """The step of a graph of which somebody wants the entries `kept`."""
        return cls(graph, {e: e for e in kept}, num_forward, **facts)

    @cached_property
    def kept(self) -> frozenset[Entry]:
        """The entries of the graph that somebody wants besides its outputs."""
        return frozenset(self.stands.values())

    @cached_property
    def shown(self) -> frozenset[Entry]:
        """The entries that somebody wants, outputs included."""
        return self.kept.union(self.graph.outputs)

    @cached_property
    def operators(self) -> Sequence[Node]:
        """The nodes that are no variables, in their order."""
        return [n for n in self.graph.nodes if n.op is not None]

    @cached_property
    def operator_types(self) -> frozenset[Any]:
        """The operators of its nodes."""
        return frozenset(n.op for n in self.graph.nodes)

    @cached_property
    def forward(self) -> Mapping[Node, None]:
        """The operator nodes of the forward pass, in their order."""
        return dict.fromkeys(self.operators[: self.num_forward])

    @property
    def has_backward(self) -> bool:
        """True if there are operator nodes after those of the forward pass."""
        return len(self.operators) != self.num_forward

    @cached_property
    def readers(self) -> Readers:
        """The readers of each entry."""
        return Readers(self)

    @cached_property
    def read(self) -> Set[Entry]:
        """The entries that a node reads or that are kept."""
        return self.kept | self.readers.of.keys()

    def became(
        self,
        graph: Graph,
        moved: Mapping[Entry, Entry] | None = None,
        num_forward: int | None = None,
        **facts: Any,
    ) -> Step:
        """The step with `graph` in place of its own; `moved` says which entries stand for old ones.

        `num_forward` is the number of its forward operators, as many as before unless given.
        """
        if graph is self.graph and not facts:
            return self
        stands = {e: moved.get(at, at) for e, at in self.stands.items()} if moved else self.stands
        count = self.num_forward if num_forward is None else num_forward
        return replace(self, graph=graph, stands=stands, num_forward=count, **facts)

    def substituted(
        self,
        found: Collection[Node],
        add: Callable[[Rewriter, Node], object],
        gone: Collection[Node] = (),
        ordered: bool = True,
    ) -> Step:
        """The step in which `add(rewriter, node)` adds what stands for each node that is `found`, and without
        the nodes that are `gone`; this step where nothing is found.
        """
        if not found:
            return self
        made = Rewriter(self.graph)
        for node in made.walk(self.num_forward):
            if node in found:
                add(made, node)
            elif node not in gone:
                made.keep(node)
        return self.rewritten(made, ordered)

    def rewritten(self, made: Rewriter, ordered: bool = True) -> Step:
        """The step that a pass has built; see `Rewriter.graph` and `Rewriter.walk`."""
        return self.became(made.graph(ordered), made.moved, made.num_forward)


class Readers:
    """The readers of the entries of a step, which a pass asks for before it replaces a subgraph."""

    def __init__(self, step: Step) -> None:
        """O(inputs)."""
        self.of = step.graph.readers()
        self._shown = step.shown

    def all(self, entry: Entry) -> Sequence[Node]:
        """The nodes that read `entry`, as often as they do."""
        return self.of.get(entry, ())

    def only(self, entry: Entry) -> Node | None:
        """The node that reads `entry`, where no other one does, once, and nobody else wants it."""
        found = self.of.get(entry, ())
        return found[0] if len(found) == 1 and entry not in self._shown else None

    def wants(self, entry: Entry) -> bool:
        """True if a node reads `entry`, or it is kept or an output."""
        return entry in self.of or entry in self._shown

    def stay_inside(self, own: Mapping[Entry, set[Node]]) -> bool:
        """True if only its nodes here read each of these entries, and none is kept or an output."""
        return all(e not in self._shown and nodes.issuperset(self.all(e)) for e, nodes in own.items())


class Stage(Enum):
    """When a pass applies."""

    FORWARD = "to the forward graph, before it is differentiated"
    STEP = "to a whole step"
    FINAL = "to the forward graph of inference, and to a whole step: to nothing that will be differentiated"
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
        """True if the step has an operator that the pass looks for, and is not too early for it."""
        if self.stage is Stage.FINAL and step.train and step.num_forward is None:
            return False
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
        stages = (stage, Stage.FINAL) if stage in (Stage.FORWARD, Stage.STEP) else (stage,)
        return tuple(p for p in ordered(self.passes) if p.stage in stages)

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
