"""Subgraph: a graph as a parameter of an operator, such as the body of a loop.

Its text is one line of MXNet's Symbol JSON (the fields of an element of `subgraphs` in a file). Subgraphs are
compared by their text, so loops with equal bodies share plans.

    {"nodes": [{"op": "null", "name": "x", "inputs": []}, ...], "arg_nodes": [0], "heads": [[1, 0, 0]]}
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from ...core.cached import cached_property
from ...core.errors import FormatError, OpAttributeError
from ...graph.attrs import parse_attrs
from ...graph.gradient import backward, needs_head_gradient
from ...graph.ir import Entry, Graph, Node, variable
from ...graph.opdef import Op

_DEEPEST = 32  # nesting of subgraphs


class Subgraph:
    """A graph that never changes. Its inputs are its variables, in depth-first order.

    Raises OpAttributeError for a graph that no loop can run: two inputs of one name, or an operator that
    keeps auxiliary states, changes its inputs or is a gradient.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = Graph(graph.outputs)
        self.inputs: tuple[Node, ...] = self.graph.variables
        names = Counter(n.name for n in self.inputs)
        if double := [n for n, count in names.items() if count > 1]:
            raise OpAttributeError(f"a subgraph has {names[double[0]]} inputs named {double[0]!r}.")
        for node in self.graph.nodes:
            if node.op is None:
                continue
            if node.forward is not None:
                raise OpAttributeError(
                    f"{node.name!r} is the gradient of {node.forward.name!r}; a subgraph takes forward "
                    f"operators, and its gradient follows from them."
                )
            if node.op.aux or node.op.mutated(node.attrs):
                what = "keeps auxiliary states" if node.op.aux else "changes its inputs"
                raise OpAttributeError(
                    f"{node.op.op_name} {node.name!r} {what}, which cannot be inside a loop or branch: "
                    f"an iteration may be run again. For a normalization take LayerNorm "
                    f"or GroupNorm."
                )

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Subgraph) and self.text == other.text)

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Subgraph of {len(self.graph.nodes)} nodes>"

    @cached_property
    def text(self) -> str:
        """The graph as one line of JSON."""
        return json.dumps(_data(self.graph))

    @classmethod
    def from_text(cls, text: Any) -> Subgraph:
        """The subgraph of a `text`. Raises ValueError, as every parser of a parameter does."""
        try:
            if not isinstance(text, str):
                raise FormatError(f"it is {type(text).__name__}")
            return cls.from_data(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"must be the JSON of a subgraph: {str(error)[:400]}") from None

    @classmethod
    def from_data(cls, data: Any, depth: int = 0) -> Subgraph:
        """The subgraph of the JSON objects of a file. The text is not trusted. Raises FormatError."""
        if depth > _DEEPEST:
            raise FormatError(f"Subgraphs are nested more than {_DEEPEST} deep.")
        nodes: list[Node] = []
        for i, raw in enumerate(_list(data, "nodes", "A subgraph")):
            nodes.append(_node(i, raw, nodes, depth))
        heads = [_entry(e, nodes, f"output {i}") for i, e in enumerate(_list(data, "heads", "A subgraph"))]
        try:
            return cls(Graph(tuple(heads)))
        except OpAttributeError as error:
            raise FormatError(str(error)) from None

    @cached_property
    def needed_by_gradient(self) -> frozenset[str]:
        """Names of the inputs whose values the gradient reads, whatever dtypes and requests are."""
        heads = {i: variable(f"head{i}") for i in range(len(self.graph.outputs))}
        graph, _ = gradient_graph(self.graph, [Entry(n) for n in self.inputs], heads)
        inside = set(self.inputs)
        return frozenset(n.name for n in graph.nodes if n in inside)


def gradient_graph(
    graph: Graph, wrt: list[Entry], heads: dict[int, Entry]
) -> tuple[Graph, list[Entry | None]]:
    """A graph of the gradients alone, with the forward nodes they need, and the gradient of each of
    `wrt`.

    heads: variables for the gradients of outputs, by index; those of losses are not used.
    """
    heads = {i: e for i, e in heads.items() if needs_head_gradient(graph.outputs[i].node)}
    trained, grads = backward(graph, wrt, heads)
    gradients = tuple(dict.fromkeys(g for g in grads if g is not None))
    assert trained.order is not None
    wanted = set(Graph(gradients).nodes)
    order = tuple(n for n in trained.order if n in wanted)
    return Graph(gradients, order=order, shapes=dict(graph.shapes), dtypes=dict(graph.dtypes)), grads


def _data(graph: Graph) -> dict[str, Any]:
    index = {n: i for i, n in enumerate(graph.nodes)}
    nodes = []
    for node in index:
        raw: dict[str, Any] = {"op": node.op.op_name if node.op else "null", "name": node.name}
        if attrs := {**node.given, **node.annotations}:
            raw["attrs"] = dict(sorted(attrs.items()))
        raw["inputs"] = [[index[e.node], e.index, 0] for e in node.inputs]
        if node.op is not None and node.op.subgraphs:
            raw["subgraphs"] = [_data(getattr(node.attrs, f).graph) for f in node.op.subgraphs]
        nodes.append(raw)
    return {
        "nodes": nodes,
        "arg_nodes": [i for n, i in index.items() if n.op is None],
        "heads": [[index[e.node], e.index, 0] for e in graph.outputs],
    }


def _node(i: int, raw: Any, before: list[Node], depth: int) -> Node:
    from .. import find_op  # the table imports all modules of this package, including this one

    if not isinstance(raw, dict) or not all(isinstance(raw.get(k), str) for k in ("op", "name")):
        raise FormatError(f"Node {i} of a subgraph must be an object with 'op' and 'name'.")
    name, who = raw["name"], f"Node {i}, {raw['name']!r:.60}, of a subgraph"
    attrs = raw.get("attrs", {})
    if not isinstance(attrs, dict) or not all(isinstance(v, str) for v in attrs.values()):
        raise FormatError(f"{who} must have text as 'attrs'.")
    inputs = [_entry(e, before, who) for e in _list(raw, "inputs", who)]
    if raw["op"] == "null":
        if inputs:
            raise FormatError(f"{who} is a variable and cannot have inputs.")
        return Node(None, None, (), name, annotations=dict(attrs))
    try:
        op = find_op(raw["op"])
        given = {k: v for k, v in attrs.items() if not (k.startswith("__") and k.endswith("__"))}
        if op.variadic:
            given.setdefault("num_args", str(len(inputs) + len(op.subgraphs)))
        parsed = parse_attrs(op, {**given, **subgraphs_of(op, raw, who, depth)})
    except FormatError:
        raise
    except (ValueError, TypeError) as error:
        raise FormatError(f"{who}: {error}") from None
    names = op.input_names(parsed)
    if len(inputs) != len(names):
        raise FormatError(f"{who} takes {len(names)} inputs, {', '.join(names[:12])}; it has {len(inputs)}.")
    about = {k: v for k, v in attrs.items() if k not in given}
    return Node(op, parsed, tuple(inputs), name, given, about)


def subgraphs_of(op: type[Op], raw: dict[str, Any], who: str, depth: int = -1) -> dict[str, Subgraph]:
    """The parameters that are subgraphs, from the `subgraphs` of a file's node."""
    listed = _list({"subgraphs": [], **raw}, "subgraphs", who)
    if len(listed) != len(op.subgraphs):
        raise FormatError(f"{who} must have {len(op.subgraphs)} subgraphs; it has {len(listed)}.")
    return {f: Subgraph.from_data(data, depth + 1) for f, data in zip(op.subgraphs, listed)}


def _entry(raw: Any, before: list[Node], who: str) -> Entry:
    if not (isinstance(raw, list) and len(raw) in (2, 3) and all(type(x) is int for x in raw)):
        raise FormatError(f"{who} must be read as [node, output, version].")
    number, index = raw[:2]
    if not 0 <= number < len(before) or not 0 <= index < before[number].num_visible_outputs:
        raise FormatError(f"{who} reads output {index} of node {number}, which is not there.")
    return Entry(before[number], index)


def _list(raw: Any, field: str, who: str) -> list[Any]:
    value = raw.get(field) if isinstance(raw, dict) else None
    if not isinstance(value, list):
        raise FormatError(f"{who} must have a list {field!r}.")
    return value
