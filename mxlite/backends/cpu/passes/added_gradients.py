"""Gradients added where dense layers make them, where there are products that add."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph import Entry, Graph
from ....ops.nn.dense import FullyConnected
from ... import passes
from ...base import Request
from ..kernels import dense

_MAKERS = frozenset((FullyConnected,))


def added_gradients(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.added_gradients`."""
    return passes.added_gradients(graph, kept, num_forward, _MAKERS, _has_kernel)


def _has_kernel(r: Request) -> bool:
    return dense.added(r) is not None
