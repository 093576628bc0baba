"""Views of arrays as (N, G, C, S, P), with one number for each of (N, G, P) and the axes C, S folded.

    layer norm, softmax      (before, 1, K, 1, after): K is the axis
    group norm               (N, groups, channels of one, positions, 1)
    instance norm            (N, C, 1, positions, 1)

A kernel processes a group of numbers at a time, and the elements they are computed from in parts of at most
BLOCK. A group that is one part stays in the cache from the first pass over it to the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from ...graph.ir import Shape
from ..scratch import BLOCK

View = tuple[int, int, int, int, int]
Part = tuple[slice, slice, slice, slice, slice]

FOLDED = (2, 3)
"""The axes C, S of a view."""


def along(shape: Shape, axis: int) -> View:
    """The view that folds one axis."""
    axis %= len(shape)
    return prod(shape[:axis]), 1, shape[axis], 1, prod(shape[axis + 1 :])


def groups(view: View) -> Iterator[tuple[slice, slice]]:
    """Cut the axes N, G so that a group has at most BLOCK elements, or is a single (n, g)."""
    n, g, *_ = view
    rows, columns = _group_shape(view)
    for i in range(0, n, rows):
        for j in range(0, g, columns):
            yield slice(i, min(n, i + rows)), slice(j, min(g, j + columns))


def parts(view: View, group: tuple[slice, slice]) -> list[Part]:
    """Cut a group into parts of at most BLOCK elements."""
    _, _, c, s, p = view
    dc, ds, dp = _part_shape(view)
    return [
        (*group, slice(k, min(c, k + dc)), slice(u, min(s, u + ds)), slice(v, min(p, v + dp)))
        for k in range(0, c, dc)
        for u in range(0, s, ds)
        for v in range(0, p, dp)
    ]


def group_size(view: View) -> int:
    """Numbers in the largest group: one for each (n, g, p)."""
    rows, columns = _group_shape(view)
    return rows * columns * view[4]


def part_size(view: View) -> int:
    """Elements of the largest part."""
    return prod(_group_shape(view)) * prod(_part_shape(view))


def _group_shape(view: View) -> tuple[int, int]:
    n, g, *folded = view
    each = max(1, prod(folded))
    if g * each <= BLOCK:
        return max(1, min(n, BLOCK // max(1, g * each))), max(1, g)
    return 1, max(1, min(g, BLOCK // each))


def _part_shape(view: View) -> tuple[int, int, int]:
    _, _, c, s, p = (max(1, d) for d in view)
    if c * s * p <= BLOCK:
        return c, s, p
    if s * p <= BLOCK:
        return BLOCK // (s * p), s, p
    if p <= BLOCK:
        return 1, BLOCK // p, p
    return 1, 1, BLOCK


def fold(xp: Any, ufunc: Any, part: Part, x: Any, total: Any, some: Any) -> None:
    """total[n, g, p] = ufunc of its value (garbage before the first part) and x folded over C, S.

    x: the part's elements. total: (n, g, 1, 1, P) of the group. some: flat scratch of `group_size`.
    """
    into = total[..., part[4]]
    if part[2].start == 0 and part[3].start == 0:
        ufunc.reduce(x, axis=FOLDED, keepdims=True, out=into)
    else:
        more = some[: into.size].reshape(into.shape)
        ufunc.reduce(x, axis=FOLDED, keepdims=True, out=more)
        ufunc(into, more, out=into)


def like(box: Any, x: Any) -> Any:
    """The first part of flat scratch, in the shape of x."""
    return box[: x.size].reshape(x.shape)
