"""Inlined casts of convolutions: kernels that copy the weight anyway read the float32 one.

    weight -> Cast -> convolution(x, .)                   convolution(x, weight)
              Cast -> gradient in data                    gradient in data of (d_out, weight)
    gradient in the weight -> Cast                        gradient in the weight, float32

In mixed precision a kernel of oneDNN reorders the weight into scratch in 16 bits, and rounds it on the way:
the same numbers without the copy between. Winograd's algorithm transforms float32 weights: it would widen a
16-bit copy into scratch of twice its size. It now transforms weights that are not rounded.

The gradient in the weight is float32 at once if that takes fewer bytes: the kernel accumulates it in float32,
and would round it into another array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from ....core.dtype import float32
from ....graph import Entry, Node, Rewriter
from ....graph.opdef import DType
from ....ops.elementwise.cast import Cast
from ....ops.nn.conv_channels_last import ConvolutionChannelsLast
from ....ops.nn.normed_convolution import NormedConvolution, NormedConvolutionWeightGradient
from ...base import Request
from ...rewrite import graph_pass, Stage, Step
from ..entries import output
from ..target import Target

_FORWARD = (ConvolutionChannelsLast, NormedConvolution)

_PARAMETERS = ("weight", "bias")
"""The inputs that are read in float32. Data stay in 16 bits, also where they are a copy of a batch."""


@graph_pass(Stage.STEP, after=("split_gradients", "stem_gradients", "norm_prologue"), anchors=(Cast,))
def inline_convolution_casts(step: Step, target: Target) -> Step:
    """The step with convolutions that read float32 weights. O(inputs)."""
    search = _ConvolutionCastSearch(step, cache(target.workspace))
    if not search.casts:
        return step
    narrow = {Entry(cast): cast.inputs[0] for cast in search.casts}
    widening = search.widening()
    alone = {e for e in narrow if all(n in search.changed for n in step.readers.all(e))}
    gone = {e.node for e in alone} | {cast for casts in widening.values() for cast in casts}
    layers = {n.forward or n for n in search.changed}
    widened: dict[Node, Node] = {}  # forward nodes, some of which are not in the graph

    def wide(made: Rewriter, node: Node) -> Node:
        """A convolution with its float32 weight."""
        if node not in widened:
            names = zip(node.input_names, node.inputs)
            inputs = tuple(narrow.get(e, made.of(e)) if n in _PARAMETERS else made.of(e) for n, e in names)
            widened[node] = replace(node, inputs=inputs)
            for was, e in zip(node.outputs, widened[node].outputs):
                made.shapes[e], made.dtypes[e] = made.shapes[was], made.dtypes[was]
        return widened[node]

    def add(made: Rewriter, node: Node) -> None:
        inputs = tuple(narrow[e] if e in alone else made.of(e) for e in node.inputs)
        new = replace(node, inputs=inputs)
        if node in layers:
            new = wide(made, node)
        elif node.op is NormedConvolutionWeightGradient:
            new = replace(new, attrs=replace(node.attrs, wide=True))
        elif node in search.changed or node in widening:
            assert node.forward is not None
            new = replace(new, forward=wide(made, node.forward))
        made.replace(node, new)  # else a gradient of 16 bits, of a layer with a 16-bit weight: it stays that
        if node in widening:
            made.dtypes |= {e: float32 for e in new.outputs if e in made.dtypes}
            for cast in widening[node]:
                made.put(Entry(cast), made.of(cast.inputs[0]))

    found = search.changed | widening.keys() | {n for n in step.operators if n.forward in layers}
    return step.substituted(found, add, gone)


class _ConvolutionCastSearch:
    """The search for `casts` of weights and biases that are not needed, and for the nodes `changed` thereby:
    convolutions and gradients in data.
    """

    def __init__(self, step: Step, scratch_of: Callable[[Request], int | None]) -> None:
        self.graph, self.kept, self.shown, self.scratch_of = step.graph, step.kept, step.shown, scratch_of
        self.readers = step.readers
        copies = self.copies = {n for n in step.operators if n.op is Cast and self._is_copy(n)}
        self.casts: list[Node] = []
        self.changed: set[Node] = set()
        for cast in step.operators:
            readers = self.readers.all(Entry(cast))
            if cast in copies and readers and all(self._takes(n, cast) for n in readers):
                self.changed.update(readers)
                parameters = (n.named_inputs.get(name) for n in readers for name in _PARAMETERS)
                for e in {e for e in parameters if e is not None and e.node in copies}:
                    if e.node not in self.casts:
                        self.casts.append(e.node)

    def _is_copy(self, cast: Node) -> bool:
        made, source = Entry(cast), cast.inputs[0]
        is_narrowing = self.graph.dtypes[source] == float32 and self.graph.dtypes[made].itemsize == 2
        return is_narrowing and source.node.op is None and made not in self.shown

    def _takes(self, node: Node, cast: Node) -> bool:
        """True if `node` is a convolution with this weight, or its gradient in data, and can read float32."""
        named = node.named_inputs
        if named.get("weight") != Entry(cast) or node.inputs.count(Entry(cast)) > 1:
            return False
        bias = named.get("bias")
        if bias is not None and bias.node not in self.copies:
            return False
        if node.op in _FORWARD:
            return self._scratch(node, node, float32) is not None
        if node.op is not ConvolutionChannelsLast.grad_op or "data" not in node.absent:
            return False
        return node.forward is not None and self._scratch(node, node.forward, float32) is not None

    def widening(self) -> dict[Node, list[Node]]:
        """Gradients in weights to be computed in float32, with the casts that are then not needed."""
        found = {}
        layers = {n.forward or n for n in self.changed}
        for node in self.graph.nodes:
            is_normed = node.op is NormedConvolutionWeightGradient
            if not is_normed and not (
                node.op is ConvolutionChannelsLast.grad_op
                and "weight" in node.absent
                and node.forward in layers
            ):
                continue
            casts: list[Node] = []
            for name in ("d_weight", "d_bias"):
                e = output(node, name) if name in node.output_names else None
                readers = () if e is None else self.readers.all(e)
                if e in self.shown or any(n.op is not Cast.grad_op for n in readers) or len(readers) > 1:
                    break
                casts += readers
            else:
                if casts and self._is_less(node, casts):
                    found[node] = casts
        return found

    def _is_less(self, node: Node, casts: Sequence[Node]) -> bool:
        """True if a float32 gradient takes fewer bytes, with its scratch, while it is computed."""
        graph = self.graph
        if any(graph.dtypes[Entry(c)] != float32 for c in casts):
            return False
        nbytes = graph.nbytes(output(node, "d_weight"))
        narrow, wide = (self._scratch(node, node.forward or node, kind) for kind in (None, float32))
        if narrow is None or wide is None:
            return False
        if any(Entry(c) in self.kept for c in casts):
            return True
        return wide + 2 * nbytes < narrow + nbytes

    def _scratch(self, node: Node, forward: Node, weight: DType | None) -> int | None:
        """Bytes of scratch of `node` if weight and bias have the type `weight`; None: the type they have."""
        graph, attrs = self.graph, node.attrs
        assert node.op is not None
        names = forward.input_names
        dtypes = [graph.dtypes[e] for e in forward.inputs]
        if weight is not None and node.op is NormedConvolutionWeightGradient:
            attrs = replace(attrs, wide=True)
        elif weight is not None:
            dtypes = [weight if n in _PARAMETERS else d for n, d in zip(names, dtypes)]
        shapes = tuple(graph.shapes[e] for e in forward.inputs)
        outs = tuple(graph.shapes[e] for e in forward.outputs)
        read = {n for n in node.output_names if self.readers.all(output(node, n))}
        used = frozenset({*node.input_names, *read})
        return self.scratch_of(Request(node.op, attrs, shapes, outs, dtypes[0], tuple(dtypes), used))
