"""What the GPU backend makes of a graph before it chooses kernels.

The passes are those of every backend; which of them change anything is decided by the rows of the table: an
operator gets another form only where there is a kernel for that form, backwards too in a program that trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from ...graph import Graph, Node, Op
from ...graph.opdef import DType
from ...ops.nn.conv import Convolution
from ...ops.nn.conv_channels_last import _convolution_channels_last
from ...ops.nn.deconv import Deconvolution
from ...ops.nn.deconv_channels_last import _deconvolution_channels_last
from ...ops.nn.dense import FullyConnected
from ...ops.norm.norm_act import _norm_act, NormActAttrs
from ...ops.norm.norm_again import _norm_again
from .. import passes
from ..base import Request, Row
from ..elementwise import chains as fusing
from ..rewrite import ForwardPass, StepPass
from .group_casts import group_casts
from .group_updates import group_updates
from .kernels.elementwise import KNOWN
from .rates import H200, precision_of

APART: tuple[type[Op], ...] = (
    Convolution,
    _convolution_channels_last,
    Deconvolution,
    _deconvolution_channels_last,
    FullyConnected,
)
"""Operators whose kernels compute the gradient in data apart from that in the weight."""

SHARE = 0.18
"""Of a step's time by `rates`, what it may take to make arrays again in a step without a budget, reckoned
from above. ResNets in bfloat16 hold 0.62 to 0.70 of what they would, for 7 to 9 % more planned time."""


@dataclass(frozen=True)
class Passes:
    """The passes of a Backend with the table `kernels`."""

    kernels: Mapping[type[Op], Sequence[Row]]

    def has_kernel(self, r: Request) -> bool:
        """Whether a row answers."""
        return any(row(r) is not None for row in self.kernels.get(r.op, ()))

    def simplify(self) -> tuple[ForwardPass, ...]:
        """Channels last, norms folded into convolutions at inference, norms with what follows them, maxima
        before activations, parameters of recurrent layers as they are."""
        return (
            partial(passes.channels_last, has_kernel=self.has_kernel),
            partial(passes.fold, has_kernel=self.has_kernel),
            partial(passes.norm_act, has_kernel=self.has_kernel),
            passes.pool_first,
            passes.wide_parameters,
        )

    def combine(self) -> tuple[StepPass, ...]:
        """The gradients of convolutions and products apart, updates that read gradients of 16 bits, products
        with the activations beside them, gradients added where they are made, norms with the sums behind
        them, chains of elementwise operators as one, casts and updates of small parameters together."""
        apart = frozenset(op for op in APART if op.grad_op in self.kernels)
        return (
            partial(passes.split_gradients, split=apart),
            partial(passes.narrow_gradients, takes=self._takes),
            partial(passes.dense_epilogue, has_kernel=self.has_kernel),
            partial(passes.added_gradients, makers=apart, has_kernel=self.has_kernel),
            partial(passes.norm_sums, has_kernel=self.has_kernel),
            partial(fusing.chains, known=KNOWN),
            group_casts,
            group_updates,
        )

    def lighten(self) -> tuple[StepPass, ...]:
        """Results of norms and of other cheap operators made again."""
        return (partial(passes.lightened, has_kernel=self._makes_again, prices=_prices()),)

    def divide(self) -> tuple[StepPass, ...]:
        """Norms in two."""
        return (partial(passes.divided, has_kernel=self._makes_again),)

    def _makes_again(self, r: Request) -> bool:
        """Whether a kernel has the bits of the first time: cuDNN's norms round in a way of their own."""
        if r.op is _norm_again and r.attrs.plus != "behind" and self._is_by_cudnn(_first_time(r)):
            return False
        return self.has_kernel(r)

    def _is_by_cudnn(self, r: Request) -> bool:
        found = (row(r) for row in self.kernels.get(r.op, ()))
        kernel = next((k for k in found if k is not None), None)
        return kernel is not None and kernel.name.startswith("cudnn")

    def _takes(self, graph: Graph, update: Node, dtype: DType) -> bool:
        """Whether a kernel for `update` reads a gradient of that type."""
        assert update.op is not None
        shapes = tuple(graph.shapes[e] for e in update.inputs)
        weight, _, *others = (graph.dtypes[e] for e in update.inputs)
        kinds = (weight, dtype, *others)
        return self.has_kernel(Request(update.op, update.attrs, shapes, (), weight, kinds))


def _prices() -> passes.Prices:
    """Of an H200, in seconds."""

    def step(flops: float, nbytes: int, dtype: Any) -> float:
        return SHARE * H200.seconds(flops, nbytes, precision_of(dtype))

    def again(cost: float, nodes: int) -> float:
        return H200.seconds(0, cost, launches=nodes)

    return passes.Prices(step, again)


def _first_time(r: Request) -> Request:
    """The question that was asked for the norm whose result is to be made again."""
    attrs = asdict(r.attrs)
    add = bool(attrs.pop("plus"))
    inputs, channels = r.inputs[:6], r.inputs[1]
    outputs = (r.inputs[0], channels, channels)
    return replace(r, op=_norm_act, attrs=NormActAttrs(**attrs, add=add), inputs=inputs, outputs=outputs)
