"""The passes of the CPU backend, and what they may ask of it.

The passes run in the order of the lists, unless their files say otherwise (`after=`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...graph import Op
from ...ops.linalg.linalg import batch_dot, dot
from ...ops.linalg.matrices import LinalgGemm2
from ...ops.nn.conv_channels_last import ConvolutionChannelsLast
from ...ops.nn.deconv_channels_last import DeconvolutionChannelsLast
from ...ops.nn.dense import FullyConnected
from ...ops.nn.pooled_convolution import PooledConvolution
from ..passes import named
from ..passes.target import Target
from ..rewrite import Pass, Pipeline
from .compiled import storable, usable
from .kernels import table
from .pack import pack
from .runtime.threads import num_threads

PASSES: tuple[Pass, ...] = (
    *named(
        "channels_last",
        "inline_loss_casts",
        "recurrent_forms",
        "chunked_cross_entropy",
        "split_gradients",
        "epilogue",
        "norm_act",
        "hoist_pooling",
        "pooled_convolutions",
        "stem_gradients",
        "norm_prologue",
        "activation_prologue",
        "inline_dense_casts",
        "inline_convolution_casts",
        "inline_gradient_casts",
        "gradient_updates",
        "norm_chains",
        "inline_remat",
        "sample_tiles",
        "accumulate_gradients",
        "chains",
        "cheap_remat",
        "reductions",
    ),
    pack,
)
LOW_MEMORY: tuple[Pass, ...] = named("remat_at_peak", "forget_gates", "sink_results")


@dataclass(frozen=True)
class CPUTarget(Target):
    """See Target."""

    def threads(self) -> int:
        return num_threads()

    def storable(self) -> frozenset[str]:
        return storable() if usable() else frozenset()


APART: tuple[type[Op], ...] = (
    ConvolutionChannelsLast,
    DeconvolutionChannelsLast,
    PooledConvolution,
    FullyConnected,
    batch_dot,
    dot,
    LinalgGemm2,
)
"""Operators whose kernels compute the gradient in one factor apart from that in the other."""

TARGET = CPUTarget(table(), frozenset(APART))


def optimize() -> Pipeline:
    """See Backend."""
    return Pipeline(PASSES, TARGET)


def low_memory() -> Pipeline:
    """See Backend."""
    return Pipeline(LOW_MEMORY, TARGET)
