"""A graph whose nodes a pass has replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...graph import Entry, Graph, Node, Shape


def rewritten(
    graph: Graph,
    order: Sequence[Node],
    moved: Mapping[Entry, Entry],
    node_of: Mapping[Node, Node],
    shapes: dict[Entry, Shape],
    dtypes: dict[Entry, Any],
) -> Graph:
    """`graph` with the nodes of `order`: `moved` says what its entries have become, `node_of` its nodes."""
    return replace(
        graph,
        outputs=tuple(moved.get(e, e) for e in graph.outputs),
        effects=tuple(node_of.get(n, n) for n in graph.effects),
        order=tuple(order),
        shapes=shapes,
        dtypes=dtypes,
    )
