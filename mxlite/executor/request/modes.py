"""Test if a forward pass for training gives the same as one for inference."""

from __future__ import annotations

from ...graph import Graph

_UNLIKE = frozenset(("train", "rng", "state"))


def is_alike_in_training(graph: Graph) -> bool:
    """True if no node depends on the mode, draws random numbers, or changes a state. O(nodes)."""
    return not any(
        n.op.random or n.op.subgraphs or n.op.signature.services & _UNLIKE
        for n in graph.nodes
        if n.op is not None
    ) and not any(graph.auxiliary)
