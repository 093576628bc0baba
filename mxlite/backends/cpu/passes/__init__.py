"""What the CPU backend makes of a graph before it chooses kernels.

`SIMPLIFY` are passes over a forward graph, `COMBINE` passes over a whole step; see `Backend`. They run in
this order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....graph import Entry, Graph
from ...passes import banded, loss_updates, narrow_data, pool_first, product_updates, remade
from .added_gradients import added_gradients
from .chains import chains
from .channels_last import channels_last
from .convolution_updates import convolution_updates
from .fold import fold
from .image_gradients import image_gradients
from .keep_gates import forget_gates as forget_gates, keep_gates
from .lighten import lighten as lighten
from .loaded_dense import loaded_dense
from .loss_bands import loss_bands
from .narrow_gradients import narrow_gradients
from .narrowed_dense import narrowed_dense
from .norm_act import norm_act
from .normed_loads import normed_loads
from .pack import pack as pack
from .pooled_convolutions import pooled_convolutions
from .rnn_updates import rnn_updates
from .split_gradients import split_gradients
from .wide_convolutions import wide_convolutions
from .wide_dense import wide_dense
from .wide_parameters import wide_parameters

SIMPLIFY: tuple[Callable[[Graph, bool], Graph], ...] = (
    channels_last,
    fold,
    norm_act,
    pool_first,
    pooled_convolutions,
    narrow_data,
    keep_gates,
    wide_parameters,
)
COMBINE: tuple[Callable[[Graph, frozenset[Entry], int], tuple[Graph, Mapping[Entry, Entry], int]], ...] = (
    loss_bands,
    loss_updates,
    split_gradients,
    image_gradients,
    normed_loads,
    wide_dense,
    wide_convolutions,
    narrow_gradients,
    loaded_dense,
    narrowed_dense,
    product_updates,
    convolution_updates,
    rnn_updates,
    banded,
    added_gradients,
    chains,
    remade,
)


def simplify(graph: Graph, train: bool) -> Graph:
    """`graph` through every pass of SIMPLIFY."""
    for work in SIMPLIFY:
        graph = work(graph, train)
    return graph


def combine(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """`graph` through every pass of COMBINE."""
    moved: dict[Entry, Entry] = {}
    for work in COMBINE:
        graph, new, num_forward = work(graph, frozenset(moved.get(e, e) for e in kept), num_forward)
        moved = {e: new.get(moved.get(e, e), moved.get(e, e)) for e in kept}
    return graph, moved, num_forward
