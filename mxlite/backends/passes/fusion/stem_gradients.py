"""Gradients of the stem of an image network, convolution, norm and max pooling, from the pooled elements.

    x = convolution(data)                          x = convolution(data)
    y, mean, var = norm(x)                         mean, var = norm(x)
    z, index = pooling(y)                          chosen, index = pooling(x)
                                                   z = norm of chosen, by mean and var
                                                   sums, patches = sums over x and data
    d_y = from d_z, index                          d_weight, ... = from d_z, chosen, index, data and sums
    d_x, ... = from d_y, x, mean, var
    d_weight = from d_x, data

No gradient in the data of this convolution is wanted. So x is dead when the forward pass is through the stem,
and y, d_y and d_x are not computed; see `ops/nn/image_gradient.py`. z is cheap to recompute from `chosen`,
with the same bits: within a channel the norm is monotonic, rising or, if gamma is below 0, falling.
"""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any, NamedTuple

from ....graph import Entry, Graph, Node, Rewriter
from ....ops.nn.conv_channels_last import ChannelsLastAttrs, ConvolutionChannelsLast
from ....ops.nn.image_gradient import ImageGradient, ImageGradientAttrs, ImageSums
from ....ops.nn.normed_convolution import NormLine
from ....ops.nn.pool_channels_last import ExtremePoolingChannelsLast, PoolingChannelsLast
from ....ops.norm.norm import BatchNorm
from ....ops.norm.norm_act import NormAct
from ....ops.norm.norm_act_line import NormActLineAttrs
from ....ops.norm.norm_remat import NormRemat
from ...base import Request
from ...rewrite import graph_pass, Stage, Step
from ..entries import output, request_of
from ..target import Target
from .norm_act import is_norm

_STAGE = "__mirror_stage__"


class _Found(NamedTuple):
    """The nodes of a stem, and their gradients in the order in which they run."""

    convolution: Node
    norm: Node
    pool: Node
    d_pool: Node
    d_norm: Node
    d_convolution: Node


@graph_pass(Stage.STEP, after=("split_gradients",), anchors=(PoolingChannelsLast,))
def stem_gradients(step: Step, target: Target) -> Step:
    """The step with an `_image_gradient` for each stem. O(nodes)."""
    pools = [n for n in step.forward if n.op is PoolingChannelsLast and _is_windowed_max(n.attrs)]
    if not pools or not step.has_backward:
        return step
    found = [f for pool in pools if (f := _found(step, pool)) is not None]
    found = [f for f in found if all(map(target.has_kernel, _requests(step.graph, f)))]
    return _StemRewrite(step, found).result() if found else step


def _found(step: Step, pool: Node) -> _Found | None:
    """The stem that ends in a pooling, if only its own nodes read its arrays; else None."""
    readers = step.readers
    norm = pool.inputs[0].node
    if not _is_plain(norm) or norm.attrs.axis % len(step.graph.shapes[Entry(norm)]) != 3:
        return None
    conv = norm.inputs[0].node
    if conv.op is not ConvolutionChannelsLast or not conv.attrs.no_bias:
        return None
    backward = []
    for node, name in ((pool, "index"), (norm, "mean")):
        later = [n for n in readers.all(output(node, name)) if n.forward is node]
        backward += later[:1]
    if len(backward) < 2:
        return None
    d_pool, d_norm = backward
    d_data = output(d_norm, "d_data")
    d_conv = readers.only(d_data)
    if d_conv is None or d_pool in step.forward or d_norm in step.forward:
        return None
    if d_conv.forward is not conv or readers.all(output(d_conv, "d_data")) or "weight" not in d_conv.absent:
        return None
    alone = {
        Entry(conv): {norm, d_norm},
        Entry(norm): {pool},
        output(norm, "mean"): {d_norm},
        output(norm, "var"): {d_norm},
        output(pool, "index"): {d_pool},
        Entry(d_pool): {d_norm},
        d_data: {d_conv},
    }
    if not readers.stay_inside(alone) or any(n.annotations.get(_STAGE) for n in (conv, norm, pool)):
        return None
    return _Found(conv, norm, pool, d_pool, d_norm, d_conv)


def _is_windowed_max(a: Any) -> bool:
    return a.pool_type == "max" and not a.global_pool


def _is_plain(norm: Node) -> bool:
    """True for a norm that uses the statistics of the batch, with at most a rectifier that is not leaky."""
    if not (is_norm(norm) or norm.op is NormAct) or norm.absent or len(norm.inputs) != 5:
        return False
    a = norm.attrs
    return not (a.fix_gamma or a.use_global_stats or getattr(a, "slope", 0.0))


def _requests(graph: Graph, found: _Found) -> list[Request]:
    """The requests for kernels of the new nodes."""
    conv, norm, pool = found[:3]
    data, weight = conv.inputs
    channel = output(norm, "mean")
    small, index = Entry(pool), output(pool, "index")

    ask = partial(request_of, graph)
    of_weight, of_channel = graph.shapes[weight], graph.shapes[channel]
    pooled = (small, small, *(channel,) * 6, index, data)
    request = ask(ImageGradient, _attrs(found), pooled, (of_weight, of_channel, of_channel))
    request = replace(
        request,
        inputs=(*request.inputs, of_weight, of_weight[1:]),
        dtypes=(*request.dtypes, *(graph.dtypes[channel],) * 2),
    )
    return [
        ask(ImageSums, _own(conv), (Entry(conv), data, channel), (of_weight, of_weight[1:])),
        ask(NormLine, _line(norm), norm.inputs, (of_channel,) * 4),
        ask(ExtremePoolingChannelsLast, pool.attrs, (Entry(conv), channel), (graph.shapes[small],) * 2),
        ask(NormRemat, _again(norm), (small, *(channel,) * 4), (graph.shapes[small],)),
        request,
    ]


class _StemRewrite:
    """The step in which the stems `found` are replaced."""

    def __init__(self, step: Step, found: list[_Found]) -> None:
        self.step = step
        self.place = {n: f for f in found for n in (f.norm, f.pool, f.d_norm)}
        self.gone = {n for f in found for n in (f.d_pool, f.d_convolution)}
        self.made = Rewriter(step.graph)
        self.kept: dict[_Found, tuple[Entry, Entry, Entry, Entry]] = {}

    def result(self) -> Step:
        for node in self.made.walk(self.step.num_forward):
            found = self.place.get(node)
            if found is not None:
                make = {found.norm: self._norm, found.pool: self._pool, found.d_norm: self._gradient}[node]
                make(found)
            elif node not in self.gone:
                self.made.keep(node)
        return self.step.rewritten(self.made)

    def _is_like(self, e: Entry, like: Entry) -> None:
        """Give `e`, which replaces no entry, the shape and type of `like`."""
        self.made.shapes[e], self.made.dtypes[e] = self.made.shapes[like], self.made.dtypes[like]

    def _norm(self, found: _Found) -> None:
        """Add the statistics of the norm, without its result."""
        norm = found.norm
        new = Node(NormLine, _line(norm), self.made.inputs(norm), f"{norm.name}_line")
        self.made.order.append(new)
        for i, name in enumerate(new.output_names):
            self._is_like(Entry(new, i), output(norm, "mean"))
            if name in ("mean", "var"):
                self.made.put(output(norm, name), Entry(new, i))

    def _pool(self, found: _Found) -> None:
        """Add the pooled elements and the sums, which are kept, and the result of the stem."""
        conv, norm, pool = found[:3]
        made = self.made
        x, gamma, beta = made.inputs(norm)[:3]
        mean, var = (made.moved[output(norm, n)] for n in ("mean", "var"))
        data, weight = made.inputs(conv)
        chosen = Node(ExtremePoolingChannelsLast, pool.attrs, (x, gamma), pool.name)
        again = Node(NormRemat, _again(norm), (Entry(chosen), gamma, beta, mean, var), norm.name)
        sums = Node(ImageSums, _own(conv), (x, data, mean), f"{conv.name}_sums")
        made.order += [chosen, again, sums]
        self._is_like(Entry(chosen), Entry(pool))
        self._is_like(Entry(chosen, 1), output(pool, "index"))
        for i, shape in enumerate((made.shapes[weight], made.shapes[weight][1:])):
            made.shapes[Entry(sums, i)], made.dtypes[Entry(sums, i)] = shape, made.dtypes[mean]
        made.put(Entry(pool), Entry(again))
        self.kept[found] = (Entry(chosen), Entry(chosen, 1), Entry(sums), Entry(sums, 1))

    def _gradient(self, found: _Found) -> None:
        """Add the gradients, in the place of that of the norm."""
        head = found.d_pool.named_inputs["d_out"]
        data = found.convolution.inputs[0]
        made = self.made
        _, gamma, beta, *moving = made.inputs(found.norm)
        statistics = [made.moved[output(found.norm, n)] for n in ("mean", "var")]
        chosen, index, *sums = self.kept[found]
        grad, data = made.all_of((head, data))
        inputs = (grad, chosen, gamma, beta, *statistics, *moving, index, data, *sums)
        new = Node(ImageGradient, _attrs(found), inputs, found.d_convolution.name)
        made.order.append(new)
        for node in (found.d_norm, found.d_convolution):
            for name in set(node.output_names).intersection(new.output_names):
                made.put(output(node, name), output(new, name))


def _own(conv: Node) -> ChannelsLastAttrs:
    return ChannelsLastAttrs(**_of_convolution(conv))


def _of_convolution(conv: Node) -> dict[str, Any]:
    return {f.name: getattr(conv.attrs, f.name) for f in fields(ChannelsLastAttrs)}


def _line(norm: Node) -> BatchNorm.Attrs:
    own = {f.name for f in fields(BatchNorm.Attrs)}
    return BatchNorm.Attrs(**{n: x for n, x in asdict(norm.attrs).items() if n in own})


def _again(norm: Node) -> NormActLineAttrs:
    """The attributes of the node that recomputes the result of `norm` from its statistics."""
    a = asdict(norm.attrs)
    own = {f.name for f in fields(NormActLineAttrs)}
    return NormActLineAttrs(
        **{n: x for n, x in a.items() if n in own} | {"relu": _rectifies(norm), "plus": ""}
    )


def _rectifies(norm: Node) -> bool:
    return bool(norm.op is NormAct and norm.attrs.relu)


def _attrs(found: _Found) -> ImageGradientAttrs:
    a, norm = found.pool.attrs, found.norm.attrs
    return ImageGradientAttrs(
        **_of_convolution(found.convolution),
        pool_kernel=a.kernel,
        pool_stride=a.stride,
        pool_pad=a.pad,
        pooling_convention=a.pooling_convention,
        eps=norm.eps,
        momentum=norm.momentum,
        relu=_rectifies(found.norm),
    )
