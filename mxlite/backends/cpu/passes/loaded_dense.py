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
    """See `passes.loaded_dense` and `passes.loaded_updates`."""
    made, moved, num_forward = passes.loaded_dense(graph, kept, num_forward, _has_kernel)
    kept = frozenset(moved.get(e, e) for e in kept)
    made, more, num_forward = passes.loaded_updates(made, kept, num_forward, _has_kernel)
    return made, {**more, **{was: more.get(e, e) for was, e in moved.items()}}, num_forward


def _has_kernel(r: Request) -> bool:
    return any(row(r) is not None for row in dense_loaded.ROWS[r.op])
