"""A step is the graph that passes rewrite, with what they have to know of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.cached import cached_property
from ..graph import Entry, Graph, Node, Rewriter


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
