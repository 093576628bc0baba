"""Copies between devices in a user's graph, before any pass joins nodes or differentiates them."""

from __future__ import annotations

from dataclasses import replace

from ...graph import Entry, Graph, Rewriter
from ...ops import find_op
from .devices import Devices


def with_copies(graph: Graph, devices: Devices) -> Graph:
    """A forward graph in which every node reads what is on its own device. O(inputs).

    Each reader has a copy of its own, and so a gradient of its own: those are added up in the order in which
    one device adds them, and have its bits. `parts_of` lets readers on one device share what arrives there.
    """
    at, made, op = devices.of_nodes(graph), Rewriter(graph), find_op("_cross_device_copy")
    for node in made.walk():
        inputs: list[Entry] = []
        for e in node.inputs:
            here, there = at[node], at[e.node]
            if here != there:
                name = f"{e.node.name}_on_{devices.contexts[here]}"
                e = Entry(made.add(op, op.Attrs(there, here), made.all_of((e,)), name))
            inputs.append(made.of(e))
        if tuple(inputs) == node.inputs:
            made.keep(node)
        else:
            made.replace(node, replace(node, inputs=tuple(inputs)))
    return made.graph(ordered=False)
