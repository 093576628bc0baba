"""What the writer of a loop nest asks about it: where values vary, in which sweep they are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ....nests.nest import Access, Nest
from .reduction import REDUCTIONS

_EXPENSIVE = frozenset("div exp expm1 log log1p tanh sigmoid softplus erf normal bell sqrt rsqrt".split())
"""Steps that take longer than to store a number and to load it again."""


class NestFacts:
    """For each value the axes along which it varies (`spaces`) and whether these are kept (`is_unit`); the
    reductions of each level; which sums over the kept axes are `early`, in the last sweep that reduces.
    """

    def __init__(self, nest: Nest) -> None:
        self.nest, rank = nest, len(nest.kept)
        self.last = rank - 1
        self.kept = [k for k in range(rank) if nest.kept[k]]
        self.reduced = [k for k in range(rank) if not nest.kept[k]]
        self.by_columns = nest.kept[-1]
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
        level: list[int] = []
        outer = frozenset(self.kept) - {self.last}
        self.levels: list[list[int]] = []
        for i, name in enumerate(self.names):
            at = max((level[x] for x in self.operands[i]), default=0)
            if name in REDUCTIONS:
                if at == len(self.levels):
                    self.levels.append([])
                self.levels[at].append(i)
                at += 1
            level.append(at)
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
        there = set(self.needed([self.operands[i][0] for i in self.levels[-1]], {}))
        for value in reversed(self.needed([root], {})):
            is_expensive = any(
                self.names[i] in _EXPENSIVE and not self.is_unit[i] for i in self.needed([value], {})
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
