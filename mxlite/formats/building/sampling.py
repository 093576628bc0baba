"""Interpolation of images at the positions of a grid.

Every tap of the interpolation is one look-up of rows (one a position, holding all channels) times a weight.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from ...core import FormatError
from .rounding import rounded
from .value import GraphValue


class Image:
    """Data (N, C, spatial...) as a table with one row for each position of each sample."""

    def __init__(self, x: GraphValue) -> None:
        b = x.builder
        self.size, self.channels, self.batch = x.shape[2:], x.shape[1], x.shape[0]
        turned = b.transpose(x, (0, *range(2, x.rank), 1))
        self.table = b.reshape(turned, (self.batch * prod(self.size), self.channels))

    def rows(self, places: list[GraphValue], samples: GraphValue) -> GraphValue:
        """(..., C): the elements at whole places, one value for each axis, all in range."""
        b = self.table.builder
        flat = samples * prod(self.size)
        for i, place in enumerate(places):
            flat = b.binary("add", flat, place * prod(self.size[i + 1 :]))
        return b.op("take", self.table, flat)


def sampled(x: GraphValue, grid: GraphValue, mode: str, padding: str, align: bool) -> GraphValue:
    """`x` at the positions of `grid`, which lie in [-1, 1], the last axis of `x` first.

    x: (N, C, L...), grid: (N, M..., rank) -> (N, C, M...).  mode: linear, nearest or cubic.
    padding: zeros, border or reflection, for positions outside.  align: -1 and 1 are the centres of the outer
    elements, not their borders.
    """
    b, rank = x.builder, x.rank - 2
    if grid.rank != x.rank or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
        raise FormatError(f"data {x.shape} and grid {grid.shape} do not fit each other.")
    if mode not in ("linear", "nearest", "cubic"):
        raise FormatError(f"mode {mode!r} is none.")
    positions = grid.shape[1:-1]
    image = Image(x)
    samples = b.constant(np.arange(x.shape[0]).reshape(-1, *(1,) * rank), np.int64)
    taps = []
    for axis, length in enumerate(x.shape[2:]):
        place = rank - 1 - axis  # the grid names x first
        g = b.reshape(b.slice(grid, -1, place, place + 1), (x.shape[0], *positions))
        at = (g + 1.0) * ((length - 1) / 2) if align else (g + 1.0) * (length / 2) + -0.5
        taps.append([_inside(*tap, length, padding, align) for tap in _taps(at, mode)])
    total = None
    for chosen in product(*taps):
        rows = image.rows([place for place, _ in chosen], samples)
        weight = None
        for _, w in chosen:
            if w is not None:
                weight = w if weight is None else b.binary("mul", weight, w)
        if weight is not None:
            rows = b.binary("mul", rows, b.cast(b.reshape(weight, (*weight.shape, 1)), rows.dtype))
        total = rows if total is None else b.binary("add", total, rows)
    assert total is not None
    return b.transpose(total, (0, rank + 1, *range(1, rank + 1)))


def _taps(at: GraphValue, mode: str) -> list[tuple[GraphValue, GraphValue | None]]:
    """The whole-number positions around a coordinate, and their weights."""
    b = at.builder
    if mode == "nearest":
        return [(b.cast(rounded(at), np.int64), None)]
    low = b.op("floor", at)
    part, first = b.binary("sub", at, low), b.cast(low, np.int64)
    if mode == "linear":
        return [(first, part * -1.0 + 1.0), (first + 1, part)]
    return [(first + i, _cubic(part, i)) for i in (-1, 0, 1, 2)]


def _cubic(part: GraphValue, i: int, a: float = -0.75) -> GraphValue:
    """Weight of the tap at i for a coordinate at `part` in [0, 1). R. Keys, 1981, cubic convolution."""
    b = part.builder
    d = b.op("abs", part - float(i))
    square = d * d
    if i in (0, 1):
        return b.binary("mul", d * (a + 2) - (a + 3), square) + 1.0
    return b.binary("mul", d * a - 5 * a, square) + (d * (8 * a)) - 4 * a


def _inside(
    place: GraphValue, weight: GraphValue | None, length: int, padding: str, align: bool
) -> tuple[GraphValue, GraphValue | None]:
    """A position clipped to [0, length); with zero padding positions outside have weight 0."""
    b = place.builder
    if padding == "reflection":
        period = max(2 * (length - 1), 1) if align else 2 * length
        around = b.op("_mod_scalar", place, scalar=float(period))
        mirrored = b.reverse("sub", around, period if align else period - 1)
        return b.binary("minimum", b.binary("minimum", around, mirrored), length - 1), weight
    bounded = b.binary("minimum", b.binary("maximum", place, 0), length - 1)
    if padding == "zeros":
        valid = b.cast(place.equals(bounded), weight.dtype if weight is not None else np.float32)
        weight = valid if weight is None else b.binary("mul", weight, valid)
    return bounded, weight
