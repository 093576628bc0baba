"""Channels last, from the first convolution to the last.

Convolutions are fastest on activations whose channels lie last in memory, and so is everything that works
channel by channel. Arrays that users see have them behind the batch axis. This pass gives every
convolution it can the form `_convolution_channels_last`, lets the operators behind it work on what it makes
as it lies, and puts `_channels_first` where an operator, or the user, wants the usual order:

    data -> channels_last -> convolution -> norm -> relu -> convolution -> pooling -> channels_first ->
    flatten

Elementwise operators and those of `_carriers` follow their data: where one of their arrays has its channels
last, all get them there. If that order comes from transpositions of the user's alone, only where this
transposes fewer bytes than the usual order:

    x, transpose(y) -> sum         x in the usual order, y is transposed once, as the user says
    transpose(y) -> relu           relu of y: nothing is transposed

Which inputs of the latter are such arrays is said there, by their names: shapes do
not tell, for a parameter of each channel and a row of an image may be of the same size. What is broadcast may
have fewer axes, which count from the last one; it gets those it lacks before its channels move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from ...graph import Entry, Graph, Node, Op, Rewriter
from ...graph.attrs import attrs_by_name
from ...graph.opdef import known_shape
from ...ops import find_op
from ...ops.elementwise.cast import Shore
from ...ops.elementwise.stretch import Stretch
from ...ops.layout import ChannelsFirst, ChannelsLast, first, last, LayoutAttrs, moves
from ...ops.nn.conv import Convolution
from ...ops.nn.conv_channels_last import ChannelsLastAttrs, ConvolutionChannelsLast
from ...ops.nn.deconv import Deconvolution
from ...ops.nn.deconv_channels_last import ChannelsLastDeconvAttrs, DeconvolutionChannelsLast
from ...ops.nn.dropout import DropoutChannelsLast
from ...ops.nn.pool import Pooling
from ...ops.nn.pool_channels_last import ChannelsLastPoolingAttrs, PoolingChannelsLast
from ...ops.norm.lrn import LRN
from ...ops.norm.lrn_channels_last import LrnChannelsLast
from ...ops.norm.norm_act import NormAct
from ...ops.reduce.reduce import reduced_axes
from ...ops.shape.padding import Pad
from ...ops.shape.reshape import expand_dims
from ...ops.shape.shape import transpose
from ...ops.shape.split import SliceChannel
from ..base import Request
from ..rewrite import graph_pass, Stage, Step
from .target import Target


class Follow(NamedTuple):
    """How an operator works with channels last.

    form: (node, rank of its arrays) -> the operator and attributes that do the same there, or None. arrays:
    the inputs that lie as its result does, None for all; the others it reads as they are.
    """

    form: Callable[[Node, int], tuple[type[Op], Any] | None]
    arrays: tuple[str, ...] | None = None


_FORMS: Mapping[type[Op], tuple[type[Op], type[Any]]] = {
    Convolution: (ConvolutionChannelsLast, ChannelsLastAttrs),
    Deconvolution: (DeconvolutionChannelsLast, ChannelsLastDeconvAttrs),
}
"""Operator -> its form with channels last, and that one's attributes."""


@graph_pass(Stage.FORWARD, anchors=tuple(_FORMS))
def channels_last(step: Step, target: Target) -> Step:
    """Convolutions, and what lies between them, on arrays with their channels last. O(nodes)."""
    graph, asked = step.graph, cache(target.has_kernels)  # once for equal convolutions
    can = {n for n in graph.nodes if _can_convolve(graph, n, step.train, asked)}
    return step.became(_Layout(graph, can).run()) if can else step


class _Layout:
    """The pass at work: `lasts` has, for old entries, the entry with channels last; `r.of` the usual one."""

    def __init__(self, graph: Graph, can: Set[Node]) -> None:
        """`can` are the convolutions that get the form."""
        self.r = Rewriter(graph)
        self.can = can
        self.lasts: dict[Entry, Entry] = {}
        self.wider: dict[tuple[Entry, int], Entry] = {}  # the same of what has fewer axes than its reader's
        self.firsts: set[Entry] = set()  # old entries that are there in the usual order too
        self.turned: set[Entry] = set()  # those of `lasts` that follow from no convolution

    def run(self) -> Graph:
        graph = self.r.old
        for node in graph.nodes:
            if node.op is None:
                self.firsts.add(Entry(node))
            elif node in self.can:
                op, attrs = _form_of(node)
                ins = [self.last(node.inputs[0]), *(self.first(e) for e in node.inputs[1:])]
                self._made(node, op, attrs, ins)
            elif node.op is transpose and self._is_move(node):
                continue
            elif (form := self._follows(node)) is not None:
                arrays, rank = _arrays(node), len(self.r.shapes[Entry(node)])
                if not self._attracts(node.inputs):
                    self.turned.update((*node.inputs, *node.outputs))
                ins = [self.raised(e, rank) if e in arrays else self.first(e) for e in node.inputs]
                self._made(node, *form, ins)
            else:
                for e in node.inputs:
                    self.first(e)
                self.r.keep(node)
                self.firsts.update(node.outputs)
        for e in graph.outputs:
            self.first(e)
        return self.r.graph(ordered=False)

    def last(self, old: Entry) -> Entry:
        """`old` with its channels last."""
        if old not in self.lasts:
            shape = self.r.shapes[old]
            if len(shape) < 3:
                return self.first(old)
            attrs = LayoutAttrs(moves=moves(shape))
            node = self.r.add(ChannelsLast, attrs, [self.r.of(old)], f"{old.node.name}_channels_last")
            self.lasts[old] = Entry(node)
        return self.lasts[old]

    def raised(self, old: Entry, rank: int) -> Entry:
        """`old`, broadcast with arrays of so many axes, with its channels last; a reduction's has more axes
        than its result.
        """
        lacks = rank - len(self.r.shapes[old])
        if lacks <= 0:
            return self.last(old)
        if all(d == 1 for d in self.r.shapes[old]):
            return self.first(old)  # one number for all elements
        if (old, rank) not in self.wider:
            name, attrs = old.node.name, expand_dims.Attrs(axis=tuple(range(lacks)))
            wide = Entry(self.r.add(expand_dims, attrs, [self.first(old)], f"{name}_of_{rank}_axes"))
            move = LayoutAttrs(moves=moves(self.r.shapes[wide]))
            node = self.r.add(ChannelsLast, move, [wide], f"{name}_of_{rank}_axes_channels_last")
            self.wider[old, rank] = Entry(node)
        return self.wider[old, rank]

    def first(self, old: Entry) -> Entry:
        """`old` in the usual order."""
        if old not in self.firsts:
            attrs = LayoutAttrs(moves=moves(self.r.shapes[old]))
            node = self.r.add(ChannelsFirst, attrs, [self.lasts[old]], f"{old.node.name}_channels_first")
            self.r.put(old, Entry(node))
            self.firsts.add(old)
        return self.r.of(old)

    def _made(self, node: Node, op: type[Op], attrs: Any, ins: list[Entry]) -> None:
        new = self.r.add(op, attrs, ins, node.name, node.annotations)
        for i in range(node.num_outputs):
            old = Entry(node, i)
            if len(self.r.shapes[old]) >= 3:
                self.lasts[old] = Entry(new, i)
            else:
                self.r.put(old, Entry(new, i))
                self.firsts.add(old)

    def _is_move(self, node: Node) -> bool:
        """True if a transposition only moves channels from or to the last axis: that order is there."""
        (data,), out = node.inputs, Entry(node)
        rank = len(self.r.shapes[data])
        usual = tuple(range(rank))
        if rank >= 3 and node.attrs.axes == last(usual) and data in self.lasts:
            self.r.put(out, self.lasts[data])
            self.firsts.add(out)
            return True
        if rank >= 3 and node.attrs.axes == first(usual):
            self.lasts[out] = self.first(data)
            self.turned.add(out)
            return True
        return False

    def _attracts(self, arrays: Iterable[Entry]) -> bool:
        """True if one of these has its channels last because of a convolution."""
        return any(e in self.lasts and e not in self.turned for e in arrays)

    def _follows(self, node: Node) -> tuple[type[Op], Any] | None:
        """How `node` works with channels last, if that is where its data lies."""
        assert node.op is not None
        follow = _carriers().get(node.op)
        if not node.inputs or (follow is None and not _is_elementwise(self.r.old, node)):
            return None
        shape = self.r.shapes[Entry(node) if follow is None else node.inputs[0]]
        if len(shape) < 3 or not known_shape(shape):
            return None
        whole = [e for e in _arrays(node) if len(self.r.shapes[e]) == len(shape)]
        if not self._attracts(whole):
            late, usual = (
                sum(self.r.old.nbytes(e) for e in whole if e not in there)
                for there in (self.lasts, self.firsts)
            )
            if late >= usual:
                return None
        return _as_it_is(node) if follow is None else follow.form(node, len(shape))


def _arrays(node: Node) -> set[Entry]:
    """The inputs of a node that lie as its result does, if it is one that follows."""
    assert node.op is not None
    follow = _carriers().get(node.op)
    if follow is None or follow.arrays is None:
        return set(node.inputs)
    return {e for name, e in zip(node.input_names, node.inputs) if name in follow.arrays}


def _is_elementwise(graph: Graph, node: Node) -> bool:
    """True for steps on elements, wherever these lie: not for slopes of channels, random ones, or axes."""
    op, a = node.op, node.attrs
    if op is None or not op.elementwise or op.has_stream(a) or issubclass(op, Stretch):
        return False
    shapes, whole = [graph.shapes[e] for e in node.inputs], graph.shapes[Entry(node)]
    return all(op.operand_shape(a, n, s, whole) == s for n, s in zip(node.input_names, shapes))


def _form_of(node: Node) -> tuple[type[Op], Any]:
    """The form of a convolution with channels last, and its attributes."""
    assert node.op is not None
    op, attrs = _FORMS[node.op]
    return op, attrs(**attrs_by_name(node.attrs) | {"layout": None})


def _can_convolve(graph: Graph, node: Node, train: bool, has_kernels: Callable[[Request], bool]) -> bool:
    """True for a convolution that has a kernel with channels last, and in training one for its gradient."""
    if node.op not in _FORMS:
        return False
    op, attrs = _form_of(node)
    shapes = [graph.shapes[e] for e in node.inputs]
    dtypes = tuple(graph.dtypes[e] for e in node.inputs)
    inputs, outputs = (last(shapes[0]), *shapes[1:]), (last(graph.shapes[Entry(node)]),)
    return has_kernels(Request(op, attrs, inputs, outputs, dtypes[0], dtypes, None, train))


def _as_it_is(node: Node) -> tuple[type[Op], Any]:
    """For operators that treat every element alike."""
    assert node.op is not None
    return node.op, node.attrs


def _axis(name: str) -> Callable[[Node, int], tuple[type[Op], Any] | None]:
    """For operators with an axis in attribute `name`."""

    def follow(node: Node, rank: int) -> tuple[type[Op], Any] | None:
        axis = getattr(node.attrs, name) % rank
        assert node.op is not None
        new = rank - 1 if axis == 1 else axis - 1 if axis > 1 else 0
        return node.op, replace(node.attrs, **{name: new})

    return follow


def _split(node: Node, rank: int) -> tuple[type[Op], Any] | None:
    return None if node.attrs.squeeze_axis else _axis("axis")(node, rank)


def _padded(node: Node, rank: int) -> tuple[type[Op], Any] | None:
    widths = node.attrs.pad_width
    order = last(tuple(range(rank)))
    return Pad, replace(node.attrs, pad_width=tuple(widths[2 * i + k] for i in order for k in (0, 1)))


def _reduced(node: Node, rank: int) -> tuple[type[Op], Any] | None:
    """For reductions that keep their axes, or leave samples and channels alone, or nothing."""
    axes = reduced_axes(node.attrs, rank)
    if not node.attrs.keepdims and axes not in (tuple(range(2, rank)), tuple(range(rank))):
        return None
    new = tuple(i for i, axis in enumerate(last(tuple(range(rank)))) if axis in axes)
    assert node.op is not None
    return node.op, replace(node.attrs, axis=new, exclude=False)


def _dropout(node: Node, rank: int) -> tuple[type[Op], Any] | None:
    """An element keeps its random number."""
    return DropoutChannelsLast, node.attrs


def _pooling(node: Node, rank: int) -> tuple[type[Op], Any] | None:
    return PoolingChannelsLast, ChannelsLastPoolingAttrs(**attrs_by_name(node.attrs) | {"layout": None})


def _lrn(node: Node, rank: int) -> tuple[type[Op], Any] | None:
    return LrnChannelsLast, node.attrs


_REDUCTIONS = ("sum", "mean", "max", "min", "prod", "nansum", "nanprod")

_found: dict[type[Op], Follow] = {}


def _carriers() -> dict[type[Op], Follow]:
    """The operators that can work with channels last, besides the elementwise ones."""
    if not _found:
        _found[find_op("BatchNorm")] = Follow(_axis("axis"), ("data",))
        _found[NormAct] = Follow(_axis("axis"), ("data", "addend"))
        _found[Pooling] = Follow(_pooling, ("data",))
        _found[LRN] = Follow(_lrn, ("data",))
        _found[find_op("Concat")] = Follow(_axis("dim"))
        _found[Shore] = Follow(lambda node, rank: _as_it_is(node), ("data",))
        _found[SliceChannel] = Follow(_split)
        _found[Pad] = Follow(_padded)
        _found.update((find_op(name), Follow(_reduced)) for name in _REDUCTIONS)
        _found[find_op("Dropout")] = Follow(_dropout, ("data",))
    return _found
