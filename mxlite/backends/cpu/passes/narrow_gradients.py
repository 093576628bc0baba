"""Generated updates widen gradients of 16 bits themselves."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph import Entry, Graph, Node
from ....graph.opdef import DType
from ... import passes
from ..compiled import storable, usable
from ..kernels.compiled_update import ROWS


def narrow_gradients(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.narrow_gradients`; the graph itself where there is no code generator."""
    if not usable():
        return graph, {}, num_forward
    kinds = storable()

    def takes(graph: Graph, update: Node, dtype: DType) -> bool:
        return update.op in ROWS and dtype.name in kinds

    return passes.narrow_gradients(graph, kept, num_forward, takes)
