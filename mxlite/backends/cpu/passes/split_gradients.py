"""One node for each gradient of a convolution or matrix product that oneDNN computes."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph import Entry, Graph, Op
from ....ops.nn.conv_channels_last import _convolution_channels_last
from ....ops.nn.deconv_channels_last import _deconvolution_channels_last
from ....ops.nn.dense import FullyConnected
from ....ops.nn.pooled_convolution import _pooled_convolution
from ... import passes

_SPLIT: frozenset[type[Op]] = frozenset(
    (_convolution_channels_last, _deconvolution_channels_last, _pooled_convolution, FullyConnected)
)


def split_gradients(
    graph: Graph, kept: frozenset[Entry], num_forward: int
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """See `passes.split_gradients`."""
    return passes.split_gradients(graph, kept, num_forward, _SPLIT)
