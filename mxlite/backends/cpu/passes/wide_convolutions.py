"""Convolutions that read float32 weights in mixed precision, where there are kernels for that."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ....graph import Entry, Graph
from ... import passes
from ...base import Request, Row
from ..kernels import conv, conv_normed


def wide_convolutions(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.wide_convolutions`."""
    return passes.wide_convolutions(graph, kept, num_forward, cache(_scratch))


def _scratch(r: Request) -> int | None:
    rows: dict[Any, list[Row]] = {**conv.ROWS, **conv_normed.ROWS}
    for row in rows[r.op]:
        if (found := row(r)) is not None:
            return found.workspace
    return None
