"""Epilogue fusion: an operator applies what follows it to each number of its result before it stores that.

    Convolution -> BatchNorm [-> + addend] -> relu      becomes  _convolution_epilogue, at inference
    FullyConnected -> relu -> ...                       becomes  _dense_epilogue
    gradient in data of FullyConnected -> that of gelu  becomes  _dense_slope
    _norm_act -> + addend                               becomes  _norm_act(..., addend), plus="behind"

What follows is a chain of elementwise operators, each the only reader of the one before it, whose result is
no output. `_FORMS` says for each operator that can have an epilogue which node stands for it and a chain. The
longest chain is fused for which the backend has a kernel; the new node takes the place of its last node.

At inference a norm by moving averages is the factor and the shift of each channel (`_norm_factors`), which
the convolution applies. Where its kernel takes no factor, they are folded into weight and bias
(`_fold_norm`), which takes a second copy of the weight. Both depend on parameters alone: a program that keeps
its constants computes them when parameters change.

A function whose gradient reads its input, such as GELU, is not fused in training: the input has that other
reader, and a plan may drop the result and recompute it without the product. The gradient of a sum passes on
what it is given, and that of a norm recomputes where the rectifier was positive: backward stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from ....core.dtype import float32
from ....graph import Entry, Graph, Node, Op, Rewriter
from ....graph.attrs import attrs_by_name
from ....ops.nn.conv import Convolution
from ....ops.nn.conv_channels_last import ConvolutionChannelsLast, ConvolutionEpilogue, EpilogueAttrs
from ....ops.nn.dense import FullyConnected
from ....ops.norm.fold_norm import FoldNorm, FoldNormAttrs, NormFactors
from ....ops.norm.norm_act import NormAct
from ....te.epilogue import Epilogue
from ...elementwise.epilogue import Applied, epilogue_of
from ...elementwise.formula import is_elementwise
from ...fused.dense_epilogue import DenseEpilogue, DenseEpilogueAttrs, DenseSlope, DenseSlopeAttrs
from ...rewrite import graph_pass, Stage, Step
from ..entries import agree, output, request_of_node
from ..target import Target
from .norm_act import is_norm, is_sum

MOST_NODES = 8  # of a chain

_CONVOLUTIONS = (Convolution, ConvolutionChannelsLast)
_CHANNELS_FIRST = (None, "NCW", "NCHW", "NCDHW")


class _Fused(NamedTuple):
    """The node that may stand for an operator and its chain, and one that makes inputs of it from parameters.
    Both read entries of the old graph.
    """

    node: Node
    factors: Node | None = None


@graph_pass(
    Stage.FINAL,
    after=("channels_last", "split_gradients"),
    anchors=(Convolution, ConvolutionChannelsLast, FullyConnected, FullyConnected.grad_op, NormAct),
)
def epilogue(step: Step, target: Target) -> Step:
    """The step with what follows an operator fused into it. O(nodes).

    The new node has the name and the annotations of the last one of its chain. A sum of two results belongs
    to the first.
    """
    has_kernel = cache(target.has_kernel)  # asked once for equal requests
    drafts = Rewriter(step.graph)  # knows the shapes of what is asked for
    found: dict[Node, tuple[Node, _Fused]] = {}  # by the last node of a chain
    taken: set[Node] = set()

    def fits(fused: _Fused) -> bool:
        for node in (fused.factors, fused.node):
            if node is not None:
                drafts.infer(node)
        if fused.node.op in _CONVOLUTIONS:  # with a folded weight: it needs no kernel of its own
            return True
        return has_kernel(request_of_node(drafts, fused.node, train=step.train))

    for node in step.operators:
        chain = _chain(step, node, taken)
        choices = ((c, f) for c in _prefixes(chain) for f in _FORMS[node.op](step.graph, node, c) if fits(f))
        if (first := next(choices, None)) is not None:
            nodes, fused = first
            found[nodes[-1]] = node, fused
            taken.update((node, *nodes))

    def add(made: Rewriter, end: Node) -> None:
        node, (new, factors) = found[end]
        if factors is not None:
            _add(made, factors)
        made.node_of[node] = last = _add(made, new)
        for i in range(1, last.num_outputs):
            made.put(Entry(node, i), Entry(last, i))
        made.put(Entry(end), Entry(last))

    return step.substituted(found, add, gone=taken)


def _add(made: Rewriter, node: Node) -> Node:
    """Add a node that reads entries of the old graph, on what stands for them."""
    assert node.op is not None
    new = made.add(node.op, node.attrs, made.inputs(node), node.name, node.annotations)
    for i in range(new.num_outputs):
        made.put(Entry(node, i), Entry(new, i))
    return new


def _prefixes(chain: Sequence[Node]) -> Iterator[Sequence[Node]]:
    """The first nodes of a chain, the longest part first."""
    return (chain[:count] for count in range(len(chain), 0, -1))


def _chain(step: Step, node: Node, taken: Set[Node]) -> Sequence[Node]:
    """What follows `node`, if it can have an epilogue, as far as one kernel might compute it."""
    chain: list[Node] = []
    at = Entry(node)
    if node.op not in _FORMS or (step.train and node.op in _CONVOLUTIONS):
        return chain
    if node.forward is not None:
        if node.absent != {"data"}:  # it computes the other gradients, too
            return chain
        at = output(node, "d_data")
    while len(chain) < MOST_NODES and (reader := step.readers.only(at)) is not None and reader not in taken:
        may_fold = not chain and node.op in _CONVOLUTIONS
        is_first_norm = may_fold and is_norm(reader) and _folds(step, node, reader)
        if not is_first_norm and not _is_applied(step, node, at, reader):
            break
        chain.append(reader)
        at = Entry(reader)
    return chain


def _is_applied(step: Step, node: Node, at: Entry, reader: Node) -> bool:
    """True if `reader` is a function of each number of `at` and of arrays like it, made in the same pass as
    `node`. What the user marks differently, or what a plan must not repeat, stays apart in training.
    """
    op, graph = reader.op, step.graph
    return (
        op is not None
        and is_elementwise(op)
        and reader.num_outputs == 1
        and (reader.forward is None) == (node.forward is None)
        and all(
            (graph.shapes[e], graph.dtypes[e]) == (graph.shapes[at], graph.dtypes[at])
            for e in (*reader.inputs, Entry(reader))
        )
        and (reader.forward is not None or (op.recomputable and op.cheap))
        and (not step.train or agree(node, reader))
    )


def _folds(step: Step, node: Node, norm: Node) -> bool:
    """True if `norm` normalizes the filters of the convolution `node` by its moving averages, in float32, and
    only its result is read.
    """
    graph, rank = step.graph, len(step.graph.shapes[Entry(node)])
    if node.op is Convolution:
        axis = 1 if node.attrs.layout in _CHANNELS_FIRST else None
    else:
        axis = rank - 1 if node.op is ConvolutionChannelsLast else None
    return (
        norm.attrs.axis % rank == axis
        and not norm.absent
        and not any(step.readers.wants(Entry(norm, i)) for i in (1, 2))
        and all(graph.dtypes[e] == float32 for e in (*node.inputs, *norm.inputs))
    )


def _functions(graph: Graph, node: Node, chain: Sequence[Node]) -> Epilogue | None:
    """The epilogue of a chain of functions of one array; None for any other chain."""
    if any(len(n.inputs) != 1 for n in chain):
        return None
    calls = [Applied(n.op, n.attrs, n.input_names[0]) for n in chain if n.op is not None]
    return epilogue_of(calls, graph.dtypes[Entry(node)])


def _named(end: Node, op: type[Op], attrs: Any, *inputs: Entry) -> Node:
    """A node in place of a chain that ends in `end`."""
    return Node(op, attrs, inputs, end.name, annotations=dict(end.annotations))


def _addend(chain: Sequence[Node], at: Entry) -> tuple[Entry, ...]:
    """The other array, if the first node of a chain adds one to `at`."""
    return tuple(e for e in chain[0].inputs if e != at) if chain and is_sum(chain[0]) else ()


def _convolutions(graph: Graph, node: Node, chain: Sequence[Node]) -> Iterator[_Fused]:
    """A convolution with its norm, an addend and functions of the sum."""
    end, at = chain[-1], Entry(node)
    norm = chain[0] if is_norm(chain[0]) else None
    if norm is not None:
        at, chain = Entry(norm), chain[1:]
    addend = _addend(chain, at)
    rest = chain[len(addend) :]
    applied = _functions(graph, node, rest) if rest else None
    if (rest and applied is None) or (chain and node.op is Convolution):
        return
    data, weight, *bias = node.inputs
    attrs = attrs_by_name(node.attrs)
    more: dict[str, Any] = {"add": bool(addend), "epilogue": applied}
    if norm is None:
        fused = EpilogueAttrs(**attrs, **more)
        yield _Fused(_named(end, ConvolutionEpilogue, fused, *node.inputs, *addend))
        return
    folding = FoldNormAttrs(norm.attrs.eps, norm.attrs.fix_gamma, node.attrs.no_bias)
    own = (*norm.inputs[1:], *bias)
    attrs["no_bias"] = False
    if node.op is ConvolutionChannelsLast:
        factors = Node(NormFactors, folding, own, f"{norm.name}_factors")
        fused = EpilogueAttrs(**attrs, **more, scale=True)
        yield _Fused(
            _named(end, ConvolutionEpilogue, fused, data, weight, *factors.outputs, *addend), factors
        )
    folded = Node(FoldNorm, folding, (weight, *own), f"{norm.name}_fold")
    op, kind = node.op, type(node.attrs)
    if chain:
        op, kind, attrs = ConvolutionEpilogue, EpilogueAttrs, attrs | more
    assert op is not None
    yield _Fused(_named(end, op, kind(**attrs), data, *folded.outputs, *addend), folded)


def _layers(graph: Graph, node: Node, chain: Sequence[Node]) -> Iterator[_Fused]:
    """A dense layer and functions of its result."""
    applied = _functions(graph, node, chain)
    if applied is not None:
        a = node.attrs
        attrs = DenseEpilogueAttrs(a.num_hidden, a.no_bias, a.flatten, applied)
        yield _Fused(_named(chain[-1], DenseEpilogue, attrs, *node.inputs))


def _slopes(graph: Graph, node: Node, chain: Sequence[Node]) -> Iterator[_Fused]:
    """The gradient in data of a dense layer, and that of the activation before the layer."""
    end, *more = chain
    made, named = output(node, "d_data"), end.named_inputs
    if more or len(named) != 2 or named.get("d_out") != made or end.op is None:
        return
    (known,) = (name for name in named if name != "d_out")
    applied = epilogue_of([Applied(end.op, end.attrs, "d_out", "d_data")], graph.dtypes[made], (known,))
    if applied is not None:
        inputs = (*(node.named_inputs[n] for n in ("d_out", "weight")), named[known])
        yield _Fused(_named(end, DenseSlope, DenseSlopeAttrs(applied), *inputs))


def _norms(graph: Graph, node: Node, chain: Sequence[Node]) -> Iterator[_Fused]:
    """A norm with a rectifier, and the sum behind it."""
    addend = _addend(chain, Entry(node))
    if len(chain) == len(addend) and not node.attrs.plus and not node.absent:
        attrs = replace(node.attrs, plus="behind")
        yield _Fused(_named(chain[-1], NormAct, attrs, *node.inputs, *addend))


_FORMS: Mapping[type[Op] | None, Callable[[Graph, Node, Sequence[Node]], Iterator[_Fused]]] = {
    **dict.fromkeys(_CONVOLUTIONS, _convolutions),
    FullyConnected: _layers,
    FullyConnected.grad_op: _slopes,
    NormAct: _norms,
}
"""The nodes that may stand for an operator and its whole chain, the best first."""
