"""A direction of a convolution as a part of a kernel's space: its algorithm, and how that is cut.

knobs   (algorithm, those of a ProductPart for a product, a `Cut`'s for Winograd's, else zeros)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as every
from math import log2, prod
from typing import Any

from ....core.cached import cached_property
from ...base import Knobs
from ..compiled import width
from ..product_part import LENGTH, ProductPart
from ..winograd.layer import fits, part_of
from .choice import ALGORITHMS, PRODUCT, RULE, Ways, WINOGRAD

_UNUSED = (0,) * LENGTH
LARGEST_PARTS = (32, 64, 128)
"""Channels of a part of Winograd's algorithm, at most, beside all of them."""
TILES = (16, 32, 64)
"""Numbers of the most tiles of an item, see `Cut`."""
OUTPUTS = (4, 2)
"""Numbers of outputs of a tile in one direction."""


@dataclass(eq=False)
class ConvolutionPart:
    """The ways of one direction."""

    ways: Ways

    @cached_property
    def _product(self) -> ProductPart | None:
        return self.ways.product_part()

    @property
    def default(self) -> Knobs:
        return (RULE, *_UNUSED)

    @property
    def work(self) -> float:
        g = self.ways.g
        return g.n * prod(g.out) * g.f * prod(g.kernel) * g.c / g.groups

    def legal(self) -> Iterator[Knobs]:
        yield self.default
        usual = self.ways.rule()
        for algorithm in ALGORITHMS:
            if (found := self.ways.made(algorithm)) is not None:
                if not _is_like(found, usual):
                    yield (algorithm, *_UNUSED)
                for rest in self._cuts(algorithm):
                    yield algorithm, *rest

    def _cuts(self, algorithm: int) -> Iterator[Knobs]:
        """The knobs of an algorithm beside those of its own rule."""
        if algorithm == PRODUCT and self._product is not None:
            yield from (knobs for knobs in self._product.legal() if any(knobs))
        elif algorithm == WINOGRAD:
            c, f = (sorted({*(part_of(n, most) for most in LARGEST_PARTS), n}) for n in self.ways.channels)
            for cut in every(OUTPUTS, c, f, TILES, self.ways.shares):
                yield cut + _UNUSED[len(cut) :]

    def allows(self, knobs: Knobs) -> bool:
        algorithm, *rest = knobs
        if algorithm == PRODUCT:
            return self._product is not None and self._product.allows(tuple(rest))
        if algorithm == WINOGRAD and any(rest):
            m, *parts, most, share = rest[:5]
            are_whole = all(p > 0 == n % p == p % width() for p, n in zip(parts, self.ways.channels))
            are_tried = m in OUTPUTS and most in TILES and share in self.ways.shares
            return fits(self.ways.g) and are_whole and are_tried and not any(rest[5:])
        return algorithm in (RULE, *ALGORITHMS) and not any(rest)

    def way(self, knobs: Knobs) -> Any:
        """The algorithm's object, see the package; None if there is none."""
        algorithm, *rest = knobs
        return self.ways.rule() if algorithm == RULE else self.ways.made(algorithm, tuple(rest))

    def features(self, knobs: Knobs) -> list[float]:
        """19 numbers: the algorithm, the sizes, the rest."""
        g = self.ways.g
        sizes = g.n * prod(g.out), g.c // g.groups, g.f, prod(g.kernel), prod(g.stride)
        return [float(knobs[0]), *(log2(1 + x) for x in (*sizes, *knobs[1:]))]


def _is_like(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one.name == other.name
