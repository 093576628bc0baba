"""One call of an operator becomes one node: names, text and annotations settled, missing inputs created.

Everything here works on entries; `Symbol` is a handle on the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core.errors import DTypeError, MXLiteError, nearest, OpAttributeError, UnknownNameError
from ..graph import attr_fields, attr_text, Entry, Graph, Node, Op, parse_attrs
from .attribute import AttrScope, is_annotation, stored_key
from .naming import NameManager


def call(
    op: type[Op],
    hint: str,
    positional: Sequence[Entry | None],
    named: Mapping[str, Entry],
    parameters: Mapping[str, Any],
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
) -> Node:
    """The node of one call.

    `attr` (and the current AttrScope) may hold annotations and parameters; of two values for a
    parameter, the one in `parameters` counts. An input that is not given becomes a variable NODE_INPUT with
    a copy of the node's attributes. Raises OpAttributeError for parameters, UnknownNameError for
    inputs that the operator does not have, MXLiteError for too many or doubly given ones, and for an operator
    that has no output.
    """
    annotations: dict[str, str] = {}
    given: dict[str, str] = {}
    for key, value in (*AttrScope.current.get(attr).items(), *parameters.items()):
        if is_annotation(key):
            annotations[stored_key(key)] = str(value)
        else:
            try:
                given[key] = parameter_text(value)
            except DTypeError as error:  # a class that is no dtype
                who = f"{op.op_name} {name!r}" if name else op.op_name
                raise OpAttributeError(f"{who}: parameter {key!r}: {error}") from None
    if op.variadic:
        given.setdefault("num_args", str(len(positional) + len(named)))
    who = f"{op.op_name} {name!r}" if name else op.op_name
    attrs = typed_attrs(op, given, who)
    if not op.output_names(attrs):
        raise MXLiteError(
            f"{who} has no output, so that no symbol can be made of it; mx.nd.{op.op_name} runs it at once."
        )
    entries = _match(op, attrs, positional, named, who)
    name = NameManager.current.get(name, hint)
    inputs = tuple(
        e if e is not None else created_input(op, name, key, given, annotations) for key, e in entries.items()
    )
    return Node(op, attrs, inputs, name, given, annotations)


def typed_attrs(op: type[Op], given: Mapping[str, Any], who: str) -> Any:
    """`parse_attrs`, its errors naming `who`."""
    try:
        return parse_attrs(op, given)
    except OpAttributeError as error:
        raise OpAttributeError(str(error).replace(op.op_name, who, 1)) from None


def parameter_text(value: Any) -> str:
    """A parameter as it is written in a file; the operator gets this text read back."""
    if isinstance(value, np.ndarray):
        value = tuple(value.tolist()) if value.ndim else value[()]
    if isinstance(value, np.generic):
        return str(value)
    if isinstance(value, (tuple, list)) and any(isinstance(v, np.generic) for v in value):
        value = type(value)(v.item() if isinstance(v, np.generic) else v for v in value)
    return attr_text(value)


def created_input(
    op: type[Op], node: str, key: str, given: Mapping[str, str], annotations: Mapping[str, str]
) -> Entry:
    """The variable NODE_INPUT for an input that was not given."""
    about = {**given, **annotations}
    initial = op.initial.get(key)
    if initial is not None:
        about.setdefault("__init__", initial)
    return Entry(Node(None, None, (), f"{node}_{key}", annotations=about))


def _match(
    op: type[Op], attrs: Any, positional: Sequence[Entry | None], named: Mapping[str, Entry], who: str
) -> dict[str, Entry | None]:
    """Input name -> the entry given for it, in the operator's order."""
    names = op.input_names(attrs)
    if len(positional) > len(names):
        raise MXLiteError(f"{who} takes {len(names)} inputs, {_listed(names)}; {len(positional)} were given.")
    entries: dict[str, Entry | None] = dict.fromkeys(names)
    entries.update(zip(names, positional))
    for key, entry in named.items():
        if key not in entries:
            unused = key in op.inputs
            why = f" here: {attrs}." if unused else f".{nearest(key, (*names, *attr_fields(op)))}"
            raise UnknownNameError(f"{who} has the inputs {_listed(names)}, but no {key!r}{why}")
        if entries[key] is not None:
            raise MXLiteError(f"{who} got its input {key!r} twice: by position and by name.")
        entries[key] = entry
    return entries


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12])
    return f"({shown}{', ...' if len(names) > 12 else ''})"


def substitute(
    outputs: Sequence[Entry], replacement: Mapping[Node, Entry], renamed: Mapping[Node, str]
) -> tuple[Entry, ...]:
    """`outputs` with some variables replaced by entries, and some nodes renamed.

    Only nodes that read a replaced variable, directly or not, are created anew; all others are shared
    with the original. O(nodes).
    """
    fresh: dict[Node, Node] = {}

    def now(entry: Entry) -> Entry:
        if entry.node in replacement:
            return replacement[entry.node]
        node = fresh.get(entry.node)
        return entry if node is None else Entry(node, entry.index)

    for node in graph_of(outputs).nodes:
        if node in replacement:
            continue
        inputs = tuple(map(now, node.inputs))
        forward = node.forward and fresh.get(node.forward, node.forward)
        changed = forward is not node.forward or any(a is not b for a, b in zip(inputs, node.inputs))
        if changed or node in renamed:
            fresh[node] = _like(node, inputs, renamed.get(node, node.name), forward)
    return tuple(map(now, outputs))


def duplicate(graph: Graph) -> Graph:
    """A graph of new nodes, equal to `graph`: annotations of one are then independent of the other's."""
    fresh: dict[Node, Node] = {}
    for node in graph.nodes:  # forward nodes come before their backward nodes: see `graph_of`
        inputs = tuple(Entry(fresh[e.node], e.index) for e in node.inputs)
        forward = node.forward and fresh.get(node.forward, node.forward)
        fresh[node] = _like(node, inputs, node.name, forward)
    order = tuple(fresh[n] for n in graph.order) if graph.order is not None else None
    return Graph(tuple(Entry(fresh[e.node], e.index) for e in graph.outputs), order=order)


def _like(node: Node, inputs: tuple[Entry, ...], name: str, forward: Node | None) -> Node:
    return Node(node.op, node.attrs, inputs, name, node.given, dict(node.annotations), forward, node.absent)


def graph_of(outputs: Iterable[Entry]) -> Graph:
    """The graph held by `outputs`.

    Shapes of gradients follow from the inputs of the node they differentiate, so the forward nodes of all
    backward nodes belong to the graph and come before them, also if nothing reads them.
    """
    graph = Graph(tuple(outputs))
    forwards = {n.forward: None for n in graph.nodes if n.forward is not None}
    if not forwards:
        return graph
    return Graph(graph.outputs, order=Graph((*map(Entry, forwards), *graph.outputs)).nodes)
