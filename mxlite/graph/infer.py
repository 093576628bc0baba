"""Shape and type inference: sweeps in topological order until nothing more becomes known.

A sweep visits only nodes that may learn something: at first those of which not everything is known, then the
neighbours of entries that became known. So inferring a graph to which a pass has added a few nodes costs
little more than these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from ..core.compat.npshape import from_user
from ..core.dtype import as_dtype
from ..core.errors import DTypeError, OpAttributeError, ShapeError
from .attrs import parse_tuple
from .ir import Entry, Graph, Node, Shape
from .opdef import agreed_shape, known_shape, Op, require_possible
from .open_shapes import shapes_around


def infer_shapes(graph: Graph, known: Mapping[str, Shape]) -> Graph:
    """Return `graph` with `shapes` filled as far as they follow from `known`.

    `known` maps variable names to shapes; a dimension of -1 is unknown. Shapes of weights follow from
    the data; operators whose arrays are all of one shape pass it on in both directions. A variable's
    own `__shape__` takes part, unless its whole shape is known already, which then counts. Entries that stay
    unknown are absent from `shapes`, or have -1 in them.

    Raises ShapeError, naming the node, for shapes that contradict each other.
    """
    shapes = _Shapes(graph)
    shapes.start(known)
    _sweep(graph, shapes.visit, shapes.learned, lambda e: known_shape(shapes.shapes.get(e)))
    return replace(graph, shapes=shapes.shapes)


class _Shapes:
    """The shapes of a graph known so far; `learned` are the entries about which something became known."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.shapes: dict[Entry, Shape] = dict(graph.shapes)
        self.learned: list[Entry] = []

    def start(self, known: Mapping[str, Shape]) -> None:
        """Take over the known shapes of variables."""
        for node in self.graph.variables:
            own = node.annotations.get("__shape__")
            if own is not None and not (
                known_shape(known.get(node.name)) or known_shape(self.shapes.get(Entry(node)))
            ):
                try:
                    shape = from_user(parse_tuple(own, int))
                except ValueError as error:
                    raise ShapeError(f"variable {node.name!r}: its '__shape__' {error}") from None
                self.learn(Entry(node), shape, node)
            if node.name in known:
                self.learn(Entry(node), tuple(known[node.name]), node)

    def learn(self, entry: Entry, shape: Shape, node: Node) -> None:
        """Record that `node` gives `entry` this shape, as far as it is known."""
        old = self.shapes.get(entry)
        if old == shape:
            return
        if old is not None:
            merged = agreed_shape(old, shape)
            if merged is None:
                what = node.op.op_name if node.op else "variable"
                raise ShapeError(
                    f"{what} {node.name!r} needs {_entry_name(entry)!r} to be {shape}, but it is {old}."
                )
            if merged == old:
                return
            shape = merged
        require_possible(shape, _entry_name(entry))
        self.shapes[entry] = shape
        self.learned.append(entry)

    def visit(self, node: Node) -> None:
        """Learn all shapes that follow at one node."""
        if node.forward is not None:
            self.follow(node)
            return
        assert node.op is not None
        entries = [*node.inputs, *node.outputs]
        try:
            if node.op.same_shape:
                self.equate(node, entries)
                return
            answer = self.ask(node, entries)
        except (ShapeError, OpAttributeError) as error:
            text = str(error)
            if not text.startswith(node.op.op_name):
                text = f"{node.op.op_name} {node.name!r}: {text}"
            raise type(error)(text) from None
        for e, s in zip(entries, answer):
            if s is not None:
                self.learn(e, tuple(s), node)

    def follow(self, node: Node) -> None:
        """Give a gradient the shape of the array it belongs to."""
        of = _forward_inputs(node)
        for i, name in enumerate(node.output_names):
            shape = self.shapes.get(of[name.removeprefix("d_")])
            if shape is not None and self.shapes.get(Entry(node, i)) != shape:
                self.shapes[Entry(node, i)] = shape
                self.learned.append(Entry(node, i))

    def equate(self, node: Node, entries: Sequence[Entry]) -> None:
        """Give all arrays of the node one shape."""
        op = node.op
        assert op is not None
        common: Shape | None = None
        for e in entries:
            s = self.shapes.get(e)
            if s is not None:
                merged = s if common is None else agreed_shape(common, s)
                if merged is None:
                    raise ShapeError(
                        f"all arrays must have one shape, got {common} and {s} ({_entry_name(e)!r}); the "
                        f"broadcast_ operators take shapes that broadcast."
                    )
                common = merged
        if common is None:
            return
        if known_shape(common) and op.infer_shape is not Op.infer_shape:
            op.infer_shape(node.attrs, *(common for _ in node.inputs))  # it may refuse the shape
        for e in entries:
            self.learn(e, common, node)

    def ask(self, node: Node, entries: Sequence[Entry]) -> Iterable[Shape | None]:
        """The operator's shapes of all its arrays, None for each if it lacks the shape of one."""
        op, names = node.op, node.input_names
        assert op is not None
        ins = [self.shapes.get(e) for e in node.inputs]
        inferred = op.inferred_names(node.attrs)
        if all(known_shape(s) for n, s in zip(names, ins) if n not in inferred):
            told = (s if op.takes_open_shapes or known_shape(s) else None for s in ins)
            in_shapes, out_shapes = op.infer_shape(node.attrs, *told)
            return (*in_shapes, *out_shapes)
        outs = [self.shapes.get(e) for e in node.outputs]
        for e, s in zip(node.inputs, op.infer_inputs(node.attrs, ins, outs)):
            if s is not None:
                self.learn(e, tuple(s), node)
        ins = [self.shapes.get(e) for e in node.inputs]
        needed = [s for n, s in zip(names, ins) if n not in inferred]
        if None in needed or all(map(known_shape, needed)):
            return ()
        return shapes_around(op, node.attrs, tuple(ins), tuple(outs))


def infer_types(graph: Graph, known: Mapping[str, Any], default: Any = None) -> Graph:
    """Return `graph` with `dtypes` filled as far as they follow from `known` (variable names to dtypes).

    With `default`, variables that stay unknown get that dtype. Raises DTypeError, naming the node.
    """
    dtypes: dict[Entry, np.dtype[Any]] = dict(graph.dtypes)
    learned: list[Entry] = []

    def learn(entry: Entry, dtype: np.dtype[Any] | None, node: Node) -> None:
        if dtype is None:
            return
        if entry in dtypes:
            if dtypes[entry] == dtype:  # never compare with None: numpy takes that for float64
                return
            what = node.op.op_name if node.op else "variable"
            raise DTypeError(
                f"{what} {node.name!r} needs {_entry_name(entry)!r} to be {dtype}, but it is {dtypes[entry]}."
            )
        dtypes[entry] = dtype
        learned.append(entry)

    for node in graph.variables:
        own = node.annotations.get("__dtype__")
        if node.name in known:
            learn(Entry(node), as_dtype(known[node.name]), node)
        elif own is not None and Entry(node) not in graph.dtypes:
            learn(Entry(node), dtype_from_text(own), node)

    def visit(node: Node) -> None:
        if node.forward is not None:
            of = _forward_inputs(node)
            for i, name in enumerate(node.output_names):
                learn(Entry(node, i), dtypes.get(of[name.removeprefix("d_")]), node)
            return
        assert node.op is not None
        given = [dtypes.get(e) for e in node.inputs]
        try:
            ins, outs = node.op.infer_type(node.attrs, *given)
            dtype = dtypes.get(Entry(node)) if node.num_outputs else None
            if dtype is not None and outs[0] is None and node.op.typed_by_data:
                ins, outs = node.op.infer_type(node.attrs, dtype, *given[1:])
            elif dtype is not None and outs[0] is None and _is_of_one_type(node.op):
                ins, outs = node.op.infer_type(node.attrs, *(dtype for _ in given))
        except (DTypeError, OpAttributeError) as error:
            raise type(error)(f"{node.op.op_name} {node.name!r}: {error}") from None
        for e, d in zip(node.inputs, ins):
            learn(e, d, node)
        for i, d in enumerate(outs):
            learn(Entry(node, i), d, node)

    _sweep(graph, visit, learned, dtypes.__contains__)
    if default is not None:
        # One variable at a time would be quadratic: all data-like ones at once, then the types that follow.
        unknown = [n for n in graph.variables if Entry(n) not in dtypes]
        for node in unknown:
            learn(Entry(node), as_dtype(default), node)
        if unknown:
            _sweep(graph, visit, learned, dtypes.__contains__)
    return replace(graph, dtypes=dtypes)


def dtype_from_text(text: str) -> np.dtype[Any]:
    """The dtype of a variable's `__dtype__`: MXNet writes its number, a person its name."""
    from ..core.dtype import FLAGS

    if text.strip().lstrip("-").isdigit():
        if int(text) not in FLAGS:
            raise DTypeError(f"There is no dtype number {text}; known are {sorted(FLAGS)}.")
        return FLAGS[int(text)]
    return as_dtype(text)


def _sweep(
    graph: Graph, visit: Callable[[Node], None], learned: list[Entry], is_known: Callable[[Entry], bool]
) -> None:
    """Visit operators forwards and backwards until there is nothing more to learn.

    `visit` adds an entry to `learned` when something about it becomes known; entries already in it are news
    to all nodes.
    """
    nodes = [n for n in graph.nodes if n.op is not None]
    place = {n: i for i, n in enumerate(nodes)}
    readers: dict[Entry, list[int]] = {}
    for i, node in enumerate(nodes):
        for e in node.inputs:
            readers.setdefault(e, []).append(i)

    def is_open(node: Node) -> bool:
        return not (all(map(is_known, node.inputs)) and all(map(is_known, node.outputs)))

    waiting = [is_open(node) for node in nodes]

    def wake(news: list[Entry], but: int) -> Iterator[int]:
        """Nodes to visit because of `news`."""
        for e in news:
            maker = place.get(e.node, but)
            for i in (maker, *readers.get(e, ())):
                if i != but and not waiting[i]:
                    waiting[i] = True
                    yield i

    # A sweep visits waiting nodes ahead of it, kept in a heap of `sign` times their indices; nodes that lie
    # before it wait for the next sweep, in the other direction. So a sweep costs only its visits, and a graph
    # may need as many sweeps as it has nodes.
    list(wake(learned, -1))
    sign, ahead = 1, [i for i, waits in enumerate(waiting) if waits]
    while ahead:
        behind: list[int] = []
        while ahead:
            i = sign * heappop(ahead)
            waiting[i] = False
            learned.clear()
            visit(nodes[i])
            if learned:
                for k in wake(learned, i):
                    if sign * k > sign * i:
                        heappush(ahead, sign * k)
                    else:
                        behind.append(-sign * k)
                if is_open(nodes[i]):  # it may learn more from what it has just learned
                    waiting[i] = True
                    behind.append(-sign * i)
        heapify(behind)
        sign, ahead = -sign, behind
    learned.clear()


def _is_of_one_type(op: type[Op]) -> bool:
    """True if all inputs have the type of the output, so that one determines the others."""
    is_default = op.infer_type.__func__ is Op.infer_type.__func__  # type: ignore[attr-defined]
    return op.same_shape or (is_default and not op.same_type)


def _forward_inputs(node: Node) -> dict[str, Entry]:
    assert node.forward is not None
    return node.forward.named_inputs


def _entry_name(entry: Entry) -> str:
    node = entry.node
    if node.op is None or node.num_visible_outputs == 1:
        return node.name
    return f"{node.name}[{entry.index}]"
