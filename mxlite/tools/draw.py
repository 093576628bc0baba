"""Drawings of networks: `print_summary`, a table of layers, and `plot_network`, a drawing by graphviz.

Weights and states are not layers. The shapes of the data decide which variables are weights; without
shapes, a variable is one if its operator infers its shape from the other inputs. A variable that a
loss compares with is a label.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ..core.compat.npshape import from_user, UNKNOWN
from ..core.errors import MXLiteError, OpAttributeError, ShapeError
from ..core.wanted import wanted
from ..graph import Entry, Graph, infer_shapes, infer_types, Node, Shape
from ..symbol import Symbol
from ..symbol.inference import checked_shape, known_by_name

_COLOURS = {
    "variable": "#8dd3c7",
    "weighted": "#fb8072",
    "Activation": "#ffffb3",
    "LeakyReLU": "#ffffb3",
    "BatchNorm": "#bebada",
    "Pooling": "#80b1d3",
    "Flatten": "#fdb462",
    "Reshape": "#fdb462",
    "Concat": "#fdb462",
    "loss": "#b3de69",
    "softmax": "#fccde5",
    "SoftmaxOutput": "#fccde5",
}
_OTHER_COLOUR = "#fccde5"
_MOST_TERMS = 3  # inputs of one layer that the summary names, one line each


def print_summary(
    symbol: Symbol,
    shape: Mapping[str, Shape] | None = None,
    line_length: int = 120,
    positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Print one line for each layer: name and type, output shape without the batch, parameters, inputs.

    shape: shapes of the data by name; without them most shapes are blank and the number of parameters is `?`.
    positions: where the four columns end, as parts of `line_length` or in characters.
    A weight that several layers share is counted once, in the first. Raises ShapeError for shapes that do
    not fit or do not suffice.
    """
    graph = _checked(symbol).graph
    shapes = _shapes(graph, shape)
    ends = [int(line_length * p) for p in positions] if positions[-1] <= 1 else [int(p) for p in positions]
    weights = _weights(graph, shape)
    hidden = weights | _labels(graph) | set(graph.auxiliary)
    drawn = [n for n in graph.nodes if n not in hidden]
    counted: set[Node] = set()
    total: int | None = 0
    lines = ["_" * line_length, _row(("Layer (type)", "Output Shape", "Param #", "Previous Layer"), ends)]
    lines.append("=" * line_length)
    for node in drawn:
        own = [e.node for e in dict.fromkeys(node.inputs) if e.node in weights and e.node not in counted]
        counted.update(own)
        count = _elements([shapes.get(Entry(n)) for n in own])
        total = None if total is None or count is None else total + count
        before = [n.name for n in dict.fromkeys(e.node for e in node.inputs) if n not in hidden]
        if len(before) > _MOST_TERMS:
            before = [*before[: _MOST_TERMS - 1], f"({len(before) - _MOST_TERMS + 1} more)"]
        if lines[-1][:1] != "=":
            lines.append("_" * line_length)
        first = before[0] if before else ""
        kind = node.op.op_name if node.op else "null"
        out = _without_batch(shapes.get(Entry(node)))
        lines.append(_row((f"{node.name}({kind})", out, "?" if count is None else count, first), ends))
        lines += [_row(("", "", "", name), ends) for name in before[1:]]
    known = "? (give the shapes of the data)" if total is None else total
    lines += ["=" * line_length, f"Total params: {known}", "_" * line_length]
    print("\n".join(lines))


def plot_network(
    symbol: Symbol,
    title: str = "plot",
    save_format: str = "pdf",
    shape: Mapping[str, Shape] | None = None,
    dtype: Mapping[str, Any] | None = None,
    node_attrs: Mapping[str, str] | None = None,
    hide_weights: bool = True,
) -> Any:
    """A `graphviz.Digraph` of the network: `.source` is its text; `.render()` draws it with `dot`.

    shape: shapes of the data by name; edges then show what flows along them.  dtype: types of the data by
    name, shown beside.  node_attrs: graphviz attributes of all nodes.  Raises MXLiteError if graphviz
    is not installed.
    """
    try:
        import graphviz
    except ImportError:
        raise MXLiteError("plot_network needs graphviz: pip install mxlite[viz]") from None
    graph = _checked(symbol).graph
    seen = Counter(node.name for node in graph.nodes)
    if repeated := sorted(name for name, times in seen.items() if times > 1):
        warnings.warn(
            "There are nodes of the same name in the network; the drawing tells them apart by a number: "
            f"{', '.join(repeated)}",
            stacklevel=2,
        )
    shapes = _shapes(graph, shape)
    dtypes = infer_types(graph, dtype).dtypes if dtype else {}
    hidden = _weights(graph, shape) | set(graph.auxiliary) if hide_weights else set()
    style = {"shape": "box", "fixedsize": "true", "width": "1.3", "height": "0.8034", "style": "filled"}
    style |= dict(node_attrs or {})
    drawing = graphviz.Digraph(name=title, format=save_format)
    ids = _ids(graph)
    for node in graph.nodes:
        if node in hidden:
            continue
        look = {**style, "fillcolor": _colour(node)}
        if node.op is None:
            look["shape"] = "oval"
        drawing.node(ids[node], label=graphviz.escape(_label(node)), **look)
        for e in node.inputs:
            if e.node in hidden:
                continue
            text = _without_batch(shapes.get(e))
            if e in dtypes:
                text = f"{text} {dtypes[e]}".strip()
            drawing.edge(ids[node], ids[e.node], label=text, dir="back", arrowtail="open")
    return drawing


def _checked(symbol: Symbol) -> Symbol:
    if not isinstance(symbol, Symbol):
        raise OpAttributeError(f"A Symbol is needed, got {type(symbol).__name__}.")
    return symbol


def _shapes(graph: Graph, shape: Mapping[str, Shape] | None) -> dict[Entry, Shape]:
    if shape is None:
        return infer_shapes(graph, {}).shapes
    wanted("shape", shape, "a dict of names and shapes", Mapping)
    known = known_by_name(graph, (), shape, "shape")
    inferred = infer_shapes(graph, {k: from_user(checked_shape(k, v)) for k, v in known.items()}).shapes
    open_ = [n.name for n in graph.variables if UNKNOWN in inferred.get(Entry(n), (UNKNOWN,))]
    if open_:
        raise ShapeError(f"The given shapes do not suffice: {', '.join(open_[:5])} stay unknown.")
    return inferred


def _weights(graph: Graph, data: Mapping[str, Shape] | None) -> set[Node]:
    """Trainable variables: all but data, labels and states; by their operators if data is None."""
    others = set(graph.auxiliary) | _labels(graph)
    if data is not None:
        return {n for n in graph.variables if n.name not in data and n not in others}
    return {
        e.node
        for n in graph.nodes
        if n.op is not None
        for key, e in zip(n.input_names, n.inputs)
        if key in n.op.inferred and e.node.op is None and e.node not in others
    }


def _labels(graph: Graph) -> set[Node]:
    """Variables that a loss compares with."""
    losses = [n for n in graph.nodes if n.op is not None and n.op.is_loss]
    return {e.node for n in losses for e in n.inputs[1:] if e.node.op is None}


def _elements(shapes: Sequence[Shape | None]) -> int | None:
    if any(s is None or UNKNOWN in s for s in shapes):
        return None
    return sum(prod(s) for s in shapes if s is not None)


def _without_batch(shape: Shape | None) -> str:
    return "x".join(str(d) if d >= 0 else "?" for d in shape[1:]) if shape else ""


def _row(fields: Sequence[object], ends: Sequence[int]) -> str:
    line = ""
    for field, end in zip(fields, ends):
        line = f"{line}{field}"[:end].ljust(end)
    return line


def _ids(graph: Graph) -> dict[Node, str]:
    """Names that graphviz can tell apart; it reads a colon as a port of a node."""
    ids: dict[Node, str] = {}
    taken: set[str] = set()
    for i, node in enumerate(graph.nodes):
        name = (
            node.name
            if node.name not in taken and ":" not in node.name
            else f"{node.name}#{i}".replace(":", ".")
        )
        while name in taken:
            name += "#"
        taken.add(name)
        ids[node] = name
    return ids


def _colour(node: Node) -> str:
    if node.op is None:
        return _COLOURS["variable"]
    if node.op.op_name in _COLOURS:
        return _COLOURS[node.op.op_name]
    if node.op.is_loss:
        return _COLOURS["loss"]
    return _COLOURS["weighted"] if "weight" in node.op.inputs else _OTHER_COLOUR


def _label(node: Node) -> str:
    """A layer's kind and the few parameters that distinguish it from others of the kind; else its name."""
    if node.op is None:
        return node.name
    a, kind = node.attrs, node.op.op_name
    if kind in ("Convolution", "Deconvolution"):
        return f"{kind}\n{_times(a.kernel)}/{_times(a.stride) or 1}, {a.num_filter}"
    if kind == "FullyConnected":
        return f"{kind}\n{a.num_hidden}"
    if kind in ("Activation", "LeakyReLU"):
        return f"{kind}\n{a.act_type}"
    if kind == "Pooling":
        size = "global" if a.global_pool else f"{_times(a.kernel)}/{_times(a.stride) or 1}"
        return f"{kind}\n{a.pool_type}, {size}"
    return node.name


def _times(dims: Sequence[int] | None) -> str:
    return "x".join(map(str, dims or ()))
