"""A region of tiles under construction from the nodes of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....graph import Entry, Graph, Node, Rewriter, Shape
from ...fused.tile_builder import add_update, Part as Part, TileBuilder
from ...fused.tiled import Axes, TileArray, Tiled, TileLoop
from ...rewrite import Step

ROWS: Axes = (0,)
COLUMNS: Axes = (1,)
WHOLE: Axes = (None,)
"""How a matrix is sliced in a region of one loop."""


class Region(TileBuilder):
    """Collects the arrays and calls of a node that runs on tiles; its inputs are entries of a graph.

    region = Region(graph, (TileLoop(rows, each, "row"),))
    wide, data = region.input(weight, ROWS), region.input(data, WHOLE)
    …
    region.put(rewriter, Tiled, like, {Entry(layer): out})
    """

    def __init__(self, graph: Graph, loops: Sequence[TileLoop]) -> None:
        super().__init__(loops)
        self.graph = graph
        self.entries: list[Entry] = []

    def input(self, entry: Entry, axes: Axes, shape: Shape | None = None) -> Part:
        """An array of the graph, sliced along `axes` of `shape`, its own unless given."""
        if entry in self.entries:
            return Part(True, self.entries.index(entry))
        whole = self.graph.shapes[entry]
        given = None if shape is None or shape == whole else whole
        self.entries.append(entry)
        return self.add(TileArray(shape or whole, self.graph.dtypes[entry], axes, given=given))

    def update(self, update: Node, gradient: Part, axes: Axes = ROWS, level: int | None = None) -> None:
        """Add an optimizer's step, where the loops slice its weight and states along `axes`; `level`: the
        number of loops around it, all unless given.
        """
        assert update.op is not None
        weight, _, *states, hyper = update.inputs
        reads = [*(self.input(e, axes) for e in (weight, *states)), self.input(hyper, (None,) * len(axes))]
        add_update(self, update.op, update.attrs, reads, gradient, level)

    def put(self, made: Rewriter, op: type[Tiled], like: Node, results: Mapping[Entry, Part]) -> Node:
        """Add the node to `made`, with the name of `like`: `results` are the entries for which it stands."""
        attrs, inputs = self.attrs([*results.values()]), made.all_of(self.entries)
        made.order.append(new := Node(op, attrs, inputs, like.name, annotations=like.annotations))
        for i, entry in enumerate(results):
            made.put(entry, Entry(new, i))
        return new


def put_bias_gradient(made: Rewriter, node: Node, step: Step) -> None:
    """Add the gradient in the bias of a dense layer as a node of its own, which reads d_out alone, if it is
    wanted; `node` computed it.
    """
    for i, name in enumerate(node.output_names):
        if name == "d_bias" and Entry(node, i) in step.read:
            d_out = made.of(node.named_inputs["d_out"])
            made.node_of[node] = new = replace(node, inputs=(d_out,), absent=node.absent | {"data"})
            made.order.append(new)
            made.put(Entry(node, i), Entry(new, i))
