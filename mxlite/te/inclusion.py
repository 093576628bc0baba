"""Computations inside others: their nodes written again, over a domain whose axes may be parts of theirs.

    (8, 64, 512)    a chain of elementwise steps          both over (8, 64, 512): the first axis of the
    (512, 512)      a softmax of its rows                 softmax is (8, 64) there

An array in C order has any shape of as many elements, so two domains of as many have one that refines both if
their axes end at places of which each divides the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod

from ..core.errors import ShapeError
from ..graph.ir import Shape
from .computation import Computation, Node, REDUCTIONS, Tensor

Marks = frozenset[int]
"""The places where axes of a domain end: for each of its axes, the product of it and all behind it, and 1."""


def marks_of(domain: Shape) -> Marks:
    """The marks of a domain; axes of length 1 leave none."""
    return frozenset(prod(domain[i:]) for i in range(len(domain) + 1))


def common_marks(those: Iterable[Marks]) -> Marks | None:
    """The marks of the domain that refines these; None if there is none."""
    found = frozenset[int]().union(*those)
    return found if all(y % x == 0 for x, y in pairwise(sorted(found))) else None


class Refinement:
    """How shapes and axes of one domain look in another that refines it."""

    def __init__(self, domain: Shape, marks: Marks) -> None:
        ends = sorted(marks, reverse=True)
        self.rank = len(domain)
        self.lengths = tuple(x // y for x, y in pairwise(ends))
        self.parts = []  # for each axis of the domain, its axes in the other one
        for i in range(len(domain)):
            first, last = prod(domain[i:]), prod(domain[i + 1 :])
            self.parts.append([k for k, (x, y) in enumerate(pairwise(ends)) if x <= first and y >= last])

    def shape(self, shape: Shape) -> Shape:
        """A shape that broadcasts to the domain."""
        found = [1] * len(self.lengths)
        for axis, n in enumerate(shape, self.rank - len(shape)):
            if n != 1:
                for k in self.parts[axis]:
                    found[k] = self.lengths[k]
        return tuple(found)

    def axes(self, axes: Sequence[int]) -> list[int]:
        """Axes, counted from the end."""
        return [k - len(self.lengths) for axis in axes for k in self.parts[self.rank + axis]]


refinement = lru_cache(maxsize=1024)(Refinement)
"""The refinement of a domain with these marks."""


def included(
    t: Computation,
    nodes: Sequence[Node],
    read: Callable[[str, Shape], Tensor],
    refinement: Refinement | None = None,
) -> list[Tensor]:
    """The tensors of another computation's nodes, in their order, as tensors of `t`.

    `read(name, shape)` gives what stands for an input under a shape, which is one of t's domain. Raises
    ShapeError for steps that have no other form: elements are picked from arrays alone, and positions are
    those along one axis.
    """
    made: list[Tensor] = []

    def seen(shape: Shape) -> Shape:
        return shape if refinement is None else refinement.shape(shape)

    def along(axes: Sequence[int]) -> Sequence[int]:
        return axes if refinement is None else refinement.axes(axes)

    for node in nodes:
        kind, *rest = node
        if kind == "input":
            x = read(rest[0], seen(rest[1]))
        elif kind in ("constant", "number"):
            x = t.node(node, ())
        elif kind == "index":
            (at,) = _only(along(rest[:1]))
            x = t.node((kind, at, rest[1]), (rest[1], *(1,) * (-1 - at)))
        elif kind in REDUCTIONS:
            x = t.reduce(kind, made[rest[0]], along(rest[1]))
        elif kind == "broadcast":
            x = t.broadcast(made[rest[0]], seen(rest[1]))
        elif kind in ("gather", "scatter"):
            (at,) = _only(along(rest[-1:]))
            x = t.at_index(kind, [made[i] for i in rest[:-1]], at)
        else:
            x = t(kind, *map(made.__getitem__, rest))
        made.append(x)
    return made


def _only(axes: Sequence[int]) -> Sequence[int]:
    if len(axes) != 1:
        raise ShapeError(f"positions along an axis are none along {len(axes)} axes.")
    return axes
