"""Updates of weights of convolutions that make their gradient, where there are kernels of bands."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph import Entry, Graph
from ... import passes
from ...base import Request
from ...convolution_update import _convolution_update
from ..kernels import convolution_update


def convolution_updates(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.convolution_updates`."""
    return passes.convolution_updates(graph, kept, num_forward, _has_kernel)


def _has_kernel(r: Request) -> bool:
    return any(row(r) is not None for row in convolution_update.ROWS[_convolution_update])
