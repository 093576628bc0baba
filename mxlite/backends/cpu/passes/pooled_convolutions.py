"""Convolutions with the max pooling behind them, where there are kernels of both."""

from __future__ import annotations

from ....graph import Graph
from ... import passes
from ...base import Request
from ..kernels import conv_pooled


def pooled_convolutions(graph: Graph, train: bool) -> Graph:
    """See `passes.pooled_convolutions`."""
    return passes.pooled_convolutions(graph, train, _has_kernel)


def _has_kernel(r: Request) -> bool:
    return (conv_pooled.backward if r.op.forward_op else conv_pooled.forward)(r) is not None
