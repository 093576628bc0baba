"""The passes of the GPU backend, and what they may ask of it.

The rows of the table decide which of them change anything: an operator gets another form only if there is a
kernel for that form, and in training for its gradient. The passes run in the order of the lists, unless their
files say otherwise (`after=`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...graph import Op
from ...ops.nn.conv import Convolution
from ...ops.nn.conv_channels_last import ConvolutionChannelsLast
from ...ops.nn.deconv import Deconvolution
from ...ops.nn.deconv_channels_last import DeconvolutionChannelsLast
from ...ops.nn.dense import FullyConnected
from ...ops.norm.norm_act import NormAct
from ...ops.norm.norm_remat import NormRemat
from ..base import Request, Row
from ..passes import named
from ..passes.target import Prices, Target
from ..rewrite import Pass, Pipeline
from .compiler.source import NAMES
from .grouping.group_casts import group_casts
from .grouping.group_updates import group_updates
from .runtime.rates import H200, precision_of

PASSES: tuple[Pass, ...] = (
    *named(
        "channels_last",
        "recurrent_forms",
        "split_gradients",
        "inline_gradient_casts",
        "epilogue",
        "norm_act",
        "hoist_pooling",
        "accumulate_gradients",
        "norm_chains",
        "inline_remat",
        "chains",
    ),
    group_casts,
    group_updates,
)
LOW_MEMORY: tuple[Pass, ...] = named("remat_at_peak", "split_norm_statistics", "sink_results")

APART: tuple[type[Op], ...] = (
    Convolution,
    ConvolutionChannelsLast,
    Deconvolution,
    DeconvolutionChannelsLast,
    FullyConnected,
)
"""Operators whose kernels compute the gradient in data apart from that in the weight."""

SHARE = 0.18
"""Share of a step's time by `rates` that rematerialization without a budget may take, an upper estimate.
ResNets in bfloat16 hold 0.62 to 0.70 of what they would, for 7 to 9 % more planned time."""


@dataclass(frozen=True)
class GPUTarget(Target):
    """See Target."""

    @classmethod
    def of(cls, kernels: Mapping[type[Op], Sequence[Row]]) -> GPUTarget:
        """The target of a backend with this table."""
        return cls(kernels, frozenset(op for op in APART if op.grad_op in kernels))

    def has_kernel(self, request: Request) -> bool:
        """True if a row answers. A recomputed norm must also have the bits of the first time: it has not
        after a norm of cuDNN, which rounds in a way of its own."""
        if request.op is NormRemat and request.attrs.plus != "behind":
            first = self.kernel(_first_time(request))
            if first is not None and first.name.startswith("cudnn"):
                return False
        return super().has_kernel(request)

    def storable(self) -> frozenset[str]:
        return frozenset(NAMES)

    def prices(self) -> Prices:
        """Costs in seconds of an H200."""

        def step(flops: float, nbytes: int, dtype: Any) -> float:
            return SHARE * H200.seconds(flops, nbytes, precision_of(dtype))

        def remat(cost: float, nodes: int) -> float:
            return H200.seconds(0, cost, launches=nodes)

        return Prices(step, remat)


def optimize(target: Target) -> Pipeline:
    """See Backend."""
    return Pipeline(PASSES, target)


def low_memory(target: Target) -> Pipeline:
    """See Backend."""
    return Pipeline(LOW_MEMORY, target)


def _first_time(r: Request) -> Request:
    """The request that was made for the norm whose result is to be recomputed."""
    attrs = replace(r.attrs, plus="array" if r.attrs.plus else "")
    inputs, channels = r.inputs[:6], r.inputs[1]
    outputs = (r.inputs[0], channels, channels)
    return replace(r, op=NormAct, attrs=attrs, inputs=inputs, outputs=outputs)
