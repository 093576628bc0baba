"""Transposed convolution of channels-last arrays."""

from __future__ import annotations

from ...core.record import record
from ..layout import FixedLayout
from .conv_channels_last import LinearChannelsLast
from .deconv import DeconvAttrs, Deconvolution


@record
class ChannelsLastDeconvAttrs(FixedLayout, DeconvAttrs):
    """Parameters of Deconvolution, without a layout."""


class DeconvolutionChannelsLast(LinearChannelsLast):
    """Transposed convolution between channels-last arrays; see Deconvolution.

    data: (N, *S, C);  weight: (C, F/G, *K);  bias: (F,)  ->  out: (N, *OS, F).
    """

    op_name = "_deconvolution_channels_last"
    Attrs = ChannelsLastDeconvAttrs
    of = Deconvolution
