"""Shape and type inference: sweeps in topological order until nothing more becomes known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.dtype import as_dtype
from ..core.errors import DTypeError, OpAttributeError, ShapeError
from ..core.npshape import from_user, UNKNOWN
from .attrs import _tuple
from .ir import Entry, Graph, Node, Shape
from .opdef import known_shape, Op, require_possible


def infer_shapes(graph: Graph, known: Mapping[str, Shape]) -> Graph:
    """Return `graph` with `shapes` filled as far as they follow from `known`.

    `known` maps variable names to shapes; a dimension of -1 is unknown. Shapes of weights follow from
    the data; operators whose arrays are all of one shape pass it on in both directions. A variable's
    own `__shape__` takes part. Entries that stay unknown are absent from `shapes`, or have -1 in them.

    Raises ShapeError, naming the node, for shapes that contradict each other.
    """
    shapes: dict[Entry, Shape] = dict(graph.shapes)

    def learn(entry: Entry, shape: Shape, node: Node) -> bool:
        old = shapes.get(entry)
        if old == shape:
            return False
        if old is not None:
            merged = _unify(old, shape)
            if merged is None:
                what = node.op.op_name if node.op else "variable"
                raise ShapeError(
                    f"{what} {node.name!r} needs {_entry_name(entry)!r} to be {shape}, but it is {old}."
                )
            if merged == old:
                return False
            shape = merged
        require_possible(shape, _entry_name(entry))
        shapes[entry] = shape
        return True

    for node in graph.variables:
        own = node.annotations.get("__shape__")
        if own is not None:
            try:
                shape = from_user(_tuple(own, int))
            except ValueError as error:
                raise ShapeError(f"variable {node.name!r}: its '__shape__' {error}") from None
            learn(Entry(node), shape, node)
        if node.name in known:
            learn(Entry(node), tuple(known[node.name]), node)

    def visit(node: Node) -> bool:
        if node.forward is not None:
            return _visit_gradient(node, shapes)
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
                        merged = s if found is None else _unify(found, s)
                        if merged is None:
                            raise ShapeError(
                                f"all arrays must have one shape, got {found} and {s} ({_entry_name(e)!r})."
                            )
                        found = merged
                if found is None:
                    return False
                if known_shape(found) and node.op.infer_shape is not Op.infer_shape:
                    node.op.infer_shape(node.attrs, *(found for _ in ins))  # it may refuse the shape
                changed = False
                for e in entries:
                    changed |= learn(e, found, node)
                return changed
            inferred = node.op.inferred_names(node.attrs)
            if any(not known_shape(s) for n, s in zip(names, ins) if n not in inferred):
                outs = [shapes.get(Entry(node, i)) for i in range(node.num_outputs)]
                changed = False
                for e, s in zip(node.inputs, node.op.infer_inputs(node.attrs, ins, outs)):
                    changed |= s is not None and learn(e, tuple(s), node)
                return changed
            given = [s if known_shape(s) else None for s in ins]
            in_shapes, out_shapes = node.op.infer_shape(node.attrs, *given)
        except (ShapeError, OpAttributeError) as error:
            text = str(error)
            if not text.startswith(node.op.op_name):
                text = f"{node.op.op_name} {node.name!r}: {text}"
            raise type(error)(text) from None
        changed = False
        for e, s in zip(entries, (*in_shapes, *out_shapes)):
            if s is not None:
                changed |= learn(e, tuple(s), node)
        return changed

    _sweep(graph, visit)
    return replace(graph, shapes=shapes)


def infer_types(graph: Graph, known: Mapping[str, Any], default: Any = None) -> Graph:
    """Return `graph` with `dtypes` filled as far as they follow from `known` (variable names to dtypes).

    With `default`, variables that stay unknown get that dtype. Raises DTypeError, naming the node.
    """
    dtypes: dict[Entry, np.dtype[Any]] = dict(graph.dtypes)

    def learn(entry: Entry, dtype: np.dtype[Any] | None, node: Node) -> bool:
        if dtype is None:
            return False
        if entry in dtypes:
            if dtypes[entry] == dtype:  # never compare with None: numpy takes that for float64
                return False
            what = node.op.op_name if node.op else "variable"
            raise DTypeError(
                f"{what} {node.name!r} needs {_entry_name(entry)!r} to be {dtype}, but it is {dtypes[entry]}."
            )
        dtypes[entry] = dtype
        return True

    for node in graph.variables:
        own = node.annotations.get("__dtype__")
        if node.name in known:
            learn(Entry(node), as_dtype(known[node.name]), node)
        elif own is not None:
            learn(Entry(node), dtype_from_text(own), node)

    def visit(node: Node) -> bool:
        if node.forward is not None:
            of = _forward_inputs(node)
            changed = False
            for i, name in enumerate(node.output_names):
                changed |= learn(Entry(node, i), dtypes.get(of[name.removeprefix("d_")]), node)
            return changed
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
        changed = False
        for e, d in zip(node.inputs, ins):
            changed |= learn(e, d, node)
        for i, d in enumerate(outs):
            changed |= learn(Entry(node, i), d, node)
        return changed

    _sweep(graph, visit)
    if default is not None:
        # One variable at a time would be quadratic: all data-like ones at once, then what follows.
        unknown = [n for n in graph.variables if Entry(n) not in dtypes]
        for node in unknown:
            dtypes.setdefault(Entry(node), as_dtype(default))
        _sweep(graph, visit)
    return replace(graph, dtypes=dtypes)


def dtype_from_text(text: str) -> np.dtype[Any]:
    """A variable's `__dtype__`: MXNet writes its number, a person its name."""
    from ..core.dtype import FLAGS

    if text.strip().lstrip("-").isdigit():
        if int(text) not in FLAGS:
            raise DTypeError(f"There is no dtype number {text}; known are {sorted(FLAGS)}.")
        return FLAGS[int(text)]
    return as_dtype(text)


def _sweep(graph: Graph, visit: Callable[[Node], bool]) -> None:
    """Visit operators forwards and backwards until a whole round changes nothing."""
    nodes = [n for n in graph.nodes if n.op is not None]
    for node in nodes:
        visit(node)
    while True:
        changed = False
        for node in reversed(nodes):
            changed |= visit(node)
        if not changed:
            return
        changed = False
        for node in nodes:
            changed |= visit(node)
        if not changed:
            return


def _is_of_one_type(op: type[Op]) -> bool:
    """Whether the type of the output is that of every input, so that one tells the others."""
    return op.same_shape or op.infer_type.__func__ is Op.infer_type.__func__  # type: ignore[attr-defined]


def _visit_gradient(node: Node, shapes: dict[Entry, Shape]) -> bool:
    """A gradient is as large as the input it belongs to."""
    of = _forward_inputs(node)
    changed = False
    for i, name in enumerate(node.output_names):
        shape = shapes.get(of[name.removeprefix("d_")])
        if shape is not None and shapes.get(Entry(node, i)) != shape:
            shapes[Entry(node, i)] = shape
            changed = True
    return changed


def _forward_inputs(node: Node) -> dict[str, Entry]:
    assert node.forward is not None
    return dict(zip(node.forward.input_names, node.forward.inputs))


def _unify(a: Shape, b: Shape) -> Shape | None:
    """One shape that agrees with both, UNKNOWN standing for anything; None if there is none."""
    if len(a) != len(b) or any(x != y and UNKNOWN not in (x, y) for x, y in zip(a, b)):
        return None
    return tuple(y if x == UNKNOWN else x for x, y in zip(a, b))


def _entry_name(entry: Entry) -> str:
    node = entry.node
    if node.op is None or node.num_visible_outputs == 1:
        return node.name
    return f"{node.name}[{entry.index}]"
