"""At inference a convolution does what follows it, where oneDNN's kernels can."""

from __future__ import annotations

from ....graph import Graph
from ... import passes
from .channels_last import has_convolution


def fold(graph: Graph, train: bool) -> Graph:
    """See `passes.fold`."""
    return passes.fold(graph, train, has_convolution)
