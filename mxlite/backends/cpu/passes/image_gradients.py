"""First layers for images without their largest array, where there is code for what takes its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....graph import Entry, Graph
from ... import passes
from ...base import Request, Row
from ..kernels import compiled_image, compiled_norm, compiled_pool


def image_gradients(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.image_gradients`."""
    return passes.image_gradients(graph, kept, num_forward, _has_kernel)


def _has_kernel(r: Request) -> bool:
    rows: dict[Any, list[Row]] = {**compiled_norm.ROWS, **compiled_pool.ROWS, **compiled_image.ROWS}
    return any(row(r) is not None for row in rows[r.op])
