"""Dense layers that read a float32 batch, where there are products of 16 bits."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph import Entry, Graph
from ... import passes
from ...base import Request
from ..compiled import usable
from ..kernels.wide_dense import ROWS


def wide_dense(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.wide_dense`; the graph itself where there is no code generator."""
    if not usable():
        return graph, {}, num_forward
    return passes.wide_dense(graph, kept, num_forward, _has_kernel)


def _has_kernel(r: Request) -> bool:
    return any(row(r) is not None for row in ROWS[r.op])
