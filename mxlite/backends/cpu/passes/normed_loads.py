"""Who reads the result of a norm makes it while it reads, where there are kernels for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....graph import Entry, Graph
from ... import passes
from ...base import Request, Row
from ..kernels import compiled_norm, conv_normed


def normed_loads(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.normed_loads`."""
    return passes.normed_loads(graph, kept, num_forward, _has_kernel)


def _has_kernel(r: Request) -> bool:
    rows: dict[Any, list[Row]] = {**compiled_norm.ROWS, **conv_normed.ROWS}
    return any(row(r) is not None for row in rows[r.op])
