"""The schedules of a computation's nests: rows, columns, vectors at a time. None changes a bit of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from .....core.cached import cached_property
from ....base import ChosenKernel
from ....nests.features import nest_features
from ....nests.nest import Nests, PlacedNest
from ..codegen.emitter import width
from .schedule import joins, NestSchedule, schedule_of

ROWS = (1, 2, 4, 8, 16)
COLUMNS = (1, 2, 4, 8, 16)
UNROLLS = (0, 1, 2, 4)
MOST = 4096
"""Schedules of a computation at most: where its nests would have more, one nest is varied at a time."""


@dataclass(eq=False)
class NestSpace:
    """A `Space` of three knobs for each nest; `made` makes the kernel of some schedules."""

    nests: Nests
    made: Callable[[Sequence[NestSchedule]], ChosenKernel]

    @cached_property
    def _defaults(self) -> list[NestSchedule]:
        return [schedule_of(p) for p in self.nests.nests]

    @property
    def default(self) -> tuple[int, ...]:
        return self._knobs(self._defaults)

    def legal(self) -> Sequence[tuple[int, ...]]:
        each = [list(_schedules(p)) for p in self.nests.nests]
        count = 1
        for some in each:
            count *= len(some)
        if count <= MOST:
            return [self._knobs(some) for some in product(*each)]
        alone = [
            self._knobs([*self._defaults[:k], s, *self._defaults[k + 1 :]])
            for k, some in enumerate(each)
            for s in some
        ]
        return list(dict.fromkeys(alone))

    def kernel(self, knobs: tuple[int, ...]) -> ChosenKernel:
        return replace(self.made(self._schedules_of(knobs)), space=self)

    def features(self, knobs: tuple[int, ...]) -> list[float]:
        """Those of the two nests that visit the most points, the larger one first."""
        found = [
            (placed.points, nest_features(placed, (s.rows, s.columns, s.unroll), width()))
            for placed, s in zip(self.nests.nests, self._schedules_of(knobs))
        ]
        found.sort(key=lambda pair: -pair[0])
        return [x for _, own in found[:2] for x in own]

    @staticmethod
    def _knobs(schedules: Sequence[NestSchedule]) -> tuple[int, ...]:
        return tuple(x for s in schedules for x in (s.rows, s.columns, s.unroll))

    def _schedules_of(self, knobs: tuple[int, ...]) -> list[NestSchedule]:
        return [
            replace(s, rows=knobs[3 * k], columns=knobs[3 * k + 1], unroll=knobs[3 * k + 2])
            for k, s in enumerate(self._defaults)
        ]


def _schedules(placed: PlacedNest) -> Iterator[NestSchedule]:
    """The schedules of one nest: sums over kept points vary in their rows, reductions in their columns."""
    usual, nest = schedule_of(placed), placed.nest
    rows: tuple[int, ...] = (usual.rows,)
    columns: tuple[int, ...] = (usual.columns,)
    unrolls: tuple[int, ...] = (usual.unroll,)
    if nest.across:
        rows, unrolls = ROWS, UNROLLS
    elif not nest.kept[-1]:
        unrolls = UNROLLS
    elif joins(nest):
        columns = tuple(n for n in COLUMNS if n == 1 or n * width() <= placed.lengths[-1])
    else:
        unrolls = UNROLLS
    for r, c, u in product(rows, columns, unrolls):
        yield replace(usual, rows=r, columns=c, unroll=u)
