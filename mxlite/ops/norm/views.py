"""Views of arrays as (N, G, C, S, P), with one number for each of (N, G, P) and the axes C, S folded.

layer norm, softmax      (before, 1, K, 1, after): K is the axis
group norm               (N, groups, channels of one, positions, 1)
instance norm            (N, C, 1, positions, 1)
"""

from __future__ import annotations

from math import prod

from ...graph.ir import Shape

View = tuple[int, int, int, int, int]

FOLDED = (2, 3)
"""The axes C, S of a view."""


def along(shape: Shape, axis: int) -> View:
    """The view that folds one axis."""
    axis %= len(shape)
    return prod(shape[:axis]), 1, shape[axis], 1, prod(shape[axis + 1 :])
