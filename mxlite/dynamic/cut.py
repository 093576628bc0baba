"""The training step of a cell, cut where rows of nodes meet weights.

A cell is a graph that treats each row of its inputs by itself: a row is a node of a user's graph. Its step
falls into four graphs, which read each other's results as variables:

    constant    what depends on parameters alone                            once for a mini-batch
    forward     outputs, and what backward reads                            for some nodes of one level
    backward    gradients of the states, and of what meets a parameter      for some nodes of one level
    total       gradients of the parameters, sums over rows                 once, for all nodes

Whether an array has a row for each node is seen from its shapes for two and for three nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from ..backends.checks.evaluated import evaluated
from ..core.errors import DefinitionError
from ..executor.request.infer import infer
from ..graph import Entry, Graph, infer_shapes, infer_types, Node, output_name, Shape, variable
from ..graph.opdef import DType
from ..ops.control.subgraph import gradient_graph


@dataclass(frozen=True)
class Piece:
    """One of the four graphs. `reads` are entries of the whole step, each with the variable that it is here;
    `makes` are those of its outputs. `was` says which entry of the step a new one stands for.
    """

    graph: Graph
    reads: Mapping[Entry, Entry]
    makes: tuple[Entry, ...]
    was: Mapping[Entry, Entry]


class Cut:
    """The four pieces of a cell's step, and the shapes of all arrays for any number of nodes.

    `states` and `data` are shapes of a row and types by name; all other variables are parameters. `outputs`,
    `heads` and `gradients` are entries: the results, the gradients that arrive at them (None where none is
    read), and those of states and parameters, by name. `moving` are the entries that have rows. Raises
    DefinitionError if a node mixes rows.
    """

    def __init__(
        self,
        name: str,
        graph: Graph,
        states: Mapping[str, tuple[Shape, DType]],
        data: Mapping[str, tuple[Shape, DType]],
    ) -> None:
        inputs = {**states, **data}
        self.name = name
        self.outputs = graph.outputs
        of = {n.name: Entry(n) for n in graph.variables}
        heads = {i: variable(f"d_{output_name(e)}") for i, e in enumerate(graph.outputs)}
        wrt = {n: e for n, e in of.items() if n not in data}
        backward, grads = gradient_graph(graph, list(wrt.values()), heads)
        self.gradients = {n: g for n, g in zip(wrt, grads) if g is not None}
        used = set(backward.nodes)
        self.heads = [e if e.node in used else None for e in heads.values()]
        order = (*graph.nodes, *(n for n in backward.nodes if n not in set(graph.nodes)))
        step = Graph((*graph.outputs, *self.gradients.values()), order=order)
        self.data = [of[n] for n in data]
        self.rows = {of[n] for n in inputs} | {e for e in self.heads if e is not None}
        self._is_forward = frozenset(graph.nodes)
        two, three = (self._typed(step, inputs, heads, n) for n in (2, 3))
        self.step, self._three = two, three.shapes
        self.states = {n: of[n] for n in states}
        self.parameters = {n: e for n, e in of.items() if n not in inputs}
        self.moving = self._moving()
        self.constant, self.forward, self.backward, self.total = self._pieces()
        self._check_rows([of[n] for n in inputs])

    def _refused(self, node: Node, why: str) -> DefinitionError:
        """The error for a node that cannot be in a cell."""
        what = "" if node.op is None else f"{node.op.op_name} "
        return DefinitionError(f"Cell {self.name!r}: {what}{node.name!r} {why}.")

    # -- shapes --------------------------------------------------------------------------------

    def _typed(
        self, step: Graph, inputs: Mapping[str, tuple[Shape, DType]], heads: Mapping[int, Entry], count: int
    ) -> Graph:
        """The step with shapes and types for so many nodes."""
        shapes = {n: (count, *s) for n, (s, _) in inputs.items()}
        dtypes = {n: d for n, (_, d) in inputs.items()}
        alone = infer(Graph(self.outputs), shapes, dtypes)
        known_shapes, known_types = dict(alone.shapes), dict(alone.dtypes)
        for i, e in heads.items():
            known_shapes[e], known_types[e] = alone.shapes[self.outputs[i]], alone.dtypes[self.outputs[i]]
        step = replace(step, shapes=known_shapes, dtypes=known_types)
        return infer_types(infer_shapes(step, {}), {})

    def row(self, entry: Entry) -> Shape:
        """The shape of one node's part of an array that has rows."""
        shape = self.step.shapes[entry]
        return shape[1:] if shape[0] == 2 else (shape[0] // 2, *shape[1:])

    def dtype(self, entry: Entry) -> DType:
        """The type of its elements."""
        return self.step.dtypes[entry]

    def shape(self, entry: Entry, count: int) -> Shape:
        """The shape of an array for so many nodes."""
        shape = self.step.shapes[entry]
        return (shape[0] // 2 * count, *shape[1:]) if entry in self.moving else shape

    def _moving(self) -> frozenset[Entry]:
        """The entries that have rows."""
        found = set()
        for e in self.step.entries():
            two, three = self.step.shapes.get(e), self._three.get(e)
            if two is None or three is None or two == three:
                continue
            if two[0] % 2 or two[0] // 2 * 3 != three[0] or two[1:] != three[1:]:
                raise self._refused(
                    e.node,
                    f"makes {two} of 2 nodes and {three} of 3: the first axis must be the nodes'",
                )
            found.add(e)
        return frozenset(found)

    # -- pieces --------------------------------------------------------------------------------

    def _pieces(self) -> tuple[Piece, Piece, Piece, Piece]:
        step, moves = self.step, self.moving
        depends: set[Node] = {e.node for e in self.rows}
        for node in step.nodes:
            if not depends.isdisjoint(e.node for e in node.inputs):
                depends.add(node)
        constant = {e for n in step.nodes if n.op is not None and n not in depends for e in n.outputs}
        variables = {Entry(n) for n in step.variables}
        for node in step.nodes:
            if node.op is None or node not in self._is_forward or node not in depends:
                continue
            if node.op.aux or node.op.mutated(node.attrs):
                raise self._refused(
                    node, "keeps states, which nodes would mix; LayerNorm normalizes each node by itself"
                )
            if mixed := [e for e in node.outputs if e in step.shapes and e not in moves]:
                shape = step.shapes[mixed[0]]
                raise self._refused(node, f"makes {shape} however many nodes there are: it mixes nodes")
        sums = tuple(dict.fromkeys(g for n, g in self.gradients.items() if n in self.parameters))
        total = self._piece(sums, variables | constant | moves)
        rising = [g for n, g in self.gradients.items() if n in self.states]
        made = [e for e in total.reads if e.node not in self._is_forward and e.node.op is not None]
        kept = {e for n in self._is_forward for e in n.outputs}
        wanted = tuple(dict.fromkeys((*rising, *(e for e in made if e not in constant))))
        backward = self._piece(wanted, variables | constant | kept)
        self._check_backward(backward, total, variables | constant)
        read = [e for e in (*total.reads, *backward.reads) if e in kept and e.node.op is not None]
        saved = tuple(e for e in dict.fromkeys((*self.outputs, *read)) if e not in constant)
        forward = self._piece(saved, variables | constant)
        every = (e for p in (forward, backward, total) for e in p.reads)
        return (
            self._piece(tuple(dict.fromkeys(e for e in every if e in constant)), variables),
            forward,
            backward,
            total,
        )

    def _check_backward(self, backward: Piece, total: Piece, fixed: Set[Entry]) -> None:
        """Raise DefinitionError where a sum over nodes reaches a node, or is not one of gradients."""
        for node in backward.graph.nodes:
            for e in node.inputs:
                was = backward.was.get(e, e)
                if was not in self.moving and was not in fixed:
                    raise self._refused(node, f"reads {was.node.name!r}, a sum over all nodes")
        for node in total.graph.nodes:
            rows = [was for e in node.inputs if (was := total.was.get(e, e)) in self.moving]
            if rows and not any(map(self.is_gradient, rows)):
                raise self._refused(node, "sums over nodes what is no gradient of a result")

    def _check_rows(self, inputs: Sequence[Entry]) -> None:
        """Raise DefinitionError if the first of three nodes has other results beside other nodes."""
        draw = np.random.default_rng(0)
        graph = Graph(self.outputs, shapes=self._three, dtypes=self.step.dtypes)
        values = {
            n.name: draw.uniform(0.1, 0.9, self._three[e]).astype(self.dtype(e))
            for n in graph.variables
            for e in n.outputs
        }
        first = evaluated(graph, values, self.outputs, False)
        for e in inputs:
            rest = values[e.node.name].reshape(3, -1)[1:]
            rest[...] = draw.uniform(0.1, 0.9, rest.shape)
        second = evaluated(graph, values, self.outputs, False)
        for e in self.outputs:
            if not np.allclose(
                first[e].reshape(3, -1)[0], second[e].reshape(3, -1)[0], 1e-3, 1e-5, equal_nan=True
            ):
                raise self._refused(
                    e.node, "gives a node what depends on the other nodes: look for an operator along axis 0"
                )

    def is_gradient(self, entry: Entry) -> bool:
        """True for gradients, in which an array of zeros stands for no nodes."""
        return entry in self.heads or (entry.node not in self._is_forward and entry.node.op is not None)

    def _piece(self, makes: tuple[Entry, ...], given: Iterable[Entry]) -> Piece:
        """What computes the entries `makes` from those that are `given`."""
        given = frozenset(given)
        needed: set[Node] = set()
        stack = [e.node for e in makes if e not in given]
        while stack:
            node = stack.pop()
            if node not in needed:
                needed.add(node)
                stack += [e.node for e in node.inputs if e not in given]
        reads: dict[Entry, Entry] = {}
        was: dict[Entry, Entry] = {}
        stands: dict[Node, Node] = {}
        order: list[Node] = []

        def read(e: Entry) -> Entry:
            if e not in given:
                return Entry(stands[e.node], e.index)
            if e not in reads:
                reads[e] = e if e.node.op is None else variable(f"{e.node.name}.{e.index}")
                was[reads[e]] = e
            return reads[e]

        for node in self.step.nodes:
            if node in needed:
                inputs = tuple(read(e) for e in node.inputs)
                stands[node] = node if inputs == node.inputs else replace(node, inputs=inputs)
                was.update((Entry(stands[node], e.index), e) for e in node.outputs)
                order.append(stands[node])
        outputs = tuple(read(e) for e in makes)
        inside = tuple(e.node for e in reads.values())
        return Piece(Graph(outputs, order=(*inside, *order)), reads, makes, was)

    def sized(self, piece: Piece, count: int) -> Graph:
        """The graph of a piece with shapes and types for so many nodes."""
        known = {e: self.shape(e, count) for e in self.step.shapes}
        dtypes = dict(self.step.dtypes)
        for new, old in piece.was.items():
            if old in known:
                known[new], dtypes[new] = known[old], dtypes[old]
        return replace(piece.graph, shapes=known, dtypes=dtypes)

    def streams(self) -> dict[Node, int]:
        """Numbers of the nodes that draw random numbers, in both directions."""
        drawn = [
            n
            for n in self.step.nodes
            if n.op is not None and n in self._is_forward and n.op.has_stream(n.attrs)
        ]
        found = {n: i for i, n in enumerate(drawn)}
        for new, old in self.forward.was.items():
            if old.node in found:
                found[new.node] = found[old.node]
        return found
