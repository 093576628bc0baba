"""The schedules of a computation's nest: rows, columns, vectors at a time. None changes a bit of results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from .....core.cached import cached_property
from ....base import Knobs
from ....nests.features import nest_features
from ....nests.nest import PlacedNest
from ..codegen.emitter import width
from .schedule import joins, NestSchedule, schedule_of

ROWS = (1, 2, 4, 8, 16)
COLUMNS = (1, 2, 4, 8, 16)
UNROLLS = (0, 1, 2, 4)


@dataclass(eq=False)
class NestPart:
    """A nest as a part of a kernel's space, with three knobs."""

    placed: PlacedNest

    @cached_property
    def _default(self) -> NestSchedule:
        return schedule_of(self.placed)

    @property
    def default(self) -> Knobs:
        return _knobs(self._default)

    @property
    def work(self) -> float:
        return self.placed.points

    def legal(self) -> Iterator[Knobs]:
        """Sums over kept points vary in their rows, reductions in their columns."""
        usual, nest = self._default, self.placed.nest
        rows: tuple[int, ...] = (usual.rows,)
        columns: tuple[int, ...] = (usual.columns,)
        unrolls: tuple[int, ...] = (usual.unroll,)
        if nest.across:
            rows, unrolls = ROWS, UNROLLS
        elif not nest.kept[-1]:
            unrolls = UNROLLS
        elif joins(nest):
            columns = tuple(n for n in COLUMNS if n == 1 or n * width() <= self.placed.lengths[-1])
        else:
            unrolls = UNROLLS
        yield from product(rows, columns, unrolls)

    def allows(self, knobs: Knobs) -> bool:
        return knobs == self.default or knobs in self.legal()

    def features(self, knobs: Knobs) -> list[float]:
        return nest_features(self.placed, knobs, width())

    def schedule(self, knobs: Knobs) -> NestSchedule:
        rows, columns, unroll = knobs
        return replace(self._default, rows=rows, columns=columns, unroll=unroll)


def _knobs(s: NestSchedule) -> Knobs:
    return s.rows, s.columns, s.unroll
