"""The one place through which every rewrite of a graph runs.

A pass gives, for a graph, another one that computes the same. Backends hold lists of them (see `Backend`);
here they run, one behind another, and here somebody may look on: a check of every rewrite, or a test that
counts them.

    with observed(seen.append):
        net.simple_bind(…)
    [(r.name, r.changed) for r in seen]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..core import config
from ..graph import Entry, Graph, in_order, Node

ForwardPass = Callable[[Graph, bool], Graph]
"""(forward graph with shapes and dtypes, whether it trains) -> one with the same outputs of the same
variables."""

Combined = tuple[Graph, Mapping[Entry, Entry], int]
StepPass = Callable[[Graph, frozenset[Entry], int], Combined]
"""(graph of a whole step, entries that are kept, number of forward operator nodes) -> (graph, what stands for
each kept entry that is another one now, number of forward operator nodes)."""


@dataclass(frozen=True)
class Rewrite:
    """The pass `name` has made `after` of `before`: the same graph where it found nothing to do.

    `kept` are entries of `before` that somebody wants besides its outputs, and `moved` what stands for those
    that are others now. `train`: whether the program trains. `num_forward`: operator nodes of the forward
    pass, before and after; None where nobody counts them. `forms`: variables that are kept in another form
    from there on, see `executor/away.py`.
    """

    name: str
    before: Graph
    after: Graph
    kept: frozenset[Entry]
    moved: Mapping[Entry, Entry]
    train: bool
    num_forward: tuple[int, int] | None = None
    forms: Mapping[Entry, Any] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        return self.after is not self.before


Observer = Callable[[Rewrite], object]

_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Inside, `observer` is told of every pass that this thread runs."""
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


def name_of(work: Callable[..., Any]) -> str:
    """The name of a pass: that of its function."""
    while isinstance(work, partial):
        work = work.func
    return work.__name__


def simplified(passes: Sequence[ForwardPass], graph: Graph, train: bool) -> Graph:
    """`graph` through each of `passes`."""
    for work in passes:
        new = work(graph, train)
        graph = told(Rewrite(name_of(work), graph, new, frozenset(), {}, train))
    return graph


def combined(
    passes: Sequence[StepPass], graph: Graph, kept: frozenset[Entry], num_forward: int, train: bool = True
) -> Combined:
    """`graph` through each of `passes`, as if they were one."""
    now = {e: e for e in kept}
    for work in passes:
        held = frozenset(now.values())
        new, moved, count = work(graph, held, num_forward)
        if new is not graph:
            new, count = _read(graph, held, new, frozenset(moved.get(e, e) for e in held), count)
        graph = told(Rewrite(name_of(work), graph, new, held, moved, train, (num_forward, count)))
        now = {e: moved.get(at, at) for e, at in now.items()}
        num_forward = count
    return graph, {e: at for e, at in now.items() if e != at}, num_forward


def _read(
    before: Graph, held: frozenset[Entry], after: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, int]:
    """`after` without nodes that a pass has left without a reader, and how many nodes forward has then.

    A pass makes another node of each reader of an array, or has some of them make it again; who made it is
    then to go, too: a kernel would have nowhere to write. O(inputs).
    """
    unread = _unread(after, kept)
    if unread:
        unread -= _unread(before, held)
    if not unread:
        return after, num_forward
    forward = [n for n in after.nodes if n.op is not None][:num_forward]
    order = tuple(n for n in after.nodes if n not in unread)
    return replace(after, order=order), num_forward - sum(n in unread for n in forward)


def _unread(graph: Graph, kept: frozenset[Entry]) -> set[Node]:
    """The operator nodes of which nobody reads anything, and that change nothing."""
    needed = {e.node for e in (*graph.outputs, *kept)} | set(graph.effects)
    unread: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op is None or node in needed or node.op.mutated(node.attrs):
            needed.update(e.node for e in (*node.inputs, *node.after))
        else:
            unread.add(node)
    return unread


def told(rewrite: Rewrite) -> Graph:
    """The graph that a pass has made, in an order in which it can run, when all observers have seen it."""
    after = in_order(rewrite.after, rewrite.name) if rewrite.changed else rewrite.after
    if after is not rewrite.after:
        rewrite = replace(rewrite, after=after)
    if rewrite.changed and config.check_rewrites():
        from .rewrite_check import check

        check(rewrite)
    for observer in _observers.get():
        observer(rewrite)
    return after
