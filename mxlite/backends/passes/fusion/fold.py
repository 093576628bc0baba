"""Epilogue fusion at inference: a convolution applies the norm by moving averages, sum and rectifier.

    Convolution -> BatchNorm [-> + addend] [-> relu]

With channels last, the convolution's kernel applies all of these to its output while it is in registers
(`_convolution_epilogue`): the norm is a factor and a shift for each channel (`_norm_factors`). If a backend's
convolutions take no factor, the norm is folded into weight and bias (`_fold_norm`), which takes a second copy
of the weight. Both depend on parameters only, so that a program that keeps its constants computes them when
parameters change. Each node must be the only reader of the one before it, whose result must be no output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from ....core.dtype import float32
from ....graph import Entry, Graph, Node, Rewriter
from ....graph.attrs import attrs_by_name
from ....ops.nn.conv import Convolution
from ....ops.nn.conv_channels_last import ConvolutionChannelsLast, ConvolutionEpilogue, EpilogueAttrs
from ....ops.norm.fold_norm import FoldNorm, FoldNormAttrs, NormFactors
from ...base import Request
from ...rewrite import graph_pass, Readers, Stage, Step
from ..target import Target
from .norm_act import is_norm, is_relu, is_sum

_PLAIN = (None, "NCW", "NCHW", "NCDHW")


@dataclass(frozen=True)
class _Chain:
    """A convolution and the nodes to be fused with it, the last of which is `end`."""

    convolution: Node
    end: Node
    norm: Node | None = None
    addend: Entry | None = None
    relu: bool = False
    inner: tuple[Node, ...] = ()  # all but `end`
    scaled: bool = False  # the norm as a factor of the output

    @property
    def has_epilogue(self) -> bool:
        return self.addend is not None or self.relu

    def attempts(self, with_norm: _Chain) -> Iterator[_Chain]:
        """The chains to be tried in its place, the best first; `with_norm` is the part up to the norm."""
        for chain in dict.fromkeys((self, with_norm)):
            if chain.norm is not None and chain.convolution.op is ConvolutionChannelsLast:
                yield replace(chain, scaled=True)
            yield chain


@graph_pass(Stage.FORWARD, after=("channels_last",), anchors=(Convolution, ConvolutionChannelsLast))
def fold(step: Step, target: Target) -> Step:
    """The step, if it is for inference, with one convolution for each chain. O(nodes).

    The new node has the name and the annotations of the last one of its chain.
    """
    if step.train:
        return step
    graph, asked = step.graph, cache(target.has_kernel)  # once for equal chains
    chains: dict[Node, _Chain] = {}
    taken: set[Node] = set()
    for node in graph.nodes:
        if node.op is Convolution or node.op is ConvolutionChannelsLast:
            chain = _chain(graph, step.readers, taken, node, asked)
            if chain.inner:
                chains[chain.end] = chain
                taken.update(chain.inner, (chain.end,))
    return step.substituted(chains, lambda r, node: _fold(r, chains[node]), gone=taken)


def _chain(
    graph: Graph,
    readers: Readers,
    taken: set[Node],
    node: Node,
    has_kernel: Callable[[Request], bool],
) -> _Chain:
    """The longest chain of the convolution `node`; the sum of two convolutions belongs to the first."""
    chain = with_norm = _Chain(node, node)
    while (reader := readers.only(at := Entry(chain.end))) is not None and reader not in taken:
        after = replace(chain, end=reader, inner=(*chain.inner, chain.end))
        if is_norm(reader):
            if chain.norm or chain.has_epilogue or not _folds(graph, readers, node, reader):
                break
            chain = with_norm = replace(after, norm=reader)
        elif node.op is not ConvolutionChannelsLast:
            break
        elif is_sum(reader) and not chain.has_epilogue:
            (addend,) = (e for e in reader.inputs if e != at)
            if graph.shapes[addend] != graph.shapes[at] or graph.dtypes[addend] != graph.dtypes[at]:
                break
            chain = replace(after, addend=addend)
        elif is_relu(reader) and not chain.relu:
            chain = replace(after, relu=True)
        else:
            break
    return next(
        way
        for way in chain.attempts(with_norm)
        if not (way.has_epilogue or way.scaled) or has_kernel(_request(graph, way))
    )


def _folds(graph: Graph, readers: Readers, node: Node, norm: Node) -> bool:
    """True if `norm` normalizes the filters of `node` in float32, and only its result is read."""
    rank = len(graph.shapes[Entry(node)])
    plain = node.op is Convolution
    return (
        norm.attrs.axis % rank == (1 if plain else rank - 1)
        and (not plain or node.attrs.layout in _PLAIN)
        and not norm.absent
        and not any(readers.wants(Entry(norm, i)) for i in (1, 2))
        and all(graph.dtypes[e] == float32 for e in (*node.inputs, *norm.inputs))
    )


def _request(graph: Graph, chain: _Chain) -> Request:
    """The request for a kernel of the whole chain."""
    node, out = chain.convolution, graph.shapes[Entry(chain.end)]
    shapes, kind = [graph.shapes[e] for e in node.inputs[:2]], graph.dtypes[node.inputs[0]]
    attrs = _epilogue_attrs(chain)
    shapes += [out[-1:]] * (attrs.scale + (not attrs.no_bias))
    if chain.addend is not None:
        shapes.append(out)
    kinds = (*(graph.dtypes[e] for e in node.inputs[:2]), *(kind for _ in shapes[2:]))
    return Request(ConvolutionEpilogue, attrs, tuple(shapes), (out,), kind, kinds, None, False)


def _epilogue_attrs(chain: _Chain) -> EpilogueAttrs:
    attrs = attrs_by_name(chain.convolution.attrs)
    attrs["no_bias"] = attrs["no_bias"] and chain.norm is None
    return EpilogueAttrs(**attrs, scale=chain.scaled, add=chain.addend is not None, relu=chain.relu)


def _fold(r: Rewriter, chain: _Chain) -> None:
    """Add the nodes of a chain, the last of which, the convolution, replaces the chain's end."""
    node, end, norm = chain.convolution, chain.end, chain.norm
    data, weight, *bias = (r.of(e) for e in node.inputs)
    attrs = node.attrs
    if norm is not None:
        folding = FoldNormAttrs(norm.attrs.eps, norm.attrs.fix_gamma, node.attrs.no_bias)
        ins = [*(r.of(e) for e in norm.inputs[1:]), *bias]
        if chain.scaled:
            made = r.add(NormFactors, folding, ins, f"{norm.name}_factors")
            bias = [Entry(made), Entry(made, 1)]
        else:
            made = r.add(FoldNorm, folding, [weight, *ins], f"{norm.name}_fold")
            weight, bias = Entry(made), [Entry(made, 1)]
        attrs = replace(attrs, no_bias=False)
    op = node.op
    assert op is not None
    if chain.has_epilogue or chain.scaled:
        op, attrs = ConvolutionEpilogue, _epilogue_attrs(chain)
    ins = [data, weight, *bias, *(() if chain.addend is None else (r.of(chain.addend),))]
    r.put(Entry(end), Entry(r.add(op, attrs, ins, end.name, end.annotations)))
