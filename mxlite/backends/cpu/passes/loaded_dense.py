"""Dense layers apply a function while they read, where there are kernels for that."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph import Entry, Graph
from ... import passes
from ...base import Request
from ..kernels import dense_loaded


def loaded_dense(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.loaded_dense`."""
    return passes.loaded_dense(graph, kept, num_forward, _has_kernel)


def loaded_updates(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.loaded_updates`."""
    return passes.loaded_updates(graph, kept, num_forward, _has_kernel)


def _has_kernel(r: Request) -> bool:
    return any(row(r) is not None for row in dense_loaded.ROWS[r.op])
