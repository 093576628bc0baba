"""Convolutions normalize while they read, where nobody else wants the normalized array.

    x -> norm -> y -> convolution                     x -> line of the norm -> factor, shift
              y -> gradient in its weight             x, factor, shift -> convolution
              x -> gradient of the norm               x, factor, shift -> gradient in its weight
                                                      x -> gradient of the norm

A training step keeps x, which the gradient of the norm reads, and y, which the gradients in the weights of
the convolutions behind it read. Here y is never made: it is neither kept nor written and read again.

All readers of y must be such convolutions and their gradients in the weight, for which the backend has
kernels; y must be no output. The gradient of the norm stays what it is: it decides by the same arithmetic
which elements passed the rectifier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import asdict, replace

from ...graph import Entry, Graph, Node
from ...ops.conv_channels_last import _convolution_channels_last
from ...ops.norm import BatchNorm
from ...ops.norm_act import _norm_act
from ...ops.normed_convolution import (
    _norm_line,
    _normed_convolution,
    _normed_convolution_d_weight,
    NormedAttrs,
)
from ..base import Request
from .norm_act import is_norm
from .rewritten import renewed, rewritten

_MIRROR, _STAGE = "__force_mirroring__", "__mirror_stage__"


def normed_loads(
    graph: Graph, kept: frozenset[Entry], num_forward: int, has_kernel: Callable[[Request], bool]
) -> tuple[Graph, Mapping[Entry, Entry], int]:
    """`graph` with convolutions that normalize; see `Backend.combine`. O(inputs).

    `has_kernel` says for a `_norm_line`, a `_normed_convolution` and a `_normed_convolution_d_weight` whether
    the backend has one. Run it after `split_gradients`. A graph without backward nodes stays as it is.

    A norm that is marked as the end of a stage to be kept stays; of one that is to be recomputed nothing is
    left that is worth it.
    """
    if sum(n.op is not None for n in graph.nodes) == num_forward:
        return graph, {}, num_forward
    readers: dict[Entry, list[Node]] = {}
    for node in graph.nodes:
        for e in node.inputs:
            readers.setdefault(e, []).append(node)
    read = kept | readers.keys()
    norm_of: dict[Node, Node] = {}  # the nodes that change
    for node in graph.nodes:
        y = Entry(node)
        if not _is_line(graph, node) or y in kept or y in graph.outputs:
            continue
        found = readers.get(y, [])
        if found and all(_normalizes(graph, n, y) for n in found):
            requests = (_line_request(graph, node), *(_request(graph, n, node, read) for n in found))
            if all(map(has_kernel, requests)):
                norm_of |= dict.fromkeys((node, *found), node)
    if not norm_of:
        return graph, {}, num_forward
    shapes, dtypes = dict(graph.shapes), dict(graph.dtypes)
    moved: dict[Entry, Entry] = {}
    node_of: dict[Node, Node] = {}
    order: list[Node] = []

    def moved_to(was: Entry, e: Entry) -> None:
        moved[was] = e
        if was in shapes:  # of what nobody reads it may be unknown
            shapes[e], dtypes[e] = shapes[was], dtypes[was]

    for node in graph.nodes:
        inputs = tuple(moved.get(e, e) for e in node.inputs)
        norm = norm_of.get(node)
        if norm is None:
            new = renewed(node, inputs, node_of)
            names = {n: n for n in node.output_names}
        elif norm is node:
            new = _line(node, inputs)
            names = {"mean": "mean", "var": "var"}
            for name in ("factor", "shift"):
                e, like = _output(new, name), _output(node, "mean")
                shapes[e], dtypes[e] = shapes[like], dtypes[like]
        else:
            line = node_of[norm]
            pair = (_output(line, "factor"), _output(line, "shift"))
            new, names = _reader(node, inputs, line.inputs[0], pair, _has_relu(norm))
        order.append(new)
        if new is not node:
            node_of[node] = new
            for was, name in names.items():
                moved_to(_output(node, was), _output(new, name))
    return rewritten(graph, order, moved, node_of, shapes, dtypes), moved, num_forward


def _is_line(graph: Graph, node: Node) -> bool:
    """Whether `node` normalizes its last axis and adds nothing, but for a rectifier."""
    if not (is_norm(node) or (node.op is _norm_act and not node.attrs.add)) or node.absent:
        return False
    rank = len(graph.shapes[Entry(node)])
    return bool(node.attrs.axis % rank == rank - 1 > 0) and _STAGE not in node.annotations


def _has_relu(norm: Node) -> bool:
    return bool(norm.op is _norm_act and norm.attrs.relu)


def _normalizes(graph: Graph, node: Node, y: Entry) -> bool:
    """Whether `node` is a convolution of `y`, or the gradient in the weight of one."""
    if node.inputs.count(y) > 1 or dict(zip(node.input_names, node.inputs)).get("data") != y:
        return False
    if node.op is _convolution_channels_last:
        return True
    return node.op is _convolution_channels_last.grad_op and "weight" in node.absent


def _request(graph: Graph, node: Node, norm: Node, read: Set[Entry]) -> Request:
    """The question for a kernel for what `node` becomes."""
    forward = node.forward or node
    attrs = _attrs(forward, _has_relu(norm))
    ins, out = [graph.shapes[e] for e in forward.inputs], graph.shapes[Entry(forward)]
    kinds, wide = [graph.dtypes[e] for e in forward.inputs], graph.dtypes[_output(norm, "mean")]
    line = graph.shapes[_output(norm, "mean")]
    if node is forward:
        shapes, dtypes = (*ins, line, line), (*kinds, wide, wide)
        return Request(_normed_convolution, attrs, shapes, (out,), kinds[0], dtypes)
    shapes, dtypes = (out, ins[0], line, line), (kinds[0], kinds[0], wide, wide)
    op = _normed_convolution_d_weight
    used = {n for i, n in enumerate(node.output_names) if Entry(node, i) in read}.union(op.inputs)
    return Request(op, attrs, shapes, tuple(ins[1:]), kinds[0], dtypes, frozenset(used))


def _line_request(graph: Graph, norm: Node) -> Request:
    """The question for a kernel for the line of a norm."""
    shapes = tuple(graph.shapes[e] for e in norm.inputs)
    dtypes = tuple(graph.dtypes[e] for e in norm.inputs)
    return Request(_norm_line, _line_attrs(norm), shapes, shapes[1:2] * 4, dtypes[0], dtypes)


def _line_attrs(norm: Node) -> BatchNorm.Attrs:
    a = norm.attrs
    return BatchNorm.Attrs(
        eps=a.eps,
        momentum=a.momentum,
        fix_gamma=a.fix_gamma,
        use_global_stats=a.use_global_stats,
        axis=a.axis,
    )


def _attrs(convolution: Node, relu: bool) -> NormedAttrs:
    return NormedAttrs(**asdict(convolution.attrs), relu=relu)


def _line(norm: Node, inputs: tuple[Entry, ...]) -> Node:
    """The node that makes the line of `norm`."""
    notes = {k: v for k, v in norm.annotations.items() if k != _MIRROR}
    return Node(_norm_line, _line_attrs(norm), inputs, f"{norm.name}_line", annotations=notes)


def _reader(
    node: Node, inputs: tuple[Entry, ...], x: Entry, line: tuple[Entry, Entry], relu: bool
) -> tuple[Node, dict[str, str]]:
    """`node` as it reads x, and what its outputs are called by their old names."""
    named = dict(zip(node.input_names, inputs)) | {"data": x}
    attrs = _attrs(node.forward or node, relu)
    if node.op is _convolution_channels_last:
        new = replace(node, op=_normed_convolution, attrs=attrs, inputs=(*named.values(), *line))
        return new, {"out": "out"}
    ins = (named["d_out"], x, *line)
    new = Node(_normed_convolution_d_weight, attrs, ins, node.name)
    return new, {n: n for n in new.output_names}


def _output(node: Node, name: str) -> Entry:
    return Entry(node, node.output_names.index(name))
