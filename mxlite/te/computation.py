"""Computations: tensors made of inputs by steps on elements, reductions over axes, and scans along one.

    t = Computation()
    x = t.input("data", (4, 8))
    share = t.exp(x - t.max(x, (1,)))
    out = share / t.sum(share, (1,))           a softmax; reduced axes stay, with length 1

Tensors broadcast as numpy's arrays do. Steps have the names of `steps.NUMPY`, reductions those of
`REDUCTIONS`. Equal nodes are one node (value numbering). `Op.compute(t, a, **inputs)` writes an operator so;
`adjoint.py` derives its gradients, `evaluate.py` carries it out, and `backends/nests/` makes loops of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ..core.errors import ShapeError
from ..graph.ir import Shape
from .steps import COMPARISONS, in_type, StandIn

Node = tuple[Any, ...]
"""("input", name, shape), ("constant", number), ("number", number), ("index", axis, length), or the name of
a step or reduction and the numbers of its operands; behind them a reduction has its axes, "broadcast" its
shape, "gather" (an input, an index) the input's axis, "scatter" (a base, an index, terms) the base's axis,
and "scan" (a first value, a factor, a term) its axis and whether it is reversed and exclusive. Axes are
counted from the end, as tensors of different ranks are aligned there.
"""

REDUCTIONS: Mapping[str, Any] = {
    "reduce_sum": np.add,
    "reduce_prod": np.multiply,
    "reduce_max": np.maximum,
    "reduce_min": np.minimum,
}
MOST_COUNTED = 1 << 24
"""Most positions along an axis that float32 numbers count one by one."""
LEAVES = frozenset({"input", "constant", "number", "index"})
_COMMUTE = frozenset({"add", "mul"})


class Tensor(StandIn):
    """A tensor of a computation, with Python's arithmetic."""

    __slots__ = ("number", "shape", "t")

    def __init__(self, t: Computation, number: int, shape: Shape) -> None:
        self.t, self.number, self.shape = t, number, shape

    def step(self, name: str, *operands: Any) -> Tensor:
        return self.t(name, *operands)


class Computation:
    """Tensors under construction."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.shapes: list[Shape] = []
        self._known: dict[Node, Tensor] = {}
        self._places: set[tuple[int, int]] = set()  # nodes that are whole numbers in [0, length)
        self.dtype: Any = None  # that of the arrays, to which an operator's numbers are rounded

    def tensor(self, number: int) -> Tensor:
        """The tensor of a node."""
        return Tensor(self, number, self.shapes[number])

    # -- leaves ----------------------------------------------------------------------------------

    def input(self, name: str, shape: Shape) -> Tensor:
        """The array `name`, in C order, under this shape."""
        return self.node(("input", name, tuple(shape)), tuple(shape))

    def view(self, x: Tensor, shape: Shape) -> Tensor:
        """An input under another shape."""
        kind, name, _ = self.nodes[x.number]
        assert kind == "input", f"only inputs have views, not the result of {kind}"
        return self.input(name, shape)

    def constant(self, x: float) -> Tensor:
        """A number that is an argument of the code, not a part of it."""
        return self.node(("constant", in_type(float(x), self.dtype)), ())

    def number(self, x: float) -> Tensor:
        """A literal in the code."""
        return self.node(("number", float(x)), ())

    def index(self, like: Tensor, axis: int) -> Tensor:
        """The position of an element of `like` along an axis."""
        at = axis % len(like.shape) - len(like.shape)
        if like.shape[at] == 1:
            return self.number(0.0)
        return self.node(("index", at, like.shape[at]), (like.shape[at], *(1,) * (-1 - at)))

    def pick(self, x: Tensor, index: Tensor, axis: int) -> Tensor:
        """The elements of the input `x` at an index along an axis, which has length 1 in the result.

        An index is cut to a whole number, and moved to the nearest end where it is out of range.
        """
        at = axis % len(x.shape) - len(x.shape)
        return self.at_index("gather", [x, self.tensor(self._place(index, x.shape[at]))], at)

    def add_at(self, base: Tensor, index: Tensor, terms: Tensor, axis: int) -> Tensor:
        """`base` with `terms` added at an index along an axis, which has length 1 in both; see `pick`.

        Terms and indices broadcast to one shape. What this has along other axes where `base` has length 1 is
        added up, in the order of the elements. It has the same lengths as `base` along the rest.
        """
        rank = len(base.shape)
        at = axis % rank - rank
        whole = common_shape([index.shape, terms.shape])
        assert len(whole) == rank and whole[at] == 1
        assert all(b in (1, n) for i, (b, n) in enumerate(zip(base.shape, whole)) if i - rank != at)
        return self.at_index("scatter", [base, self.tensor(self._place(index, base.shape[at])), terms], at)

    def scan(
        self,
        x: Any,
        axis: int,
        factor: Any = 1.0,
        first: Any = 0.0,
        reverse: bool = False,
        exclusive: bool = False,
    ) -> Tensor:
        """A value that is carried along an axis: ``y[i] = factor[i] * y[i - 1] + x[i]``, behind `first`.

        `reverse`: from the other end. `exclusive`: the values before each element instead. `x` or `factor`
        has the axis, along which `first` has length 1. A running sum has the factor 1, a running product of
        what is `factor` has zeros as `x` and begins with 1.
        """
        x, factor, first = (v if isinstance(v, Tensor) else self.number(v) for v in (x, factor, first))
        shape = common_shape([x.shape, factor.shape, first.shape])
        at = axis % len(shape) - len(shape)
        assert _without(first.shape, at) == first.shape, "each line has one first value"
        if shape[at] == 1:
            return self.broadcast(first, shape) if exclusive else factor * first + x
        numbers = (first.number, factor.number, x.number)
        return self.node(("scan", *numbers, at, reverse, exclusive), shape)

    def is_number(self, x: Tensor, value: float) -> bool:
        """True for a literal of this value."""
        return self.nodes[x.number] == ("number", value)

    def at_index(self, kind: str, operands: Sequence[Tensor], at: int) -> Tensor:
        """A gather or scatter, whose index is a place along the axis; see `pick` and `add_at`."""
        x, index = operands[:2]
        if kind == "gather" and self.nodes[x.number][0] != "input":
            raise ShapeError("only arrays have elements to pick, not what is computed.")
        shape = common_shape([_without(x.shape, at), index.shape]) if kind == "gather" else x.shape
        return self.node((kind, *(o.number for o in operands), at), shape)

    def _place(self, index: Tensor, length: int) -> int:
        """The node of an index that is cut to a whole number and moved to the nearest end of [0, length)."""
        if (index.number, length) in self._places:
            return index.number
        place = self("min", self("max", self.trunc(index), 0.0), float(length - 1))
        self._places.add((place.number, length))
        return place.number

    # -- steps -----------------------------------------------------------------------------------

    def __call__(self, name: str, *operands: Any) -> Tensor:
        """A step on elements."""
        given = [x if isinstance(x, Tensor) else self.number(x) for x in operands]
        if name == "mul":
            for x, y in (given, given[::-1]):
                if self.nodes[x.number] == ("number", 1.0):
                    return y
        numbers = [x.number for x in given]
        if name in _COMMUTE:
            numbers.sort()
        shape = given[0].shape
        for x in given:
            if x.shape != shape:
                shape = common_shape([x.shape for x in given])
                break
        return self.node((name, *numbers), shape)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *operands: self(name, *operands)

    def reduce(self, kind: str, x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
        """A reduction over axes, all unless given; they stay, with length 1."""
        rank = len(x.shape)
        chosen = sorted({i % rank - rank for i in (range(rank) if axes is None else axes)})
        many = tuple(i for i in chosen if x.shape[i] != 1)
        if not many:
            return x
        shape = tuple(1 if i - rank in many else n for i, n in enumerate(x.shape))
        return self.node((kind, x.number, many), shape)

    def sum(self, x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
        return self.reduce("reduce_sum", x, axes)

    def prod(self, x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
        return self.reduce("reduce_prod", x, axes)

    def max(self, x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
        return self.reduce("reduce_max", x, axes)

    def min(self, x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
        return self.reduce("reduce_min", x, axes)

    def mean(self, x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
        """The sum divided by the number of elements of each."""
        total = self.sum(x, axes)
        count = prod(n for n, kept in zip(x.shape, total.shape) if kept == 1)
        return total / self.constant(count)

    def where(self, how: str, x: Any, y: Any, yes: Any, no: Any) -> Tensor:
        """`yes` where the comparison `how` of x and y holds, else `no`."""
        assert how in COMPARISONS
        return self("select", self(how, x, y), yes, no)

    def broadcast(self, x: Any, shape: Shape) -> Tensor:
        """`x`, a tensor or a number, as a tensor of this shape."""
        given = x if isinstance(x, Tensor) else self.number(x)
        return given if given.shape == shape else self.node(("broadcast", given.number, shape), shape)

    def one_where(self, how: str, x: Any, y: Any) -> Tensor:
        """1 where the comparison holds, else 0."""
        return self.where(how, x, y, 1.0, 0.0)

    def zero_where(self, how: str, x: Any, y: Any) -> Tensor:
        """0 where the comparison holds, else 1: also where one of them is nan."""
        return self.where(how, x, y, 0.0, 1.0)

    def reduced_to(self, x: Tensor, whole: Shape, shape: Shape) -> Tensor:
        """The sum of `x`, which stands for a tensor of the shape `whole`, over what broadcasts from `shape`
        to that.
        """
        rank = len(whole)
        aligned = (1,) * (rank - len(shape)) + tuple(shape)
        own = (1,) * (rank - len(x.shape)) + x.shape
        axes = [i - rank for i in range(rank) if aligned[i] == 1 != whole[i]]
        times = float(np.prod([whole[i] for i in axes if own[i] == 1]))
        found = self.sum(x, [i for i in axes if own[i] != 1]) if any(own[i] != 1 for i in axes) else x
        return found if times == 1 else found * self._count(times)

    def _count(self, x: float) -> Tensor:
        """A constant that is not rounded to 16 bits."""
        return self.node(("constant", x), ())

    def node(self, node: Node, shape: Shape) -> Tensor:
        """The tensor of this node, or of an equal one before."""
        # 0.0 is not -0.0, and nan equals itself.
        key = (node[0], repr(node[1])) if node[0] in ("constant", "number") else node
        if key not in self._known:
            self.nodes.append(node)
            self.shapes.append(shape)
            self._known[key] = Tensor(self, len(self.nodes) - 1, shape)
        return self._known[key]


def operands_of(node: Node) -> tuple[int, ...]:
    """The numbers of the nodes that a node reads."""
    if node[0] in LEAVES:
        return ()
    if node[0] in ("gather", "scatter"):
        return node[1:-1]
    if node[0] == "scan":
        return node[1:4]
    return node[1:2] if node[0] in REDUCTIONS or node[0] == "broadcast" else node[1:]


def common_shape(shapes: Sequence[Shape]) -> Shape:
    """The shape to which these broadcast. Raises ShapeError."""
    rank = max(map(len, shapes), default=0)
    found = [1] * rank
    for shape in shapes:
        for i, n in enumerate(shape, rank - len(shape)):
            if n != 1 and found[i] not in (1, n):
                raise ShapeError(f"tensors of shapes {', '.join(map(str, shapes))} do not broadcast.")
            found[i] = n if found[i] == 1 else found[i]
    return tuple(found)


def needed_by(t: Computation, roots: Iterable[int]) -> set[int]:
    """The nodes on which these depend, and these."""
    needed: set[int] = set()
    stack = list(roots)
    while stack:
        i = stack.pop()
        if i not in needed:
            needed.add(i)
            if t.nodes[i][0] not in LEAVES:
                stack += operands_of(t.nodes[i])
    return needed


def pruned(t: Computation, roots: Sequence[int]) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """The nodes on which `roots` depend, numbered anew, and the numbers of these."""
    order = sorted(needed_by(t, roots))
    new = {i: number for number, i in enumerate(order)}
    return tuple(renumbered(t.nodes[i], new) for i in order), tuple(new[i] for i in roots)


def renumbered(node: Node, new: Mapping[int, int]) -> Node:
    """A node whose operands have other numbers: those of sums and products in their order."""
    count = len(operands_of(node))
    operands = [*map(new.__getitem__, node[1 : 1 + count])]
    return (node[0], *(sorted(operands) if node[0] in _COMMUTE else operands), *node[1 + count :])


def farthest(t: Computation, nodes: Iterable[int]) -> int:
    """The most positions along an axis that one of these nodes is the position of, picks from, or adds at."""
    found = 0
    for i in nodes:
        node = t.nodes[i]
        if node[0] == "index":
            found = max(found, node[2])
        elif node[0] in ("gather", "scatter"):
            found = max(found, t.shapes[node[1]][node[-1]])
    return found


def _without(shape: Shape, axis: int) -> Shape:
    """A shape with length 1 along an axis, which is counted from the end."""
    return tuple(1 if i - len(shape) == axis else n for i, n in enumerate(shape))
