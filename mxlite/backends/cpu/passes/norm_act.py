"""Batch normalization takes the sum and the rectifier behind it along, where that code can be generated:
not for a leaky one.

Without a compiler the graph stays as it is.
"""

from __future__ import annotations

from ....graph import Graph
from ... import passes
from ..kernels.compiled_norm import fits


def norm_act(graph: Graph, train: bool) -> Graph:
    """See `passes.norm_act`."""
    return passes.norm_act(graph, train, lambda r: fits(r.dtype) and not r.attrs.slope)
