"""Convolutions normalize while they read, where there are kernels for that."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph import Entry, Graph
from ....ops.normed_convolution import _norm_line, _normed_convolution, _normed_convolution_d_weight
from ... import passes
from ...base import Request, Row
from ..kernels import compiled_norm, conv_normed


def normed_loads(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.normed_loads`."""
    return passes.normed_loads(graph, kept, num_forward, _has_kernel)


def _has_kernel(r: Request) -> bool:
    row: Row = {
        _norm_line: compiled_norm.line,
        _normed_convolution: conv_normed.forward,
        _normed_convolution_d_weight: conv_normed.by_weight,
    }[r.op]
    return row(r) is not None
