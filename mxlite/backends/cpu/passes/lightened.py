"""Steps without a budget hold less: norms and maxima are made again where that code can be generated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....graph import Entry, Graph
from ... import passes
from ...base import Request, Row
from ..kernels import compiled_norm, compiled_pool


def lightened(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.lightened`."""
    return passes.lightened(graph, kept, num_forward, _has_kernel)


def _has_kernel(r: Request) -> bool:
    rows: dict[Any, list[Row]] = {**compiled_norm.ROWS, **compiled_pool.ROWS}
    return any(row(r) is not None for row in rows[r.op])
