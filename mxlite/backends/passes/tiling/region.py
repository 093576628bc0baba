"""A region of tiles under construction from the nodes of a graph."""

from __future__ import annotations

from collections.abc import Sequence

from ....graph import Entry, Graph, Node, Rewriter, Shape
from ...fused.tile_builder import add_update, Part as Part, TileBuilder
from ...fused.tiled import Axes, TileArray, Tiled, TileLoop

ROWS: Axes = (0,)
COLUMNS: Axes = (1,)
WHOLE: Axes = (None,)
"""How a matrix is sliced in a region of one loop."""


class Region(TileBuilder):
    """Collects the arrays and calls of a node that runs on tiles; its inputs are entries of a graph.

    region = Region(graph, (TileLoop(rows, each, "row"),))
    wide, data = region.input(weight, ROWS), region.input(data, WHOLE)
    …
    node = region.node(Tiled, [out], like, rewriter)
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

    def node(self, op: type[Tiled], made: Sequence[Part], like: Node, rewriter: Rewriter) -> Node:
        """The node that computes these results of the inputs' newest entries, with the name of `like`."""
        inputs = rewriter.all_of(self.entries)
        return Node(op, self.attrs(made), inputs, like.name, annotations=like.annotations)
