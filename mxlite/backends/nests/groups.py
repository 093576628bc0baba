"""Groups of reductions: those that a nest takes together, and the nest that stores each output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from ...graph.ir import Shape
from ...te.computation import common_shape, Computation, needed_by, operands_of, REDUCTIONS, Tensor

PART_ROWS = 64
"""Least rows in a part of sums of columns, each of which is added to a part's sums and those to all."""


@dataclass(frozen=True)
class Splitting:
    """When the sums of a nest are taken in parts, so that threads have enough to do.

    `few`: fewest kept points that are not worth splitting. `nbytes`: bytes of a domain's float32 numbers from
    which on reductions may be taken in parts. `part`: least numbers in one, about what a thread needs to be
    worth waking. `most`: most parts, so that joining them costs little. `by_rows`: a thread goes along rows
    in the order of memory, so sums over the kept axes of a nest are taken in it too, and parts are of the
    first reduced axis; else neighbouring threads have neighbouring columns, and parts are of all points of
    the reduced axes.
    """

    few: int = 32
    nbytes: int = 1 << 19
    part: int = 1 << 15
    most: int = 32
    by_rows: bool = True

    def parts_of(self, elements: int) -> int:
        """Parts in which sums over kept axes are taken."""
        worth = min(self.most, max(1, elements // self.part))
        return int(1 << worth.bit_length() - 1)


CORES = Splitting()
"""For some dozens of threads; a machine with more leaves some of them idle."""


@dataclass
class ReductionGroup:
    """Reductions with the same kept and reduced axes, that can be taken in one nest.

    `inside`: the group in whose nest they are taken in parts, as sums over its kept axes. `scatter`: the
    group is a sum of terms at an index instead, and of others, each to the one before. `reverse`: it is scans
    in this direction instead, None for others.
    """

    kept: frozenset[int]
    reduced: frozenset[int]
    in_parts: bool
    members: list[int] = field(default_factory=list)
    inside: int | None = None
    scatter: bool = False
    reverse: bool | None = None

    @property
    def reduces(self) -> bool:
        """True for reductions, which are neither sums at an index nor scans."""
        return not self.scatter and self.reverse is None


class Grouping:
    """The groups of a computation in their order, for the arguments of `nests_of`.

    `spaces`, `out_axes`: axes of the domain that nodes and outputs have. `group_of`: the group of each
    reduction, scan and sum at an index. `last`: the last group that a node depends on, -1 if none. `place`:
    the group that stores an output, -1 for a nest behind all groups.
    """

    def __init__(
        self,
        t: Computation,
        outputs: Mapping[str, Tensor],
        shapes: Mapping[str, Shape],
        dtypes: Mapping[str, str],
        donors: Mapping[str, frozenset[str]],
        wanted: frozenset[str] | None,
        splitting: Splitting,
        number: str,
    ) -> None:
        self.t, self.dtypes, self.donors, self.splitting, self.number = t, dtypes, donors, splitting, number
        self.values = {n: x.number for n, x in outputs.items()}
        needed = needed_by(t, self.values.values())
        self.order = [i for i in range(len(t.nodes)) if i in needed]
        self._readers = Counter(x for i in self.order for x in operands_of(t.nodes[i]))
        self._readers.update(set(self.values.values()))
        self.domain = common_shape([*self._shapes(), *shapes.values()])
        self.rank = len(self.domain)
        self.spaces = {i: self._axes(t.shapes[i]) for i in self.order}
        self.out_axes = {n: self._axes(s) for n, s in shapes.items()}
        reductions = [i for i in self.order if t.nodes[i][0] in REDUCTIONS]
        below = needed_by(t, (t.nodes[i][1] for i in reductions))
        self.has_levels = not below.isdisjoint(reductions)  # reductions of what others have made
        self.groups: list[ReductionGroup] = []
        self.group_of: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.place: dict[str, int] = {}
        self._join_all()
        if wanted is not None:
            self.values = {n: i for n, i in self.values.items() if n in wanted}
        needed = needed_by(t, self.values.values())
        for group in self.groups:
            group.members = [i for i in group.members if i in needed]
        self._place_outputs()

    def _shapes(self) -> list[Shape]:
        """The shapes of what is read: arrays to pick from have any lengths along the axes of indices."""
        nodes, read = self.t.nodes, set(self.values.values())
        for i in self.order:
            read.update(operands_of(nodes[i])[nodes[i][0] == "gather" :])
        return [self.t.shapes[i] for i in self.order if i in read or nodes[i][0] != "input"]

    def _axes(self, shape: Shape) -> frozenset[int]:
        """The axes of the domain that a shape has."""
        behind = self.rank - len(shape)
        return frozenset(behind + i for i, n in enumerate(shape) if n != 1)

    def _join_all(self) -> None:
        joins = {"scatter": self._join_scatter, "scan": self._join_scan}
        joins |= dict.fromkeys(REDUCTIONS, self._join)
        for i in self.order:
            node = self.t.nodes[i]
            self.last[i] = max((self.last[x] for x in operands_of(node)), default=-1)
            if node[0] in joins:
                self.last[i] = self.group_of[i] = joins[node[0]](i)

    def _place_outputs(self) -> None:
        """Find the group whose last nest stores each output, -1 for a nest behind all groups.

        One that needs no reduction is stored where the last of them sweeps over its elements.
        """
        for name, i in self.values.items():
            g = self.last[i]
            if g < 0:
                g = max((k for k in range(len(self.groups)) if self._carries(k, name)), default=-1)
            self.place[name] = g if self._is_made_by(name, g) else -1
        moved = True
        while moved:  # what is stored behind all groups reads its inputs there
            late = [n for n, g in self.place.items() if g >= 0 and self._is_read_later(n, g)]
            self.place.update(dict.fromkeys(late, -1))
            moved = bool(late)

    def _carries(self, g: int, name: str) -> bool:
        """True if a nest of group `g` sweeps over the elements of an output in the order of memory."""
        group = self.groups[g]
        if group.scatter or group.inside is not None or group.in_parts:
            return False
        if not group.members and not any(x.inside == g and x.members for x in self.groups):
            return False
        is_by_rows = max(group.reduced, default=-1) > max(group.kept, default=-1)
        return is_by_rows and self.out_axes[name] == group.kept | group.reduced

    def _join(self, i: int) -> int:
        """The group of a reduction: the last one over the same axes, if what it reads is there by then."""
        name, x, axes = self.t.nodes[i]
        reduced = frozenset(self.rank + axis for axis in axes)
        kept = self.spaces[i]
        few = prod(self.domain[k] for k in kept) < self.splitting.few
        elements = prod(self.domain[k] for k in kept | reduced)
        in_parts = few and 4 * elements >= self.splitting.nbytes
        behind = self.last[x]
        for g in range(len(self.groups) - 1, -1, -1):
            group = self.groups[g]
            if (group.kept, group.reduced) != (kept, reduced) or not group.reduces:
                continue
            if g < (behind if group.inside is None else group.inside) or (in_parts and g == behind):
                continue  # it is not there by then; or a level of its own
            if group.inside is not None and (group.inside < behind or name != "reduce_sum"):
                continue
            group.members.append(i)
            return g
        inside = None
        if name == "reduce_sum" and self.splitting.by_rows:
            for g in range(max(0, behind), len(self.groups)):
                group = self.groups[g]
                across = (group.kept, group.reduced) == (reduced, kept) and max(kept, default=-1) == max(
                    kept | reduced
                )
                if across and not group.in_parts and group.inside is None and group.reduces:
                    inside = g
            if inside is None and self._is_by_rows(kept, reduced):
                inside = len(self.groups)
                self.groups.append(ReductionGroup(reduced, kept, False))
        self.groups.append(ReductionGroup(kept, reduced, in_parts and inside is None, [i], inside))
        return len(self.groups) - 1

    def _join_scatter(self, i: int) -> int:
        """The group of a sum at an index: that of its base, where this is such a sum of terms along the same
        axes which nothing else reads.
        """
        _, base, index, terms, _ = self.t.nodes[i]
        whole = self.spaces[index] | self.spaces[terms]
        kept = whole & self.spaces[i]
        g = self.group_of.get(base, -1)
        if g >= 0 and self.groups[g].scatter and self._readers[base] == 1:
            group, is_there = self.groups[g], max(self.last[index], self.last[terms]) < g
            if (group.kept, group.reduced) == (kept, whole - kept) and is_there:
                group.members.append(i)
                return g
        self.groups.append(ReductionGroup(kept, whole - kept, False, [i], scatter=True))
        return len(self.groups) - 1

    def _join_scan(self, i: int) -> int:
        """The group of a scan: one of scans along the same axis in the same direction, if what it reads is
        there by then.
        """
        at, reverse, _ = self.t.nodes[i][4:]
        reduced = frozenset({self.rank + at})
        kept = self.spaces[i] - reduced
        for g in range(max(0, self.last[i]), len(self.groups)):
            group = self.groups[g]
            if (group.kept, group.reduced, group.reverse) == (kept, reduced, reverse):
                group.members.append(i)
                return g
        self.groups.append(ReductionGroup(kept, reduced, False, [i], reverse=reverse))
        return len(self.groups) - 1

    def _is_by_rows(self, kept: frozenset[int], reduced: frozenset[int]) -> bool:
        """True if sums of so many columns are taken row by row, in the order of memory, in parts of the rows:
        unless another sweep finds the rows in the cache, or a part has few.
        """
        rows, columns = (prod(self.domain[k] for k in axes) for axes in (reduced, kept))
        how = self.splitting
        if max(kept, default=-1) < max(reduced) or columns < how.few or 4 * rows * columns < how.nbytes:
            return False
        is_swept_again = self.has_levels or any(axes & reduced for axes in self.out_axes.values())
        return not is_swept_again and rows // how.parts_of(rows * columns) >= PART_ROWS

    def _is_made_by(self, name: str, g: int) -> bool:
        """True if the last nest of group `g` can store an output, whose value is known then."""
        if g < 0 or not self.groups[g].scatter:
            return g >= 0 and self._fits(self.groups[g], self.out_axes[name])
        i = self.values[name]
        return i in self.groups[g].members and (self.dtypes[name], self.out_axes[name]) == (
            self.number,
            self.spaces[i],
        )

    def _fits(self, group: ReductionGroup, axes: frozenset[int]) -> bool:
        """True if the last nest of the group can store an output with these axes."""
        joins = group.in_parts or group.inside is not None
        return axes == group.kept or (not joins and axes == group.kept | group.reduced)

    def _is_read_later(self, name: str, g: int) -> bool:
        """True if an output may be written over an input that a later group reads."""
        over = self.donors.get(name)
        if not over:
            return False
        later = (i for k in self.groups[g + 1 :] if k.inside != g for i in k.members)
        stack = [x for i in later for x in operands_of(self.t.nodes[i])]
        stack += [i for n, i in self.values.items() if n != name and self.place[n] != g]
        seen: set[int] = set()
        while stack:
            i = stack.pop()
            if i in seen:
                continue
            seen.add(i)
            node, at = self.t.nodes[i], self.last[i]
            if node[0] == "input" and node[1] in over:
                return True
            if i in self.group_of and self.groups[self.group_of[i]].inside == g:
                continue  # it is taken in the same nest
            if not (0 <= at <= g and self.spaces[i] <= self.groups[at].kept):  # else it is in scratch by then
                stack += operands_of(node)
        return False
