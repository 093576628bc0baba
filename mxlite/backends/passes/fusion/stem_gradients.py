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

from typing import Any, NamedTuple

from ....graph import Entry, Node, Rewriter
from ....graph.attrs import attrs_by_name, attrs_from
from ....ops.nn.conv_channels_last import ChannelsLastAttrs, ConvolutionChannelsLast
from ....ops.nn.image_gradient import ImageGradient, ImageGradientAttrs, ImageSums
from ....ops.nn.normed_convolution import NormLine
from ....ops.nn.pool_channels_last import ExtremePoolingChannelsLast, PoolingChannelsLast
from ....ops.norm.norm import BatchNorm
from ....ops.norm.norm_act import NormAct
from ...rewrite import graph_pass, Stage, Step
from ..entries import output, request_of_node
from ..remat.remat_candidates import is_stage
from ..remat.remat_rules import normalized
from ..target import Target
from .norm_act import is_norm


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
    proposed = Rewriter(step.graph)
    added: dict[Node, list[Node]] = {}
    stands: dict[Entry, Entry] = {}
    gone: set[Node] = set()
    for found in filter(None, (_found(step, pool) for pool in pools)):
        begin = len(proposed.order)
        line, *pooled, gradient = _nodes(proposed, found)
        if not all(target.has_kernel(request_of_node(proposed, n)) for n in proposed.order[begin:]):
            continue
        added |= {found.norm: [line], found.pool: pooled, found.d_norm: [gradient]}
        gone |= {found.d_pool, found.d_convolution}
        stands[Entry(found.pool)] = Entry(pooled[1])
        for old, new in ((found.norm, line), (found.d_norm, gradient), (found.d_convolution, gradient)):
            names = set(old.output_names).intersection(new.output_names)
            stands |= {output(old, n): output(new, n) for n in names}

    def add(made: Rewriter, node: Node) -> None:
        those = added[node]
        for new in those:
            made.infer(made.keep(new))
        for old, e in stands.items():
            if e.node in those:
                made.put(old, made.of(e))

    return step.substituted(added, add, gone)


def _nodes(made: Rewriter, found: _Found) -> list[Node]:
    """The new nodes: the statistics of the norm without its result; the pooled elements, the result of the
    stem, and the sums, which are kept; and the gradients, in the place of that of the norm.
    """
    conv, norm, pool, d_pool, _, d_conv = found
    (data, _), (x, gamma, beta, *moving) = conv.inputs, norm.inputs
    line = made.add(NormLine, attrs_from(BatchNorm.Attrs, norm.attrs), norm.inputs, f"{norm.name}_line")
    mean, var = output(line, "mean"), output(line, "var")
    extreme = made.add(ExtremePoolingChannelsLast, pool.attrs, (x, gamma), pool.name)
    chosen, index = Entry(extreme), Entry(extreme, 1)
    again = normalized(norm, chosen, by=line)
    assert again.op is not None
    again = made.add(again.op, again.attrs, again.inputs, norm.name)
    sums = made.add(
        ImageSums, attrs_from(ChannelsLastAttrs, conv.attrs), (x, data, mean), f"{conv.name}_sums"
    )
    head = d_pool.named_inputs["d_out"]
    reads = (head, chosen, gamma, beta, mean, var, *moving, index, data, Entry(sums), Entry(sums, 1))
    gradient = made.add(ImageGradient, _attrs(found), reads, d_conv.name)
    return [line, extreme, again, sums, gradient]


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
    if not readers.stay_inside(alone) or any(map(is_stage, (conv, norm, pool))):
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


def _attrs(found: _Found) -> ImageGradientAttrs:
    a, norm = found.pool.attrs, found.norm.attrs
    return ImageGradientAttrs(
        **attrs_by_name(found.convolution.attrs),
        pool_kernel=a.kernel,
        pool_stride=a.stride,
        pool_pad=a.pad,
        pooling_convention=a.pooling_convention,
        eps=norm.eps,
        momentum=norm.momentum,
        relu=getattr(norm, "relu", False),
    )
