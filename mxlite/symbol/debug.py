"""A graph as text to read, for `Symbol.debug_str`."""

from __future__ import annotations

from ..graph import Graph, Node


def describe(graph: Graph) -> str:
    """Outputs, then every node with its inputs and attributes, in graph order; MXNet's form."""
    lines: list[str] = []
    if len(graph.outputs) != 1 or graph.outputs[0].node.op is not None:
        lines.append("Symbol Outputs:")
        lines += [f"\toutput[{i}]={e.node.name}({e.index})" for i, e in enumerate(graph.outputs)]
    writes: dict[Node, int] = {}
    for node in graph.nodes:
        if node.op is None:
            lines.append(f"Variable:{node.name}")
            continue
        lines += ["-" * 20, f"Op:{node.op.op_name}, Name={node.name}", "Inputs:"]
        changed = {*node.op.aux, *node.op.mutated(node.attrs)}
        for i, (key, e) in enumerate(zip(node.input_names, node.inputs)):
            version = ""
            if e.node.op is None:
                written = key in changed
                if written:
                    writes[e.node] = writes.get(e.node, 0) + 1
                version = f" version={writes[e.node] if written else 0}"
            lines.append(f"\targ[{i}]={e.node.name}({e.index}){version}")
        attrs = {**node.given, **node.annotations}
        if attrs:
            lines += ["Attrs:", *(f"\t{k}={attrs[k]}" for k in sorted(attrs))]
    return "\n".join([*lines, ""])
