"""Channels last, where oneDNN has convolutions for that: its fastest ones."""

from __future__ import annotations

from ....graph import Graph
from ....ops.nn.conv_channels_last import _convolution_channels_last, _convolution_epilogue
from ....ops.nn.deconv_channels_last import _deconvolution_channels_last
from ... import passes
from ...base import Request, Row
from ..kernels import conv, deconv


def channels_last(graph: Graph, train: bool) -> Graph:
    """See `passes.channels_last`."""
    return passes.channels_last(graph, train, has_convolution)


def has_convolution(r: Request) -> bool:
    """Whether there is a kernel for a convolution with its channels last, or for its gradient."""
    if r.op in (_convolution_channels_last, _convolution_epilogue):
        row: Row = conv.forward
    elif r.op is _convolution_channels_last.grad_op:
        row = conv.backward
    else:
        row = deconv.forward if r.op is _deconvolution_channels_last else deconv.backward
    return row(r) is not None
