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

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from ....graph import Entry, Graph, Node, Rewriter
from ....graph.attrs import attrs_by_name, attrs_from
from ....ops.nn.conv_channels_last import ConvolutionChannelsLast
from ....ops.nn.normed_convolution import (
    NormedAttrs,
    NormedConvolution,
    NormedConvolutionWeightGradient,
    NormedGradientAttrs,
    NormLine,
)
from ....ops.norm.norm import BatchNorm
from ....ops.norm.norm_act import is_lined, NormAct, NormActAttrs
from ....ops.norm.norm_act_line import NormActLine
from ...rewrite import graph_pass, Stage, Step
from ..entries import output, request_of_node
from ..remat.remat_candidates import is_stage
from ..target import Target
from .norm_act import is_norm, NORMS

_MIRROR = "__force_mirroring__"


class _Found(NamedTuple):
    """A norm that changes. `made`: its result is still computed; `addend`: one of `norm_act.ADDENDS`;
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
    return _rewritten(step, search) if search.found else step


class _NewNodes:
    """Makes the new nodes on what stands in `made` for their inputs: in the search for the sake of their
    requests, and then for the step. `norms` has the newest node for each norm.
    """

    def __init__(self, graph: Graph) -> None:
        self.made = Rewriter(graph)
        self.norms: dict[Node, Node] = {}

    def norm(self, norm: Node, found: _Found) -> Node:
        """The node for a norm that changes so."""
        inputs = self.made.inputs(norm)
        notes = {k: v for k, v in norm.annotations.items() if k != _MIRROR or found.kept}
        if not found.made:
            attrs = attrs_from(BatchNorm.Attrs, norm.attrs)
            new = Node(NormLine, attrs, inputs, f"{norm.name}_line", annotations=notes)
        else:
            if is_lined(found.addend):
                inputs = (*inputs[:5], *self._line(_addend_of(norm).node))
            own = attrs_from(NormActAttrs, norm.attrs, relu=_has_relu(norm), plus=found.addend)
            new = Node(NormActLine, own, inputs, norm.name, annotations=notes)
        self.made.infer(new)
        self.norms[norm] = new
        return new

    def _line(self, norm: Node) -> tuple[Entry, Entry, Entry]:
        """The input of `norm`, its factor and its shift."""
        new = self.norms[norm]
        return new.inputs[0], output(new, "factor"), output(new, "shift")

    def reader(self, node: Node, norm: Node) -> Node:
        """The node for a convolution of the result of `norm`, or for the gradient in its weight."""
        named = dict(zip(node.input_names, self.made.inputs(node)))
        (x, *line), relu, own = self._line(norm), _has_relu(norm), attrs_by_name(node.attrs)
        if node.op is ConvolutionChannelsLast:
            ins = (*(named | {"data": x}).values(), *line)
            new = replace(node, op=NormedConvolution, attrs=NormedAttrs(**own, relu=relu), inputs=ins)
        else:
            by = self.norms[norm]
            attrs = NormedGradientAttrs(**own, relu=relu, plus=getattr(by.attrs, "plus", ""))
            ins = (named["d_out"], x, *line, *(by.inputs[5:] if by.op is NormActLine else ()))
            new = Node(NormedConvolutionWeightGradient, attrs, ins, node.name)
        self.made.infer(new)
        return new

    def gradient(self, node: Node, norm: Node) -> Node:
        """The gradient of a norm that is a `_norm_act_line` now."""
        op, new = NormActLine.grad_op, self.norms[norm]
        assert op is not None
        have = new.named_inputs | dict(zip(node.input_names, self.made.inputs(node)))
        have |= dict(zip(new.input_names[5:], new.inputs[5:]))
        names = op.input_names(new.attrs)
        absent = frozenset(n for n in names if n not in have)
        ins = tuple(have[n] for n in names if n in have)
        return replace(node, op=op, attrs=new.attrs, inputs=ins, forward=new, absent=absent)


class _NormPrologueSearch:
    """The search for norms that change, and for the readers of each that change with it."""

    def __init__(self, step: Step, target: Target) -> None:
        self.step, self.graph = step, step.graph
        self.has_kernel, self.has_kernels = cache(target.has_kernel), cache(target.has_kernels)
        self.found: dict[Node, _Found] = {}
        self.norm_of: dict[Node, Node] = {}
        self.new = _NewNodes(step.graph)
        self.readers = step.readers
        self.backward = frozenset(step.operators[len(step.forward) :])

    def visit(self, norm: Node) -> None:
        """Decide about `norm`, after all norms before it."""
        y = Entry(norm)
        addend, source, is_there = self._addend(norm)
        readers = self.readers.all(y)
        later = [n for n in readers if n in self.backward and n.forward is not norm]
        self.new.norm(norm, _Found(True, addend))
        is_free = y not in self.step.shown and is_there and all(self._makes(n, norm) for n in later)
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
            and self._is_tuned(self.new.norm(norm, _Found(made=False)))
        )

    def _takes(self, node: Node, norm: Node) -> bool:
        """True if `node` of the forward pass can read the line of `norm`."""
        if node.op is NormAct:
            return self._takes_line(node, norm)
        return _convolves(node, Entry(norm)) and self._is_tuned(self.new.reader(node, norm))

    def _takes_line(self, node: Node, norm: Node) -> bool:
        """True if the sum `node` can add the line of `norm`."""
        y = Entry(norm)
        if not _adds(node) or node.inputs.count(y) > 1 or _addend_of(node) != y or _adds(norm):
            return False
        return _is_last_axis(self.graph, node) and self._has_line(node, _kind(norm))

    def _makes(self, node: Node, norm: Node) -> bool:
        """True if `node` is a gradient in a weight that can compute the result of `norm`."""
        if not _correlates(node, Entry(norm)):
            return False
        new = self.new.reader(node, norm)
        read = [n for n in node.output_names if output(node, n) in self.step.read]
        return self._is_tuned(new, frozenset((*read, *new.input_names)))

    def _has_line(self, norm: Node, addend: str) -> bool:
        """True if there are kernels for `norm` as a `_norm_act_line`, and for its gradient."""
        new = self.new.norm(norm, _Found(True, addend))
        return self.has_kernels(request_of_node(self.new.made, new))

    def _is_tuned(self, new: Node, used: frozenset[str] | None = None) -> bool:
        return self.has_kernel(request_of_node(self.new.made, new, used))


def _rewritten(step: Step, search: _NormPrologueSearch) -> Step:
    """The step in which the norms that are found, and those of their readers, are replaced."""
    new, found, norm_of = _NewNodes(step.graph), search.found, search.norm_of
    made = new.made
    for node in made.walk(step.num_forward):
        if node in found:
            made.replace(node, new.norm(node, found[node]))
        elif node in norm_of:
            made.replace(node, new.reader(node, norm_of[node]))
        elif node.forward is not None and node.forward in found and found[node.forward].made:
            made.replace(node, new.gradient(node, node.forward))
        else:
            made.keep(node)
    return step.rewritten(made)


def _is_last_axis(graph: Graph, node: Node) -> bool:
    """True for a norm over the last axis, with at most a sum and a rectifier that is not leaky."""
    if not (is_norm(node) or node.op is NormAct) or node.absent or bool(getattr(node.attrs, "slope", 0.0)):
        return False
    rank = len(graph.shapes[Entry(node)])
    return bool(node.attrs.axis % rank == rank - 1 > 0) and not is_stage(node)


def _adds(norm: Node) -> bool:
    return bool(norm.op is NormAct and norm.attrs.plus)


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
