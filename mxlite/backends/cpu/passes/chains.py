"""Fuse chains of elementwise operators, where code can be generated for them."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph import Entry, Graph
from ...elementwise import chains as fusing
from ..compiled import storable, usable


def chains(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `elementwise.chains`; the graph itself where there is no code generator."""
    if not usable():
        return graph, {}, num_forward
    return fusing.chains(graph, kept, num_forward, storable())
