"""Operators that work sample by sample, one behind the other, become one that takes some samples at a time.

    d_out, weight -> gradient of a dense layer -> d_y              d_out, weight, x, more -> region -> sum
              x, d_y -> gradient of a norm -> d_x          becomes
                   d_x, more -> sum

So d_y is never there as a whole, nor d_x where it cannot take the place of what it is made of; see
`fused/tiled.py`. What lies between two of them must be large, have no other reader, and be no output. The
node stands where the last one stood, or, where an update has changed a weight by then, where the first one
did: of a weight in mixed precision too, whose 16-bit copy would else be there while it is updated. What the
others read must be there before the first one.

A row of operators is taken as far as that saves bytes: where what the last one makes is smaller than what
lies between, or may take the place of an array that nobody reads afterwards. A product comes first: behind a
norm it would read a few samples at a time what is kept as a whole for the gradient in the weight. Rows
without a product are loop nests, see `fusion/reductions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from math import inf, prod
from typing import Any

from ....graph import Entry, Graph, Node, Op, Rewriter, Shape
from ....graph.gradient import GradAdd
from ....ops import find_op
from ....ops.elementwise.cast import Cast
from ....ops.nn.dense import FullyConnected
from ....ops.nn.pooled_convolution import PooledConvolution
from ....ops.norm.layer_norm import LayerNorm, RMSNorm
from ....ops.reduce.reduce import reduced_axes
from ...elementwise.formula import is_elementwise
from ...fused import tile_sizes
from ...fused.tiled import TileArray, Tiled, TiledGradient, TileLoop
from ...rewrite import graph_pass, Stage, Step
from ..remat.remat_candidates import is_stage, Reads, rerun
from ..target import Target
from .region import Part, Region, ROWS, WHOLE

LEAST_BYTES = 512 * 1024
"""Least bytes of an array that is worth a region: a smaller one stays in the cache, and saves little."""

MOST = 4  # operators

Samples = tuple[tuple[bool, ...], tuple[bool, ...]]
"""For the inputs and outputs of a forward call: True if samples lie along their first axis."""

_PRODUCTS = (FullyConnected, PooledConvolution)


@graph_pass(Stage.STEP, after=("inline_dense_casts", "gradient_updates"))
def sample_tiles(step: Step, target: Target) -> Step:
    """Operators of a training step on some samples at a time, what no product has taken along. O(inputs)."""
    if not step.has_backward:
        return step
    search = _TilingSearch(step)
    found = search.rows()
    row_of = {place: row for row in found if (place := search.place(row)) is not None}

    def add(result: Rewriter, node: Node) -> None:
        row = row_of[node]
        region, made = _region(step.graph, row, step.read)
        op = Tiled if all(n.forward is None for n in row) else TiledGradient
        like = replace(node, name="+".join(n.name for n in row), annotations={})
        region.put(result, op, like, made)

    return step.substituted(row_of, add, gone={n for row in found for n in row})


class _TilingSearch:
    """Rows of operators that can become one."""

    def __init__(self, step: Step) -> None:
        self.graph, self.shown = step.graph, step.shown
        self.reads = Reads(step)

    def rows(self) -> list[list[Node]]:
        """In the order of their first nodes."""
        found: list[list[Node]] = []
        taken: set[Node] = set()
        for node in self.graph.nodes:
            if node in taken or not _is_product(node) or not self._may_join(node):
                continue
            row = [node]
            while len(row) < MOST and (following := self._next(row)) is not None and following not in taken:
                row.append(following)
            while len(row) > 1 and not self._saves(row):
                row.pop()
            if len(row) > 1:
                found.append(row)
                taken.update(row)
        return found

    def _may_join(self, node: Node) -> bool:
        op = node.op
        if op is None or is_stage(node) or node.after or _samples(self.graph, node) is None:
            return False
        if _is_product(node) and (node.forward is None or "data" not in node.absent):
            return False  # only gradients in data: what a product makes forwards is kept for backward
        return not op.has_stream(node.attrs) and not op.mutated(node.attrs)

    def _next(self, row: Sequence[Node]) -> Node | None:
        """The operator that reads what the last of `row` makes, if it can be the next."""
        graph, reads = self.graph, self.reads
        e = _result(row[-1])
        readers = reads.readers.get(e, [])
        if len(readers) != 1 or e in self.shown or graph.nbytes(e) < LEAST_BYTES:
            return None
        (node,) = readers
        if _is_product(node) or not self._may_join(node) or node.inputs.count(e) != 1:
            return None
        if (node in reads.backward) != (row[0] in reads.backward):
            return None
        if _count(graph, node) != _count(graph, row[0]) or not _has_samples(graph, node, e):
            return None
        return node if self.place([*row, node]) is not None else None

    def place(self, row: Sequence[Node]) -> Node | None:
        """The node of `row` in whose place all can run; None if there is none."""
        reads = self.reads
        start, end = reads.place[row[0]], reads.place[row[-1]]
        own = set(row)
        inputs = {e for n in row for e in n.inputs if e.node not in own}
        made = {e for n in row for e in n.outputs}
        readers = (n for e in made for n in reads.readers.get(e, ()) if n not in own)
        if any(reads.place[e.node] >= start for e in inputs):
            return None  # what is there would wait for what is not
        changed = any(start < self._written(e) < end for e in inputs)
        return row[0] if changed or any(reads.place[n] <= end for n in readers) else row[-1]

    def _written(self, e: Entry) -> float:
        """The place of the first node that changes `e`, or what `e` is a copy of: that would be kept then."""
        is_copy = e.node.op is Cast and e.node.inputs[0].node.op is None
        return self.reads.written.get(e.node.inputs[0] if is_copy else e, inf)

    def _saves(self, row: Sequence[Node]) -> bool:
        """True if fewer bytes are live with the operators of `row` as one."""
        graph, made = self.graph, _result(row[-1])
        if all(rerun(graph, Entry(n)) for n in row):
            return False  # backward makes the result of each again
        between = max(graph.nbytes(_result(n)) for n in row[:-1])
        if 2 * graph.nbytes(made) <= between:
            return True
        # The inputs of the first one may die with it anyway, and its result take their place.
        return any(
            self._dies(e, row)
            and graph.nbytes(e) == graph.nbytes(made)
            and graph.dtypes[e] == graph.dtypes[made]
            for node in row[1:]
            for e in self._overlaid(node, node is row[-1])
        )

    def _overlaid(self, node: Node, is_last: bool) -> list[Entry]:
        """Inputs in whose place the result may be made, by what `node` reads."""
        assert node.op is not None
        named = [(n, e) for n, e in zip(node.input_names, node.inputs) if _has_samples(self.graph, node, e)]
        if not is_last or is_elementwise(node.op):
            return [e for _, e in named]
        options = node.op.in_place_options(node.attrs).get(node.output_names[_result(node).index], ())
        return [e for n, e in named if n in options]

    def _dies(self, e: Entry, row: Sequence[Node]) -> bool:
        """True if nobody reads `e` behind `row`."""
        if e.node.op is None or e in self.shown or e.node in row:
            return False
        end = self.reads.place[row[0]]
        return all(n in row or self.reads.place[n] < end for n in self.reads.readers[e])


def _region(graph: Graph, row: Sequence[Node], read: Set[Entry]) -> tuple[Region, dict[Entry, Part]]:
    """The region of `row`, and the results that others read by their entries."""
    inner = {_result(n) for n in row[:-1]}
    count = _count(graph, row[0])
    region = Region(graph, (TileLoop(count, _each(graph, row, count)),))
    has_of = {}
    for node in row:
        samples = _samples(graph, node)
        assert samples is not None
        has_of[node] = _by_name(node, samples)
    sliced = {e for n in row for name, e in zip(n.input_names, n.inputs) if has_of[n][name]}
    parts: dict[Entry, Part] = {}
    for node in row:
        forward, has = node.forward or node, has_of[node]
        assert node.op is not None and forward.op is not None
        reads = {
            name: parts[e] if e in parts else region.input(e, ROWS if e in sliced else WHOLE)
            for name, e in zip(node.input_names, node.inputs)
        }
        results = {n: Entry(node, i) for i, n in enumerate(node.output_names) if Entry(node, i) in read}
        makes = {n: _array(graph, e, has[n], sums=not has[n]) for n, e in results.items()}
        names = (*forward.op.input_names(forward.attrs), *forward.op.output_names(forward.attrs))
        entries = (*forward.inputs, *forward.outputs)
        absent = {n: _array(graph, e, has[n]) for n, e in zip(names, entries, strict=True)}
        attrs = node.attrs
        if node.op is PooledConvolution.grad_op:  # it takes some at a time itself
            attrs = replace(attrs, samples=min(attrs.samples, region.loops[0].each))
        made = region.call(node.op, attrs, reads, makes, absent=absent)
        parts |= {e: made[n] for n, e in results.items()}
    return region, {e: part for e, part in parts.items() if e not in inner}


def _array(graph: Graph, e: Entry, has_samples: bool, sums: bool = False) -> TileArray:
    return TileArray(graph.shapes[e], graph.dtypes[e], ROWS if has_samples else WHOLE, sums)


def _is_product(node: Node) -> bool:
    return (node.forward or node).op in _PRODUCTS


def _each(graph: Graph, row: Sequence[Node], count: int) -> int:
    """Samples of a tile."""
    most = max(graph.nbytes(_result(n)) for n in row[:-1])
    first, rows = row[0], None
    if first.op is FullyConnected.grad_op:
        assert first.forward is not None
        rows = prod(graph.shapes[Entry(first.forward)][:-1]) // count
    return tile_sizes.samples_of_tile(count, most, rows)


def _result(node: Node) -> Entry:
    """The entry that the next operator would read: the gradient in data, or the first output."""
    names = node.output_names
    return Entry(node, names.index("d_data") if "d_data" in names else 0)


def _count(graph: Graph, node: Node) -> int:
    """Samples."""
    return graph.shapes[(node.forward or node).inputs[0]][0]


def _by_name(node: Node, samples: Samples) -> dict[str, bool]:
    """Which of a node's own inputs and outputs have samples along their first axis."""
    forward = node.forward or node
    assert forward.op is not None
    ins, outs = forward.op.input_names(forward.attrs), forward.op.output_names(forward.attrs)
    has = {**dict(zip(ins, samples[0])), **dict(zip(outs, samples[1]))}
    return {**has, **{f"d_{n}": h for n, h in has.items()}}


def _has_samples(graph: Graph, node: Node, e: Entry) -> bool:
    """True if `e`, which `node` reads, has samples along its first axis."""
    samples = _samples(graph, node)
    if samples is None:
        return False
    has = _by_name(node, samples)
    return all(has[n] for n, i in zip(node.input_names, node.inputs) if i == e)


def _samples(graph: Graph, node: Node) -> Samples | None:
    """The arrays of a node's forward call that have samples; None where it does not work on each by itself,
    or its parts of a sum would be rounded.
    """
    forward = node.forward or node
    if forward.op is None or any(e not in graph.shapes for e in forward.inputs):
        return None
    rule = _rules().get(forward.op)
    if rule is None or any(e not in graph.shapes for e in forward.outputs):
        return None
    found = rule(forward.attrs, [graph.shapes[e] for e in forward.inputs])
    if found is None or not graph.shapes[forward.inputs[0]] or not _count(graph, node):
        return None
    has = _by_name(node, found)
    sums = [i for i, n in enumerate(node.output_names) if not has[n] and Entry(node, i) in graph.dtypes]
    if any(graph.dtypes[Entry(node, i)].itemsize < 4 for i in sums):
        return None
    return found


Rule = Callable[[Any, Sequence[Shape]], "Samples | None"]


def _first(outputs: int) -> Rule:
    """For operators whose data comes first, and then what all samples share."""
    return lambda a, shapes: ((True, *(False for _ in shapes[1:])), (True,) * outputs)


def _norm(outputs: int) -> Rule:
    def rule(a: Any, shapes: Sequence[Shape]) -> Samples | None:
        rank = len(shapes[0])
        if rank < 2 or a.axis % rank == 0:
            return None
        return (True, *(False for _ in shapes[1:])), (True,) * outputs

    return rule


def _reduced(a: Any, shapes: Sequence[Shape]) -> Samples | None:
    axes = reduced_axes(a, len(shapes[0]))
    return None if 0 in axes else ((True,), (True,))


def _elementwise(a: Any, shapes: Sequence[Shape]) -> Samples | None:
    return None if len(set(shapes)) > 1 else ((True,) * len(shapes), (True,))


_found: dict[type[Op], Rule] = {}


def _rules() -> Mapping[type[Op], Rule]:
    """The operators that work on each sample by itself."""
    if not _found:
        _found[FullyConnected] = _first(1)
        _found[PooledConvolution] = _first(2)
        _found[LayerNorm], _found[RMSNorm] = _norm(3), _norm(1)
        _found.update((find_op(n), _reduced) for n in ("mean", "sum"))
        names = ("Activation", "relu", "sigmoid", "tanh", "gelu", "silu", "elemwise_add")
        _found.update((find_op(n), _elementwise) for n in names)
        _found.update(dict.fromkeys((Cast, GradAdd), _elementwise))
    return _found
