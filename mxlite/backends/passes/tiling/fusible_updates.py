"""Updates that may run where their gradient is computed, a tile of weight, gradient and states at a time."""

from __future__ import annotations

from typing import Any

from ....graph import Entry, Graph, Node
from ....ops import ALL
from ...fused.tile_builder import add_update
from ...rewrite import Step
from .region import Part, Region, ROWS, WHOLE


def fusible_updates(step: Step) -> list[Node]:
    """Updates that change each element by itself, with a gradient that nobody else reads, of a weight that
    nobody reads after the gradient is computed. In the order of `effects`.
    """
    graph = step.graph
    place, last = {n: i for i, n in enumerate(graph.nodes)}, last_readers(graph)
    found = []
    for update in graph.effects:
        if not is_elementwise(update.op):
            continue
        weight, gradient = update.inputs[:2]
        if step.readers.only(gradient) is not update:
            continue
        reader = last.get(weight)
        if reader is None or place[reader] <= place[gradient.node]:
            found.append(update)
    return found


def last_readers(graph: Graph) -> dict[Entry, Node]:
    """The last node that reads an entry, or a copy of it. No update reads what it changes."""
    updates = set(graph.effects)
    origin: dict[Entry, Entry] = {}  # of a 16-bit copy of a weight, which may be recomputed
    last: dict[Entry, Node] = {}
    for node in graph.nodes:
        own = changed(node) if node in updates else frozenset()
        last.update((origin.get(e, e), node) for e in node.inputs if e not in own)
        if len(node.inputs) == 1:
            origin.update((Entry(node, i), node.inputs[0]) for i in range(node.num_outputs))
    return last


def changed(update: Node) -> frozenset[Entry]:
    """The entries that an update changes: a weight and its states."""
    assert update.op is not None
    names = update.op.mutated(update.attrs)
    return frozenset(e for name, e in zip(update.input_names, update.inputs) if name in names)


def is_elementwise(op: Any) -> bool:
    """True if `op` is an optimizer's step of a program that changes each element by itself."""
    return getattr(op, "form", "") == "fused" and "whole" not in vars(op.step_of)


UPDATES = tuple(filter(is_elementwise, ALL))
"""The operators of such updates: anchors of passes that do nothing without an optimizer in the step."""


def fuse_update(region: Region, update: Node, gradient: Part) -> None:
    """Add an update to a region whose loop runs over the rows of its weight."""
    assert update.op is not None
    weight, _, *states, hyper = update.inputs
    reads = [*(region.input(e, ROWS) for e in (weight, *states)), region.input(hyper, WHOLE)]
    add_update(region, update.op, update.attrs, reads, gradient)
