"""Loop nests: the order in which a computation is carried out.

A nest iterates over the axes of a domain. Of these some are *kept*: each of their points is computed by
itself, and threads share them. The others are reduced: for each kept point the nest sweeps over them, once
for every level of reductions that need those before, and once more for results that have the reduced axes:

    softmax of (rows, columns)      kept: rows      sweep columns: largest
                                                    sweep columns: sum of exp(x - largest)
                                                    sweep columns: out = exp(x - largest) / sum

Reductions over other axes are other nests, behind one another, and what one reads of another is stored as
float32 in scratch: the mean of each row, for the sums of columns that need it. Where a domain has few kept
points, each level is a nest of its own whose sums are taken in parts, so that threads share the reduced axes.
Sums over the kept axes of a nest, such as those of the columns, are taken in it too, for parts of the rows.
Sums of the columns of a large array that nothing else sweeps over have a nest of this kind, as that reads the
array in the order of memory.
How many parts there are follows from the shapes alone, so results do not depend on the number of threads.

A scan has a nest whose reduced axis is that along which a value is carried; what other nests read of it is
stored whole.

What is added at an index (`Computation.add_at`) has two nests: one stores the base where the sums are
wanted, in an output or in scratch, the other adds the terms. The axes of the terms that the base has are
kept, so each sum is one thread's, and its terms are added in the order of the rest.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import prod

from ...core.errors import ShapeError
from ...graph.ir import Shape
from ...te.computation import common_shape, Computation, needed_by, operands_of, REDUCTIONS, Tensor
from .nest import Access, Mask, Nest, Nests, PlacedNest, Step

PART_ROWS = 64
"""Least rows in a part of sums of columns, each of which is added to a part's sums and those to all."""
MOST_SUMS = 2
"""Most sums for each term of an output of 16 bits, whose sums are float32 numbers in scratch: a table of rows
may be far larger than what is added to it."""
APART = 256
"""Numbers between the sums of two columns' arrays, which are read in turns: at equal places of two pages the
processor waits for a number that was just written to one, before it reads the other."""


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
class _Group:
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


def nests_of(
    t: Computation,
    outputs: Mapping[str, Tensor],
    shapes: Mapping[str, Shape],
    dtypes: Mapping[str, str],
    donors: Mapping[str, frozenset[str]],
    wanted: frozenset[str] | None = None,
    splitting: Splitting = CORES,
    number: str = "",
) -> Nests | None:
    """The nests that compute `outputs`, of these `shapes` in their domain (a tensor broadcasts to it).

    `dtypes`: names of the types of all arrays. `donors`: inputs over which an output may be written: no nest
    reads them after it. `wanted`: those of the outputs that are computed, by what is left of the nests for
    all, so that they have the same bits. Numbers are of the type `number`, or else float64 if one of the
    arrays is, float32 if none is. None if there is no such order, if parts of the computation have shapes
    that are not of one domain, or if it takes far more scratch than there are terms.
    """
    try:
        planner = _Planner(t, outputs, shapes, dtypes, donors, wanted, splitting, number)
    except ShapeError:
        return None
    nests = planner.plan()
    return nests if planner.is_in_order() and not planner.is_wasteful else None


class _Planner:
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
        self.t, self.dtypes, self.donors, self.splitting = t, dtypes, donors, splitting
        self.number = number or ("float64" if "float64" in dtypes.values() else "float32")
        self.values = {n: x.number for n, x in outputs.items()}
        needed = needed_by(t, self.values.values())
        self.order = [i for i in range(len(t.nodes)) if i in needed]
        self._readers = Counter(x for i in self.order for x in operands_of(t.nodes[i]))
        self._readers.update(set(self.values.values()))
        self.domain = common_shape([*self._shapes(), *shapes.values()])
        self.rank = len(self.domain)
        self.spaces = {i: self._axes(t.shapes[i]) for i in self.order}
        self.out_axes = {n: self._axes(s) for n, s in shapes.items()}
        used = {t.nodes[i][1] for i in self.order if t.nodes[i][0] == "input"}
        self.inputs = tuple(n for n in dtypes if n in used)
        self.outputs = tuple(n for n in outputs if wanted is None or n in wanted)
        self.constants = [i for i in self.order if t.nodes[i][0] == "constant"]
        self.arrays = {n: k for k, n in enumerate((*self.inputs, *self.outputs))}
        constants = tuple(t.nodes[i][1] for i in self.constants)
        self.result = Nests(self.inputs, self.outputs, constants, self.number)
        reductions = [i for i in self.order if t.nodes[i][0] in REDUCTIONS]
        below = needed_by(t, (t.nodes[i][1] for i in reductions))
        self.has_levels = not below.isdisjoint(reductions)  # reductions of what others have made
        self.groups: list[_Group] = []
        self.group_of: dict[int, int] = {}  # reductions -> group
        self.last: dict[int, int] = {}  # nodes -> the last group that they depend on, -1 if none
        self.stored: dict[int, int] = {}  # nodes -> the array of scratch that holds them
        self.is_wasteful = False
        self.place: dict[str, int] = {}  # outputs -> the group that stores them, -1 if none
        self.partial: dict[
            int, tuple[int, list[int]]
        ] = {}  # groups -> parts and their results, where they are taken

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

    # -- groups ----------------------------------------------------------------------------------

    def plan(self) -> Nests:
        for i in self.order:
            node = self.t.nodes[i]
            self.last[i] = max((self.last[x] for x in operands_of(node)), default=-1)
            if node[0] in REDUCTIONS:
                self.last[i] = self.group_of[i] = self._join(i)
            elif node[0] == "scatter":
                self.last[i] = self.group_of[i] = self._join_scatter(i)
            elif node[0] == "scan":
                self.last[i] = self.group_of[i] = self._join_scan(i)
        self.values = {n: self.values[n] for n in self.outputs}
        needed = needed_by(self.t, self.values.values())
        for group in self.groups:
            group.members = [i for i in group.members if i in needed]
        # Which outputs each group stores, and those that have a nest of their own behind all groups.
        own: list[list[str]] = [[] for _ in self.groups]
        alone: dict[frozenset[int], list[str]] = {}
        self._place_outputs()
        for name, g in self.place.items():
            if g >= 0:
                own[g].append(name)
            else:
                alone.setdefault(self.out_axes[name], []).append(name)
        for g, group in enumerate(self.groups):
            if group.scatter:
                self._emit_scatter(g, group, own[g], alone)
            else:
                self._emit_group(g, group, own[g])
        # What may be written over an input that another of these reads comes last.
        for axes, names in sorted(alone.items(), key=lambda x: any(self.donors.get(n) for n in x[1])):
            self._emit(axes, frozenset(), len(self.groups), names, [])
        return self.result

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
                self.groups.append(_Group(reduced, kept, False))
        self.groups.append(_Group(kept, reduced, in_parts and inside is None, [i], inside))
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
        self.groups.append(_Group(kept, whole - kept, False, [i], scatter=True))
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
        self.groups.append(_Group(kept, reduced, False, [i], reverse=reverse))
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

    def _fits(self, group: _Group, axes: frozenset[int]) -> bool:
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

    def is_in_order(self) -> bool:
        """True if no nest reads what an earlier one may have overwritten."""
        over: set[int] = set()
        for placed in self.result.nests:
            if over.intersection(x.array for x in placed.nest.loads):
                return False
            made = {x.array for _, x in placed.nest.stores}
            for name in self.outputs:
                if self.arrays[name] in made:
                    over.update(self.arrays[n] for n in self.donors.get(name, ()) if n in self.arrays)
            # Elements are picked from anywhere, also where another point has stored its result.
            if over.intersection(x.array for x in placed.nest.loads if x.gathered):
                return False
        return True

    # -- nests -----------------------------------------------------------------------------------

    def _emit_group(self, g: int, group: _Group, names: list[str]) -> None:
        kept, reduced = group.kept, group.reduced
        if not group.members and not any(other.inside == g and other.members for other in self.groups):
            return
        size = prod(self.domain[k] for k in kept)
        across: list[tuple[int, int, int]] = []
        parts = 1
        if group.in_parts:
            lengths = [self.domain[k] for k in sorted(reduced)]
            how = self.splitting
            most = lengths[0] if how.by_rows else prod(lengths)
            parts = min(how.most, max(1, size * prod(lengths) // how.part), most)
            partial = [self._scratch(parts * size) for _ in group.members]
            self._emit(kept, reduced, g, [], list(zip(group.members, partial)), parts, in_parts=True)
            self.partial[g] = parts, partial
        elif group.inside is None:
            for k, other in enumerate(self.groups):
                if other.inside == g and other.members:
                    columns = prod(self.domain[k] for k in reduced)
                    parts = self.splitting.parts_of(size * columns)
                    apart = parts * columns + APART
                    totals = [self._scratch(apart) for _ in other.members]
                    blocks = [self._scratch(apart) for _ in other.members]
                    across += zip((self.t.nodes[i][1] for i in other.members), blocks, totals)
                    self.partial[k] = parts, totals
        self._emit(kept, reduced, g, names, self._read_later(g), parts, across)

    def _emit_scatter(
        self, g: int, group: _Group, names: list[str], alone: dict[frozenset[int], list[str]]
    ) -> None:
        """Add the nests of sums at an index: in the first of these outputs, or in scratch."""
        if not group.members:
            return
        for name in names[1:]:
            alone.setdefault(self.out_axes[name], []).append(name)
        first, last = group.members[0], group.members[-1]
        size = prod(self.domain[k] for k in self.spaces[last])
        terms = len(group.members) * prod(self.domain[k] for k in group.kept | group.reduced)
        is_narrow = not names and last in self.values.values()  # sums of an output of 16 bits
        if is_narrow and size > MOST_SUMS * terms:
            self.is_wasteful = True
        array = self.arrays[names[0]] if names else self._scratch(size)
        self.stored.update(dict.fromkeys(group.members, array))
        self._emit(self.spaces[first], frozenset(), g, [], [(self.t.nodes[first][1], array)])
        adds = [(self.t.nodes[i][3], self.t.nodes[i][2], i) for i in group.members]
        self._emit(group.kept, group.reduced, g, [], [], adds=adds)

    def _scratch(self, elements: int) -> int:
        self.result.scratch.append(elements)
        return len(self.arrays) + len(self.result.scratch) - 1

    def _read_later(self, g: int) -> list[tuple[int, int]]:
        """The values of group `g` that later nests read, each with an array of scratch."""
        group = self.groups[g]
        found: dict[int, None] = {}
        seen: set[int] = set()

        def visit(i: int) -> None:
            if i in seen or self.last[i] < g:
                return
            seen.add(i)
            if i in self.group_of and self.groups[self.group_of[i]].inside == g:
                return  # it is taken in the same nest
            is_scan = group.reverse is not None and i in group.members
            if self.last[i] == g and (is_scan or self.spaces[i] <= group.kept):
                found[i] = None
                return
            for x in operands_of(self.t.nodes[i]):
                visit(x)

        for later, k in enumerate(self.groups):
            if later > g and k.inside != g:
                for i in k.members:
                    for x in operands_of(self.t.nodes[i]):
                        visit(x)
        for name, i in self.values.items():
            if self.place[name] != g:
                visit(i)
        result = []
        for i in found:
            self.stored[i] = self._scratch(prod(self.domain[k] for k in self.spaces[i]))
            result.append((i, self.stored[i]))
        return result

    def _emit(
        self,
        kept: frozenset[int],
        reduced: frozenset[int],
        g: int,
        names: Sequence[str],
        stored: Sequence[tuple[int, int]],
        parts: int = 1,
        across: Sequence[tuple[int, int, int]] = (),
        in_parts: bool = False,
        adds: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        """Add the nest of group `g` that stores outputs, and other values in scratch.

        Where the group's reductions are there in parts, the nest joins them: its first axis is that of parts.
        `adds`: terms, their index, and the node to whose array they are added.
        """
        t, domain = self.t, self.domain
        own = self.groups[g].members if g < len(self.groups) else []
        outputs = [self.values[n] for n in names]
        earlier = {i: a for i, a in self.stored.items() if self.last[i] < g}
        joined: dict[int, int] = {}
        if g in self.partial and not in_parts:
            parts, partial = self.partial[g]
            joined, reduced = dict(zip(own, partial)), frozenset()
        roots = [*outputs, *(i for i, _ in stored), *(i for i, _, _ in across)]
        roots += [i for *both, _ in adds for i in both]
        order, leaves, gathers = self._within(roots, own, earlier | joined)
        picked = [self._strides(t.nodes[i][1], t.nodes[i][-1]) for i in gathers]
        placed = [self._strides(i, t.nodes[i][-1]) for *_, i in adds]
        indexed = [x for x, _ in (*picked, *placed)]
        masks = [*leaves.values(), *(self.out_axes[n] for n in names), *map(frozenset, indexed)]
        axes = self._merged(kept, reduced, masks, indexed, order)
        front = (False,) if joined else ()
        lengths = (*(parts for _ in front), *(prod(domain[k] for k in group) for group in axes)) or (1,)

        def mask(there: frozenset[int]) -> Mask:
            return (*front, *(group[0] in there for group in axes)) or (False,)

        loads: list[Access] = []
        number: dict[int, int] = {}
        partial_at: dict[int, int] = {}
        for i, there in leaves.items():
            if i in joined:
                partial_at[i] = len(loads)
                loads.append(Access(joined[i], (True, *mask(kept)[1:]), self.number))
                continue
            array = self.stored[i] if i in earlier else self.arrays[t.nodes[i][1]]
            kind = self.number if i in earlier else self.dtypes[t.nodes[i][1]]
            number[i] = len(loads)
            loads.append(Access(array, mask(there), kind))
        strides = []
        load_of = {}
        for i, (along, own_stride) in zip((*gathers, *(i for *_, i in adds)), (*picked, *placed)):
            each = (*(0 for _ in front), *(along.get(group[-1], 0) for group in axes)) or (0,)
            by_lane = bool(axes) and (axes[-1][-1] in self.spaces[t.nodes[i][2]] or each[-1] > 1)
            strides.append((*each, own_stride))
            if t.nodes[i][0] == "scatter":
                at = Access(
                    self.stored[i], mask(frozenset(along)), self.number, True, by_lane or each[-1] != 1
                )
                continue
            name = t.nodes[t.nodes[i][1]][1]
            load_of[i] = len(loads)
            loads.append(Access(self.arrays[name], mask(frozenset(along)), self.dtypes[name], True, by_lane))
        numbers = count(len(loads))
        constants = [i for i in order if t.nodes[i][0] == "constant"]
        for i in constants:
            number[i] = next(numbers)
        steps: list[Step] = []
        for i in order:
            if i in number:
                continue
            node = t.nodes[i]
            number[i] = next(numbers)
            if i in joined:
                steps.append((node[0], partial_at[i]))
            elif node[0] == "number":
                steps.append(node)
            elif node[0] == "index":
                along_it = (k for k, group in enumerate(axes, len(front)) if self.rank + node[1] in group)
                steps.append(("index", next(along_it)))
            elif node[0] == "gather":
                steps.append(("gather", load_of[i], number[node[2]]))
            elif node[0] == "scan":
                steps.append(("scan", *(number[x] for x in node[1:4]), *node[5:]))
            else:
                steps.append((node[0], *(number[x] for x in operands_of(node))))
        stores = [
            (number[i], Access(self.arrays[n], mask(self.out_axes[n]), self.dtypes[n]))
            for n, i in zip(names, outputs)
        ]
        stores += [(number[i], Access(array, mask(self.spaces[i]), self.number)) for i, array in stored]
        sums = functools.partial(Access, mask=mask(reduced), dtype=self.number)
        nest = Nest(
            mask(kept),
            tuple(loads),
            tuple(self.constants.index(i) for i in constants),
            tuple(steps),
            tuple(stores),
            in_parts,
            tuple((number[i], sums(block), sums(total)) for i, block, total in across),
            tuple((number[i], number[index], at) for i, index, _ in adds),
        )
        self.result.nests.append(PlacedNest(nest, lengths, parts, tuple(strides)))

    def _strides(self, x: int, at: int) -> tuple[dict[int, int], int]:
        """Elements between neighbours along the axes of the domain that an array has, and along that of an
        index.
        """
        shape = self.t.shapes[x]
        along = {self.rank - len(shape) + i: prod(shape[i + 1 :]) for i, n in enumerate(shape) if n != 1}
        own = prod(shape[len(shape) + at + 1 :])
        along.pop(self.rank + at, None)
        return along, own

    def _within(
        self, roots: Sequence[int], own: Sequence[int], earlier: Mapping[int, int]
    ) -> tuple[list[int], dict[int, frozenset[int]], list[int]]:
        """The nodes that a nest computes for its roots, in their order, those that it loads, and gathers."""
        needed: set[int] = set()
        leaves: dict[int, frozenset[int]] = {}
        stack = list(roots)
        while stack:
            i = stack.pop()
            if i in needed:
                continue
            needed.add(i)
            node = self.t.nodes[i]
            if i in earlier or node[0] == "input":
                leaves[i] = self.spaces[i]
            elif node[0] == "gather":
                stack.append(node[2])
            else:
                assert i not in self.group_of or i in own, f"node {i} is read before it is stored"
                stack += operands_of(node)
        ordered = [i for i in self.order if i in needed]
        gathers = [i for i in ordered if self.t.nodes[i][0] == "gather" and i not in leaves]
        return ordered, {i: leaves[i] for i in ordered if i in leaves}, gathers

    def _merged(
        self,
        kept: frozenset[int],
        reduced: frozenset[int],
        masks: Sequence[frozenset[int]],
        picked: Sequence[Mapping[int, int]],
        order: Sequence[int],
    ) -> list[list[int]]:
        """The axes of a nest, neighbours as one where every array has both or none. At least one."""
        there = sorted(k for k in kept | reduced if self.domain[k] != 1)
        indexed = {self.rank + self.t.nodes[i][1] for i in order if self.t.nodes[i][0] == "index"}
        merged: list[list[int]] = []
        for k in there:
            if merged and not indexed.intersection((k, merged[-1][-1])):
                before = merged[-1][-1]
                dense = all(x[before] == x[k] * self.domain[k] for x in picked if k in x and before in x)
                if dense and all((k in m) == (before in m) for m in (kept, *masks)):
                    merged[-1].append(k)
                    continue
            merged.append([k])
        return merged
