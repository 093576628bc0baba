"""Norm prologue: kernels that read the result of a norm normalize while they load.

    x -> norm -> y -> convolution                     x -> line of the norm -> factor, shift
              y -> gradient in its weight             x, factor, shift -> convolution
              x -> gradient of the norm               x, factor, shift -> gradient in its weight
                                                      x -> gradient of the norm

The line of a norm is its factor and its shift of each channel. A training step keeps x, which the gradient of
the norm reads, and y, which the gradients in the weights of the following convolutions read. Here y is never
computed as an array. A sum, `_norm_act` with an addend, can read such a line, too.

If something else reads y in the forward pass, y is computed but not kept: in the backward pass the gradients
in weights recompute it while they load (`_norm_act_line` in place of the norm). With an addend this holds as
well:

    y0  computed and kept
    y1 = relu(line of x1 + y0)       computed, not kept: x1 and y0 are
    y2 = relu(line of x2 + y1)       computed and kept, as y1 is not
    y3 = relu(line of x3 + y2)       computed, not kept

All backward readers of y must be such gradients or that of the norm itself, which finds by the same
arithmetic where the rectifier was positive; y must be no output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from ....graph import Entry, Graph, Node, Rewriter
from ....graph.attrs import attrs_by_name
from ....ops.nn.conv_channels_last import ConvolutionChannelsLast
from ....ops.nn.normed_convolution import (
    NormedAttrs,
    NormedConvolution,
    NormedConvolutionWeightGradient,
    NormedGradientAttrs,
    NormLine,
)
from ....ops.norm.norm import BatchNorm
from ....ops.norm.norm_act import NormAct
from ....ops.norm.norm_act_line import is_lined, NormActLine, NormActLineAttrs
from ...base import Request
from ...rewrite import graph_pass, Stage, Step
from ..entries import output, request_of
from ..target import Target
from .norm_act import is_norm, NORMS

_MIRROR, _STAGE = "__force_mirroring__", "__mirror_stage__"


class _Found(NamedTuple):
    """A norm that changes. `made`: its result is still computed; `addend`: one of `norm_act_line.ADDENDS`;
    `kept`: the backward pass reads the result.
    """

    made: bool
    addend: str = ""
    kept: bool = False


@graph_pass(Stage.STEP, after=("split_gradients", "stem_gradients"), anchors=(*NORMS, NormAct))
def norm_prologue(step: Step, target: Target) -> Step:
    """The step whose readers of norms normalize. O(inputs). A graph without backward nodes stays as it is.

    A norm that is marked as the end of a stage to be kept stays. One that is marked to be recomputed loses
    the mark, unless its result is kept.
    """
    if not step.has_backward:
        return step
    search = _NormPrologueSearch(step, target)
    for node in step.graph.nodes:
        if _is_last_axis(step.graph, node):
            search.visit(node)
    return _NormPrologueRewrite(step, search.found, search.norm_of).result() if search.found else step


class _NormPrologueSearch:
    """The search for norms that change, and for the readers of each that change with it."""

    def __init__(self, step: Step, target: Target) -> None:
        self.step, self.graph = step, step.graph
        self.has_kernel = cache(target.has_kernel)  # asked once for equal nodes
        self.found: dict[Node, _Found] = {}
        self.norm_of: dict[Node, Node] = {}
        self.readers = step.readers
        self.backward = frozenset(step.operators[len(step.forward) :])

    def visit(self, norm: Node) -> None:
        """Decide about `norm`, after all norms before it."""
        y = Entry(norm)
        addend, source, is_there = self._addend(norm)
        readers = self.readers.all(y)
        later = [n for n in readers if n in self.backward and n.forward is not norm]
        is_free = y not in self.step.shown and is_there and all(self._makes(n, norm, addend) for n in later)
        if is_free and not addend and self._is_unmade(norm, readers):
            self.found[norm] = _Found(made=False)
            self.norm_of |= dict.fromkeys([n for n in readers if n.op is not NormAct], norm)
        elif is_free and self.backward.intersection(readers) and self._has_line(norm, addend):
            self.found[norm] = _Found(True, addend)
            self.norm_of |= dict.fromkeys(later, norm)
        elif source is not None and not self.found[source].made:
            self.found[norm] = _Found(True, addend, kept=True)

    def _addend(self, norm: Node) -> tuple[str, Node | None, bool]:
        """The addend's kind, the norm whose line it is, and True if the backward pass will have it."""
        if not _adds(norm):
            return "", None, True
        entry = _addend_of(norm)
        source = entry.node
        if source in self.found and self._takes_line(norm, source):
            return _kind(source), source, True
        if source in self.found:
            return "array", None, self.found[source].kept
        stays = any(n in self.backward and n not in self.norm_of for n in self.readers.all(entry))
        return "array", None, source.op is None or stays

    def _is_unmade(self, norm: Node, readers: Sequence[Node]) -> bool:
        """True if nothing needs the result of `norm` as an array."""
        return (
            bool(readers)
            and all(n in self.backward or self._takes(n, norm) for n in readers)
            and self.has_kernel(_line_request(self.graph, norm))
        )

    def _takes(self, node: Node, norm: Node) -> bool:
        """True if `node` of the forward pass can read the line of `norm`."""
        if node.op is NormAct:
            return self._takes_line(node, norm)
        return _convolves(node, Entry(norm)) and self.has_kernel(_convolution_request(self.graph, node, norm))

    def _takes_line(self, node: Node, norm: Node) -> bool:
        """True if the sum `node` can add the line of `norm`."""
        y = Entry(norm)
        if not _adds(node) or node.inputs.count(y) > 1 or _addend_of(node) != y or _adds(norm):
            return False
        return _is_last_axis(self.graph, node) and self._has_line(node, _kind(norm))

    def _makes(self, node: Node, norm: Node, addend: str) -> bool:
        """True if `node` is a gradient in a weight that can compute the result of `norm`."""
        if not _correlates(node, Entry(norm)):
            return False
        return self.has_kernel(_gradient_request(self.step, node, norm, addend))

    def _has_line(self, norm: Node, addend: str) -> bool:
        """True if there are kernels for `norm` as a `_norm_act_line`."""
        r = _norm_request(self.graph, norm, addend)
        grad_op = NormActLine.grad_op
        assert grad_op is not None
        return self.has_kernel(r) and self.has_kernel(replace(r, op=grad_op))


class _NormPrologueRewrite:
    """The step in which the norms of `found` and the readers in `norm_of` are replaced."""

    def __init__(self, step: Step, found: Mapping[Node, _Found], norm_of: Mapping[Node, Node]) -> None:
        self.step, self.found, self.norm_of = step, found, norm_of
        self.made = Rewriter(step.graph)

    def result(self) -> Step:
        for node in self.made.walk(self.step.num_forward):
            self._renew(node)
        return self.step.rewritten(self.made)

    def _renew(self, node: Node) -> None:
        made, inputs = self.made, self.made.inputs(node)
        if node in self.found:
            new = made.replace(node, self._norm(node, inputs))
            for name in ("factor", "shift"):
                e, like = output(new, name), output(node, "mean")
                made.shapes[e], made.dtypes[e] = made.shapes[like], made.dtypes[like]
        elif node in self.norm_of:
            made.replace(node, self._reader(node, inputs, self.norm_of[node]))
        elif node.forward is not None and node.forward in self.found and self.found[node.forward].made:
            made.replace(node, self._gradient(node, inputs, made.node_of[node.forward]))
        else:
            made.keep(node)

    def _norm(self, norm: Node, inputs: tuple[Entry, ...]) -> Node:
        found = self.found[norm]
        notes = {k: v for k, v in norm.annotations.items() if k != _MIRROR or found.kept}
        if not found.made:
            return Node(NormLine, _line_attrs(norm), inputs, f"{norm.name}_line", annotations=notes)
        if is_lined(found.addend):
            inputs = (*inputs[:5], *self._line(_addend_of(norm).node))
        attrs = _norm_attrs(norm, found.addend)
        return Node(NormActLine, attrs, inputs, norm.name, annotations=notes)

    def _line(self, norm: Node) -> tuple[Entry, Entry, Entry]:
        """The input of `norm`, its factor and its shift."""
        new = self.made.node_of[norm]
        return new.inputs[0], output(new, "factor"), output(new, "shift")

    def _reader(self, node: Node, inputs: tuple[Entry, ...], norm: Node) -> Node:
        named = dict(zip(node.input_names, inputs))
        x, *line = self._line(norm)
        if node.op is ConvolutionChannelsLast:
            ins = (*(named | {"data": x}).values(), *line)
            return replace(node, op=NormedConvolution, attrs=_attrs(node, norm), inputs=ins)
        addend = self.found[norm].addend
        added = self.made.node_of[norm].inputs[5:]
        attrs = _gradient_attrs(node, norm, addend)
        return Node(NormedConvolutionWeightGradient, attrs, (named["d_out"], x, *line, *added), node.name)

    def _gradient(self, node: Node, inputs: tuple[Entry, ...], norm: Node) -> Node:
        """The gradient of `norm`, a `_norm_act_line`."""
        op = NormActLine.grad_op
        assert op is not None
        have = norm.named_inputs | dict(zip(node.input_names, inputs))
        have |= dict(zip(norm.input_names[5:], norm.inputs[5:]))
        names = op.input_names(norm.attrs)
        absent = frozenset(n for n in names if n not in have)
        ins = tuple(have[n] for n in names if n in have)
        return replace(node, op=op, attrs=norm.attrs, inputs=ins, forward=norm, absent=absent)


def _is_last_axis(graph: Graph, node: Node) -> bool:
    """True for a norm over the last axis, with at most a sum and a rectifier that is not leaky."""
    if not (is_norm(node) or node.op is NormAct) or node.absent or bool(getattr(node.attrs, "slope", 0.0)):
        return False
    rank = len(graph.shapes[Entry(node)])
    return bool(node.attrs.axis % rank == rank - 1 > 0) and _STAGE not in node.annotations


def _adds(norm: Node) -> bool:
    return bool(norm.op is NormAct and norm.attrs.add)


def _addend_of(norm: Node) -> Entry:
    return norm.inputs[5]


def _has_relu(norm: Node) -> bool:
    return bool(norm.op is NormAct and norm.attrs.relu)


def _kind(norm: Node) -> str:
    """The kind of addend that the line of `norm` is to a sum."""
    return "relu" if _has_relu(norm) else "line"


def _convolves(node: Node, y: Entry) -> bool:
    """True if `node` is a convolution of `y`."""
    return node.op is ConvolutionChannelsLast and _reads_as_data(node, y)


def _correlates(node: Node, y: Entry) -> bool:
    """True if `node` is the gradient in the weight of a convolution of `y`."""
    is_gradient = node.op is ConvolutionChannelsLast.grad_op and "weight" in node.absent
    return is_gradient and _reads_as_data(node, y)


def _reads_as_data(node: Node, y: Entry) -> bool:
    return node.inputs.count(y) == 1 and node.named_inputs.get("data") == y


def _convolution_request(graph: Graph, node: Node, norm: Node) -> Request:
    """The request for a kernel of the convolution `node` with the norm as its prologue."""
    like = (*node.inputs, *[output(norm, "mean")] * 2)
    out = (graph.shapes[Entry(node)],)
    return request_of(graph, NormedConvolution, _attrs(node, norm), like, out)


def _gradient_request(step: Step, node: Node, norm: Node, addend: str) -> Request:
    """The request for a kernel of the gradient `node` in the weight with the norm as its prologue."""
    graph, forward, op = step.graph, node.forward, NormedConvolutionWeightGradient
    assert forward is not None
    attrs = _gradient_attrs(node, norm, addend)
    y, line = Entry(norm), output(norm, "mean")
    like = (Entry(forward), y, line, line, y, line, line)[: len(op.input_names(attrs))]
    read = [n for n in node.output_names if output(node, n) in step.read]
    outs = tuple(graph.shapes[e] for e in forward.inputs[1:])
    return request_of(graph, op, attrs, like, outs, frozenset((*read, *op.input_names(attrs))))


def _line_request(graph: Graph, norm: Node) -> Request:
    """The request for a kernel of the line of a norm."""
    outs = (graph.shapes[output(norm, "mean")],) * 4
    return request_of(graph, NormLine, _line_attrs(norm), norm.inputs, outs)


def _norm_request(graph: Graph, norm: Node, addend: str) -> Request:
    """The request for a kernel of a norm whose readers can recompute it."""
    line = output(norm, "mean")
    like = (*norm.inputs, *([line] * 2 if is_lined(addend) else []))
    outs = (graph.shapes[Entry(norm)], *[graph.shapes[line]] * 4)
    return request_of(graph, NormActLine, _norm_attrs(norm, addend), like, outs)


def _line_attrs(norm: Node) -> BatchNorm.Attrs:
    return BatchNorm.Attrs(**_of_norm(norm))


def _norm_attrs(norm: Node, addend: str) -> NormActLineAttrs:
    return NormActLineAttrs(**_of_norm(norm), relu=_has_relu(norm), plus=addend)


def _of_norm(norm: Node) -> dict[str, Any]:
    names = ("eps", "momentum", "fix_gamma", "use_global_stats", "axis")
    return {n: getattr(norm.attrs, n) for n in names}


def _attrs(convolution: Node, norm: Node) -> NormedAttrs:
    return NormedAttrs(**attrs_by_name(convolution.attrs), relu=_has_relu(norm))


def _gradient_attrs(gradient: Node, norm: Node, addend: str) -> NormedGradientAttrs:
    return NormedGradientAttrs(**attrs_by_name(gradient.attrs), relu=_has_relu(norm), plus=addend)
