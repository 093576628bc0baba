"""Norms in two within a budget, where that code can be generated."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph import Entry, Graph
from ... import passes
from ...base import Request
from ..kernels import compiled_norm


def divide(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.divided`."""
    return passes.divided(graph, kept, num_forward, _has_kernel)


def _has_kernel(r: Request) -> bool:
    return any(row(r) is not None for row in compiled_norm.ROWS[r.op])
