"""What the code of a loop nest, for any device, asks about it: where values vary, and in which sweep they are
computed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...te.computation import REDUCTIONS
from .nest import Access, Nest

EXPENSIVE = frozenset(
    "div exp expm1 log log1p log2 log10 tanh sigmoid softplus erf normal bell sqrt rsqrt cbrt pow hypot fmod "
    "sin cos tan arcsin arccos arctan arctan2 sinh cosh arcsinh arccosh arctanh".split()
)
"""Steps that take longer than to store a number and to load it again."""
LEAST_SHARED = 8
"""Steps of a vector, an expensive one counted as four, of which more must be the same along an axis for that
axis to become the innermost loop (`NestFacts.inner`)."""


class NestFacts:
    """For each value the axes along which it varies (`spaces`) and whether these are kept (`is_unit`); the
    reductions of each level; the axis that is the innermost loop (`inner`) if it is not the last; which sums
    over the kept axes are `early`, in the last sweep that reduces; whether what is added at an index are rows
    along the last axis (`adds_rows`); whether all that there is to do is to store what is loaded.
    """

    def __init__(self, nest: Nest) -> None:
        self.nest, rank = nest, len(nest.kept)
        self.last = rank - 1
        self.kept = [k for k in range(rank) if nest.kept[k]]
        self.reduced = [k for k in range(rank) if not nest.kept[k]]
        self.by_columns = nest.kept[-1]
        self.adds_rows = any(not x.by_lane for *_, x in nest.adds)
        self.is_copy = (
            len(nest.loads) == len(nest.stores) == 1
            and not (nest.constants or nest.steps or nest.adds)
            and all((x.mask, x.dtype) == (y.mask, y.dtype) for x, (_, y) in zip(nest.loads, nest.stores))
        )
        self._spaces()
        self._levels()

    def _spaces(self) -> None:
        """The axes along which each value varies."""
        n = self.nest
        found: list[frozenset[int]] = [
            frozenset(k for k, there in enumerate(x.mask) if there) for x in n.loads
        ]
        found += [frozenset()] * len(n.constants)
        self.operands: list[tuple[int, ...]] = [()] * len(found)
        self.names: list[str] = ["load"] * len(n.loads) + ["constant"] * len(n.constants)
        for name, *rest in n.steps:
            leaf = name in ("number", "index")
            operands: tuple[int, ...] = () if leaf else tuple(rest)  # type: ignore[arg-type]
            operands = operands[:3] if name == "scan" else operands
            space = frozenset[int]().union(*(found[x] for x in operands))
            if name == "gather":
                operands = operands[1:]  # the array itself is no value
            if name in REDUCTIONS:
                space -= frozenset(self.reduced)
            found.append(frozenset(rest) if name == "index" else space)  # type: ignore[arg-type]
            self.operands.append(operands)
            self.names.append(str(name))
        self.spaces = found
        self.is_unit = [space <= frozenset(self.kept) for space in found]

    def _levels(self) -> None:
        """The reductions of each level; and the values that are the same in all vectors of the last axis."""
        place = self._places()
        level = self._sweeps(place)
        self.levels: list[list[int]] = [[] for _ in range(max(place.values(), default=-1) + 1)]
        for i, k in sorted(place.items()):
            self.levels[k].append(i)
        outer = frozenset(self.kept) - {self.last}
        self.row_values = [
            i
            for i, space in enumerate(self.spaces)
            if self.names[i] != "constant" and not level[i] and space <= outer
        ]
        self.cache_writes = self._cache_writes()
        # Sums over the kept axes are added to in the last sweep that reduces, if their terms are known there.
        last = len(self.levels) - 1
        self.early = [x for x in self.nest.across if level[x[0]] <= last]
        self.final = [x for x in self.nest.across if level[x[0]] > last]
        self.inner = self._inner()

    def _inner(self) -> int | None:
        """The kept axis that is the innermost loop, for each vector of the last axis: one along which much
        of what is computed does not vary, which is computed once so. None if there is no such axis.
        """
        n = self.nest
        if self.levels or n.across or self.adds_rows or not (n.adds or all(n.kept)):
            return None
        work = [
            (space, 4 if name in EXPENSIVE else 1)
            for space, name in zip(self.spaces, self.names)
            if name not in ("number", "constant", "broadcast", "load") and self.last in space
        ]
        for k in self.kept[:-1] if self.by_columns else self.kept:
            varies = sum(cost for space, cost in work if k in space)
            rest = sum(cost for space, cost in work if k not in space)
            if rest > max(LEAST_SHARED, varies):
                return k
        return None

    def _places(self) -> dict[int, int]:
        """The level of each reduction. One that may come later is where most of its term is known anyway:
        in the gradient of a norm the sum of d * gamma is taken with that of d * gamma * scaled, not with the
        mean of x.
        """
        first = self._sweeps({})
        reductions = [i for i, name in enumerate(self.names) if name in REDUCTIONS]
        last = max((first[i] for i in reductions), default=0)
        latest = [last] * len(first)  # the sweep in which a value has to be known
        for i, _, _ in self.nest.across:
            latest[i] = max(first[i], last - 1)
        for i in reversed(range(len(first))):
            for x in self.operands[i]:
                latest[x] = min(latest[x], latest[i] - (self.names[i] in REDUCTIONS))
        place = {i: latest[i] - 1 for i in reductions if first[i] == latest[i]}
        for i in reductions:
            if i not in place:
                levels = range(self._sweeps(place)[i] - 1, latest[i])
                place[i] = min(levels, key=lambda k: self._more_steps(i, [x for x in place if place[x] == k]))
        return place

    def _sweeps(self, place: Mapping[int, int]) -> list[int]:
        """For each value the first sweep in which it is known, if reductions have these levels, and the
        others the first that they can.
        """
        found: list[int] = []
        for i, name in enumerate(self.names):
            at = max((found[x] for x in self.operands[i]), default=0)
            found.append(place.get(i, at) + 1 if name in REDUCTIONS else at)
        return found

    def _more_steps(self, i: int, others: Sequence[int]) -> int:
        """How many values that vary a sweep needs for the reduction `i` besides those for others."""
        there = self.needed([self.operands[x][0] for x in others], {})
        return sum(x not in there and not self.is_unit[x] for x in self.needed(self.operands[i], {}))

    def _cache_writes(self) -> dict[int, Access]:
        """Values of the last sweep that reduces which the one behind it reads again, where an output is
        before it is known, as that takes less time than to compute them again (cache_write).
        """
        n = self.nest
        whole = {i: x for i, x in n.stores if not self.is_kept(x)}
        if not self.levels or len(whole) != 1 or n.across:
            return {}
        ((root, place),) = whole.items()
        if place.dtype != "float32" or not all(place.mask):
            return {}
        before = dict.fromkeys(i for level in self.levels[:-1] for i in level)
        there = set(self.needed([self.operands[i][0] for i in self.levels[-1]], before))
        for value in reversed(self.needed([root], {})):
            is_expensive = any(
                self.names[i] in EXPENSIVE and not self.is_unit[i] for i in self.needed([value], {})
            )
            if value in there and value != root and is_expensive and not self.is_unit[value]:
                rest = self.needed([root], {value: place})
                # Nothing else is read there, which the value might have been written over.
                if all(self.is_unit[i] or i >= len(n.loads) for i in rest):
                    return {value: place}
        return {}

    def needed(self, roots: Iterable[int], known: Mapping[int, Any]) -> list[int]:
        """The values that lead to `roots` and are not known, in their order."""
        needed: set[int] = set()
        stack = [x for x in roots if x not in known]
        while stack:
            i = stack.pop()
            if i not in needed:
                needed.add(i)
                stack += [x for x in self.operands[i] if x not in known]
        return sorted(needed)

    def is_kept(self, x: Access) -> bool:
        """True if an array has no reduced axis."""
        return not any(x.mask[k] for k in self.reduced)


@functools.lru_cache(maxsize=1024)
def facts_of(nest: Nest) -> NestFacts:
    """The facts of a nest, found once for all lengths of its axes."""
    return NestFacts(nest)
