"""Classifiers and their cross-entropy in bands, of 16-bit numbers where code can be generated for them."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph import Entry, Graph
from ... import passes
from ..compiled import storable, usable


def loss_bands(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.loss_bands`."""
    return passes.loss_bands(graph, kept, num_forward, storable() if usable() else frozenset())
