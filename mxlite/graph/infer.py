"""Shape and type inference: sweeps in topological order until nothing more becomes known.

A sweep visits the nodes that may have something to say: at first those of which not everything is known, then
those that something became known about. So a graph that a pass has added a few nodes to costs little more
than these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.dtype import as_dtype
from ..core.errors import DTypeError, OpAttributeError, ShapeError
from ..core.npshape import from_user
from .attrs import _tuple
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
    shapes: dict[Entry, Shape] = dict(graph.shapes)
    learned: list[Entry] = []

    def learn(entry: Entry, shape: Shape, node: Node) -> None:
        old = shapes.get(entry)
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
        shapes[entry] = shape
        learned.append(entry)

    for node in graph.variables:
        own = node.annotations.get("__shape__")
        if own is not None and not (
            known_shape(known.get(node.name)) or known_shape(graph.shapes.get(Entry(node)))
        ):
            try:
                shape = from_user(_tuple(own, int))
            except ValueError as error:
                raise ShapeError(f"variable {node.name!r}: its '__shape__' {error}") from None
            learn(Entry(node), shape, node)
        if node.name in known:
            learn(Entry(node), tuple(known[node.name]), node)

    def visit(node: Node) -> None:
        if node.forward is not None:
            of = _forward_inputs(node)
            for i, name in enumerate(node.output_names):  # a gradient is as large as what it belongs to
                shape = shapes.get(of[name.removeprefix("d_")])
                if shape is not None and shapes.get(Entry(node, i)) != shape:
                    shapes[Entry(node, i)] = shape
                    learned.append(Entry(node, i))
            return
        assert node.op is not None
        entries = [*node.inputs, *(Entry(node, i) for i in range(node.num_outputs))]
        names = node.input_names
        ins = [shapes.get(e) for e in node.inputs]
        try:
            if node.op.same_shape:
                found: Shape | None = None
                for e in entries:
                    s = shapes.get(e)
                    if s is not None:
                        merged = s if found is None else agreed_shape(found, s)
                        if merged is None:
                            raise ShapeError(
                                f"all arrays must have one shape, got {found} and {s} ({_entry_name(e)!r})."
                            )
                        found = merged
                if found is None:
                    return
                if known_shape(found) and node.op.infer_shape is not Op.infer_shape:
                    node.op.infer_shape(node.attrs, *(found for _ in ins))  # it may refuse the shape
                for e in entries:
                    learn(e, found, node)
                return
            inferred = node.op.inferred_names(node.attrs)
            if any(not known_shape(s) for n, s in zip(names, ins) if n not in inferred):
                outs = [shapes.get(Entry(node, i)) for i in range(node.num_outputs)]
                for e, s in zip(node.inputs, node.op.infer_inputs(node.attrs, ins, outs)):
                    if s is not None:
                        learn(e, tuple(s), node)
                ins = [shapes.get(e) for e in node.inputs]
                needed = [s for n, s in zip(names, ins) if n not in inferred]
                if None not in needed and not all(map(known_shape, needed)):
                    for e, s in zip(entries, shapes_around(node.op, node.attrs, tuple(ins), tuple(outs))):
                        if s is not None:
                            learn(e, s, node)
                return
            given = [s if known_shape(s) else None for s in ins]
            in_shapes, out_shapes = node.op.infer_shape(node.attrs, *given)
        except (ShapeError, OpAttributeError) as error:
            text = str(error)
            if not text.startswith(node.op.op_name):
                text = f"{node.op.op_name} {node.name!r}: {text}"
            raise type(error)(text) from None
        for e, s in zip(entries, (*in_shapes, *out_shapes)):
            if s is not None:
                learn(e, tuple(s), node)

    _sweep(graph, visit, learned, lambda e: known_shape(shapes.get(e)))
    return replace(graph, shapes=shapes)


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
            made = dtypes.get(Entry(node)) if node.num_outputs else None
            if made is not None and outs[0] is None and node.op.typed_by_data:
                ins, outs = node.op.infer_type(node.attrs, made, *given[1:])
            elif made is not None and outs[0] is None and _is_of_one_type(node.op):
                ins, outs = node.op.infer_type(node.attrs, *(made for _ in given))
        except (DTypeError, OpAttributeError) as error:
            raise type(error)(f"{node.op.op_name} {node.name!r}: {error}") from None
        for e, d in zip(node.inputs, ins):
            learn(e, d, node)
        for i, d in enumerate(outs):
            learn(Entry(node, i), d, node)

    _sweep(graph, visit, learned, dtypes.__contains__)
    if default is not None:
        # One variable at a time would be quadratic: all data-like ones at once, then what follows.
        unknown = [n for n in graph.variables if Entry(n) not in dtypes]
        for node in unknown:
            learn(Entry(node), as_dtype(default), node)
        if unknown:
            _sweep(graph, visit, learned, dtypes.__contains__)
    return replace(graph, dtypes=dtypes)


def dtype_from_text(text: str) -> np.dtype[Any]:
    """A variable's `__dtype__`: MXNet writes its number, a person its name."""
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

    `visit` adds to `learned` what has become known, or more is known of; what is in it already is news to
    all.
    """
    nodes = [n for n in graph.nodes if n.op is not None]
    place = {n: i for i, n in enumerate(nodes)}
    readers: dict[Entry, list[int]] = {}
    for i, node in enumerate(nodes):
        for e in node.inputs:
            readers.setdefault(e, []).append(i)

    def is_open(node: Node) -> bool:
        for k in range(node.num_outputs):
            if not is_known(Entry(node, k)):
                return True
        return not all(map(is_known, node.inputs))

    waiting = [is_open(node) for node in nodes]

    def wake(news: list[Entry], but: int) -> None:
        for e in news:
            maker = place.get(e.node, but)
            for i in (maker, *readers.get(e, ())):
                if i != but:
                    waiting[i] = True

    wake(learned, -1)
    order = range(len(nodes))
    while any(waiting):
        for i in order:
            if waiting[i]:
                waiting[i] = False
                learned.clear()
                visit(nodes[i])
                if learned:
                    wake(learned, i)
                    waiting[i] = is_open(nodes[i])  # it may find out more with what it has found out
        order = order[::-1]
    learned.clear()


def _is_of_one_type(op: type[Op]) -> bool:
    """Whether the type of the output is that of every input, so that one tells the others."""
    return op.same_shape or op.infer_type.__func__ is Op.infer_type.__func__  # type: ignore[attr-defined]


def _forward_inputs(node: Node) -> dict[str, Entry]:
    assert node.forward is not None
    return dict(zip(node.forward.input_names, node.forward.inputs))


def _entry_name(entry: Entry) -> str:
    node = entry.node
    if node.op is None or node.num_visible_outputs == 1:
        return node.name
    return f"{node.name}[{entry.index}]"
