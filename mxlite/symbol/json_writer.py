"""From a graph to the text of MXNet's Symbol JSON, byte for byte as MXNet 1.9.1 writes it.

{ "nodes": [...], "arg_nodes": [...], "node_row_ptr": [...], "heads": [...], "attrs": {...} }

Two spaces of indent; items end in `, ` and a newline, so lines end in a space; arrays of up to ten items and
objects of one stay on one line; no newline at the end. Characters other than `"` `\\` and
newline, tab, return are written as they are, because MXNet's reader knows no `\\u`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.compat.npshape import is_np_shape
from ..core.errors import MXLiteError
from ..graph import Graph, Node
from ..ops import TABLE
from ..ops.control.custom import Custom

VERSION = 10901
"""The version written: 1.9.1, as major * 10000 + minor * 100 + patch."""

_LONGEST_LINE = 10  # items of an array that stays on one line
_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"})

# Outputs of MXNet's own implementation, hidden ones included, where their number differs from ours. Only
# `node_row_ptr` shows them, and no reader needs it; written so that equal graphs give equal files.
_OUTPUTS_IN_MXNET: dict[str, Callable[[Any], int]] = {
    "BatchNorm": lambda a: 3,
    "Dropout": lambda a: 2,
    **dict.fromkeys(("_foreach", "_while_loop", "_cond"), lambda a: a.num_outputs),
    "LRN": lambda a: 2,
    "LayerNorm": lambda a: 3,
    "RNN": lambda a: 1 + a.state_outputs * (1 + (a.mode == "lstm")),
    "Pooling": lambda a: 2 if a.pool_type == "max" and not a.global_pool else 1,
}


def dumps(graph: Graph) -> str:
    """The text. O(nodes). Raises MXLiteError for backward nodes, which have no form in MXNet's files."""
    about = [f'"mxnet_version": ["int", {VERSION}]']
    if is_np_shape():  # tells a reader that 0 in a shape is a length
        about = ['"is_np_shape": ["int", 1]', *about]
    return _graph(graph, 0, ['"attrs": {' + (about[0] if len(about) == 1 else _lines(about, 2)) + "}"])


def _graph(graph: Graph, indent: int, more: Sequence[str] = ()) -> str:
    """A graph as an object; `indent` is that of its opening line."""
    index = {node: i for i, node in enumerate(graph.nodes)}
    writes: dict[Node, int] = {}  # how often an auxiliary state has been written so far
    nodes: list[str] = []
    row_ptr = [0]
    for node in index:
        nodes.append(_node(node, index, writes, indent + 4))
        row_ptr.append(row_ptr[-1] + _count(node))
    heads = [f"[{index[e.node]}, {e.index}, 0]" for e in graph.outputs]
    variables = [str(i) for n, i in index.items() if n.op is None]
    top = [
        '"nodes": [' + _lines(nodes, indent + 2) + "]",
        '"arg_nodes": ' + _array(variables, indent + 2),
        '"node_row_ptr": ' + _array([str(i) for i in row_ptr], indent + 2),
        '"heads": ' + _array(heads, indent + 2),
        *more,
    ]
    return "{" + _lines(top, indent) + "}"


def _node(node: Node, index: dict[Node, int], writes: dict[Node, int], indent: int) -> str:
    op = "null"
    if node.op is not None:
        op = node.op.op_name
        known = TABLE.get(op) is node.op or issubclass(node.op, Custom)
        if node.forward is not None or not known:
            raise MXLiteError(
                f"{op} {node.name!r} has no form in MXNet's Symbol files: save the symbol it was derived "
                f"from, and derive it again after loading."
            )
    inputs: list[str] = []
    changed = {*node.op.aux, *node.op.mutated(node.attrs)} if node.op is not None else ()
    for key, e in zip(node.input_names, node.inputs):
        version = 0
        if key in changed:
            version = writes[e.node] = writes.get(e.node, 0) + 1
        inputs.append(f"[{index[e.node]}, {e.index}, {version}]")
    fields = [f'"op": {_string(op)}', f'"name": {_string(node.name)}']
    attrs = {**node.given, **node.annotations}
    if attrs:
        pairs = [f"{_string(k)}: {_string(attrs[k])}" for k in sorted(attrs)]
        one = len(pairs) == 1
        fields.append('"attrs": {' + (pairs[0] if one else _lines(pairs, indent + 2)) + "}")
    fields.append('"inputs": ' + _array(inputs, indent + 2))
    if node.op is not None and node.op.subgraphs:
        subgraphs = [_graph(getattr(node.attrs, f).graph, indent + 4) for f in node.op.subgraphs]
        fields.append('"subgraphs": [' + _lines(subgraphs, indent + 2) + "]")
    return "{" + _lines(fields, indent) + "}"


def _count(node: Node) -> int:
    known = _OUTPUTS_IN_MXNET.get(node.op.op_name) if node.op is not None else None
    return known(node.attrs) if known else node.num_outputs


def _array(items: Sequence[str], indent: int) -> str:
    if len(items) <= _LONGEST_LINE:
        return "[" + ", ".join(items) + "]"
    return "[" + _lines(items, indent) + "]"


def _lines(items: Sequence[str], indent: int) -> str:
    deeper = "\n" + " " * (indent + 2)
    return deeper + f", {deeper}".join(items) + "\n" + " " * indent


def _string(text: str) -> str:
    return '"' + text.translate(_ESCAPES) + '"'
