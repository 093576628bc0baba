"""A region under construction: the arrays and calls of a node that runs on tiles, see `fused/tiled.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....graph import Entry, Graph, Node, Op, Rewriter, Shape
from ....graph.opdef import DType
from ...fused.tiled import Axes, TileArray, TileAttrs, TileCall, Tiled, TileLoop


ROWS: Axes = (0,)
COLUMNS: Axes = (1,)
WHOLE: Axes = (None,)
"""How a matrix is sliced in a region of one loop."""


class Part(NamedTuple):
    """An array of a region under construction: a number among its inputs or among its results."""

    is_input: bool
    number: int


class Region:
    """Collects the inputs, calls and results of a node that runs on tiles.

        region = Region(graph, (TileLoop(rows, each, "row"),))
        wide, data = region.input(weight, (0,)), region.input(data, (None,))
        narrow = region.call(Cast, attrs, {"data": wide}, {"out": TileArray(shape, dtype, (0,))})["out"]
        …
        node = region.node(Tiled, made, name)
    """

    def __init__(self, graph: Graph, loops: Sequence[TileLoop]) -> None:
        self.graph, self.loops = graph, tuple(loops)
        self.entries: list[Entry] = []
        self.inputs: list[TileArray] = []
        self.results: list[TileArray] = []
        self.calls: list[tuple[TileCall, dict[str, Part], dict[str, Part]]] = []
        self.made: list[Part] = []

    def input(self, entry: Entry, axes: Axes, shape: Shape | None = None) -> Part:
        """An array of the graph, sliced along `axes` of `shape`, its own unless given."""
        whole = self.graph.shapes[entry]
        given = None if shape is None or shape == whole else whole
        array = TileArray(whole if shape is None else shape, self.graph.dtypes[entry], axes, given=given)
        if entry in self.entries:
            return Part(True, self.entries.index(entry))
        self.entries.append(entry)
        self.inputs.append(array)
        return Part(True, len(self.inputs) - 1)

    def call(
        self,
        op: type[Op],
        attrs: Any,
        reads: Mapping[str, Part],
        makes: Mapping[str, TileArray],
        level: int | None = None,
        forward: tuple[Sequence[TileArray], Sequence[TileArray]] | None = None,
    ) -> dict[str, Part]:
        """Add a call of an operator; returns its results by name.

        `reads` and `makes` are its arrays by name, `level` the number of loops around it, all unless given.
        `forward` are the inputs and outputs of the forward call, where they do not follow from those: an
        array stands for its gradient, and a gradient for its array.
        """
        results = {}
        for name, array in makes.items():
            results[name] = Part(False, len(self.results))
            self.results.append(array)
        arrays = {n: self.array(part) for n, part in (*reads.items(), *results.items())}
        ins, outs = forward or self._forward(op, attrs, arrays)
        first = next(iter(arrays[n].dtype for n in op.input_names(attrs) if n in arrays))
        dtypes = tuple(x.dtype for x in ins) if forward else tuple(
            arrays[n].dtype if n in arrays else first for n in (op.forward_op or op).input_names(attrs)
        )
        shapes = tuple(x.shape for x in ins), tuple(x.shape for x in outs)
        axes = tuple(x.axes for x in ins), tuple(x.axes for x in outs)
        depth = len(self.loops) if level is None else level
        made = TileCall(op, attrs, (), (), shapes, dtypes, axes, depth)
        self.calls.append((made, dict(reads), results))
        return results

    def array(self, part: Part) -> TileArray:
        """The array that a part stands for."""
        return (self.inputs if part.is_input else self.results)[part.number]

    @staticmethod
    def _forward(
        op: type[Op], a: Any, arrays: Mapping[str, TileArray]
    ) -> tuple[list[TileArray], list[TileArray]]:
        forward = op.forward_op or op
        ins, outs = forward.input_names(a), forward.output_names(a)
        return (
            [arrays.get(n) or arrays[f"d_{n}"] for n in ins],
            [arrays.get(n) or arrays[f"d_{n}"] for n in outs if n in arrays or f"d_{n}" in arrays],
        )

    def attrs(self, made: Sequence[Part]) -> TileAttrs:
        """The attributes of the node whose outputs are `made`."""
        count = len(self.inputs)

        def number(part: Part | None) -> int:
            return -1 if part is None else part.number if part.is_input else count + part.number

        calls = []
        for c, reads, makes in self.calls:
            ins = tuple(number(reads.get(n)) for n in c.op.input_names(c.attrs))
            outs = tuple(number(makes.get(n)) for n in c.op.output_names(c.attrs))
            calls.append(TileCall(c.op, c.attrs, ins, outs, c.shapes, c.dtypes, c.axes, c.level))
        arrays = (*self.inputs, *self.results)
        return TileAttrs(arrays, count, tuple(calls), tuple(map(number, made)), self.loops)

    def node(self, op: type[Tiled], made: Sequence[Part], like: Node, rewriter: Rewriter) -> Node:
        """The node that computes these results from what stands for the inputs now, with the name of `like`."""
        inputs = rewriter.all_of(self.entries)
        return Node(op, self.attrs(made), inputs, like.name, annotations=like.annotations)
