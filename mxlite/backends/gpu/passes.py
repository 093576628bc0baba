"""What the GPU backend makes of a graph before it chooses kernels.

The passes are those of every backend; which of them change anything is decided by the rows of the table: an
operator gets another form only where there is a kernel for that form, backwards too in a program that trains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from ...graph import Entry, Graph, Node, Op
from ...graph.opdef import DType
from ...ops.conv import Convolution
from ...ops.conv_channels_last import _convolution_channels_last
from ...ops.deconv import Deconvolution
from ...ops.deconv_channels_last import _deconvolution_channels_last
from ...ops.dense import FullyConnected
from ...ops.norm_act import _norm_act, NormActAttrs
from ...ops.norm_again import _norm_again
from .. import passes
from ..base import Request, Row
from ..elementwise import chains as fusing
from .group_casts import group_casts
from .group_updates import group_updates
from .kernels.elementwise import KNOWN
from .rates import H200, precision_of

Combined = tuple[Graph, Mapping[Entry, Entry], int]

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
    """`simplify` and `combine` of a Backend with the table `kernels`."""

    kernels: Mapping[type[Op], Sequence[Row]]

    def has_kernel(self, r: Request) -> bool:
        """Whether a row answers."""
        return any(row(r) is not None for row in self.kernels.get(r.op, ()))

    def simplify(self, graph: Graph, train: bool) -> Graph:
        """Channels last, norms folded into convolutions at inference, norms with what follows them, maxima
        before activations, parameters of recurrent layers as they are."""
        work: Callable[[Graph, bool, Any], Graph]
        for work in (passes.channels_last, passes.fold, passes.norm_act):
            graph = work(graph, train, self.has_kernel)
        return passes.wide_parameters(passes.pool_first(graph, train))

    def combine(self, graph: Graph, kept: frozenset[Entry], num_forward: int) -> Combined:
        """The gradients of convolutions and products apart, updates that read gradients of 16 bits, products
        with the activations beside them, gradients added where they are made, norms with the sums behind
        them, chains of elementwise operators as one, casts and updates of small parameters together."""
        apart = frozenset(op for op in APART if op.grad_op in self.kernels)
        graph, moved, num_forward = passes.split_gradients(graph, kept, num_forward, apart)
        both = {e: moved.get(e, e) for e in kept}
        takes = partial(self._takes, graph)
        graph = passes.narrow_gradients(graph, frozenset(both.values()), num_forward, takes)
        work: Callable[[Graph, frozenset[Entry], int], Combined]
        steps = (self._dense_epilogue, partial(self._added_gradients, apart), self._norm_sums, self._chains)
        for work in steps:
            graph, new, num_forward = work(graph, frozenset(both.values()), num_forward)
            both = {e: new.get(now, now) for e, now in both.items()}
        graph, new, num_forward = group_casts(graph, frozenset(both.values()), num_forward)
        both = {e: new.get(now, now) for e, now in both.items()}
        graph, _, num_forward = group_updates(graph, kept, num_forward)
        return graph, both, num_forward

    def lighten(self, graph: Graph, kept: frozenset[Entry], num_forward: int) -> Combined:
        """Results of norms and of other cheap operators made again; see `passes.lightened`."""
        return passes.lightened(graph, kept, num_forward, self._makes_again, _prices())

    def divide(self, graph: Graph, kept: frozenset[Entry], num_forward: int) -> Combined:
        """Norms in two; see `passes.divided`."""
        return passes.divided(graph, kept, num_forward, self._makes_again)

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

    def _dense_epilogue(self, graph: Graph, kept: frozenset[Entry], num_forward: int) -> Combined:
        return passes.dense_epilogue(graph, kept, num_forward, self.has_kernel)

    def _added_gradients(
        self, makers: Set[type[Op]], graph: Graph, kept: frozenset[Entry], num_forward: int
    ) -> Combined:
        return passes.added_gradients(graph, kept, num_forward, makers, self.has_kernel)

    def _norm_sums(self, graph: Graph, kept: frozenset[Entry], num_forward: int) -> Combined:
        return passes.norm_sums(graph, kept, num_forward, self.has_kernel)

    def _chains(self, graph: Graph, kept: frozenset[Entry], num_forward: int) -> Combined:
        return fusing.chains(graph, kept, num_forward, KNOWN)


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
