"""Classifiers and their cross-entropy in bands, of 16-bit numbers where code can be generated for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ....graph import Entry, Graph
from ... import passes
from ...passes.product_updates import LEAST_BYTES
from ..compiled import storable, usable


def loss_bands(
    graph: Graph, kept: frozenset[Entry], num_forward: int, least_bytes: int = LEAST_BYTES
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.loss_bands`; least_bytes: as of `passes.loss_updates`."""
    narrow = storable() if usable() else frozenset()
    updated = partial(passes.updated_losses, least_bytes=least_bytes)
    return passes.loss_bands(graph, kept, num_forward, narrow, updated)
