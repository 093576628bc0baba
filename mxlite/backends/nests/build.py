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
from collections.abc import Mapping, Sequence
from itertools import count
from math import prod

from ...core.errors import ShapeError
from ...graph.ir import Shape
from ...te.computation import Computation, operands_of, renumbered, Tensor
from .groups import CORES, Grouping, ReductionGroup, Splitting
from .nest import Access, Mask, Nest, Nests, PlacedNest, Step

MOST_SUMS = 2
"""Most sums for each term of an output of 16 bits, whose sums are float32 numbers in scratch: a table of rows
may be far larger than what is added to it."""
APART = 256
"""Numbers between the sums of two columns' arrays, which are read in turns: at equal places of two pages the
processor waits for a number that was just written to one, before it reads the other."""


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
    number = number or ("float64" if "float64" in dtypes.values() else "float32")
    try:
        grouping = Grouping(t, outputs, shapes, dtypes, donors, wanted, splitting, number)
    except ShapeError:
        return None
    builder = _Builder(grouping)
    nests = builder.nests()
    return nests if builder.is_in_order() and not builder.is_wasteful else None


class _Builder:
    """The nests of a grouping's groups."""

    def __init__(self, grouping: Grouping) -> None:
        t = grouping.t
        self.grouping, self.t, self.domain, self.rank = grouping, t, grouping.domain, grouping.rank
        used = {t.nodes[i][1] for i in grouping.order if t.nodes[i][0] == "input"}
        inputs = tuple(n for n in grouping.dtypes if n in used)
        self.outputs = tuple(grouping.values)
        self.constants = [i for i in grouping.order if t.nodes[i][0] == "constant"]
        self.arrays = {n: k for k, n in enumerate((*inputs, *self.outputs))}
        constants = tuple(t.nodes[i][1] for i in self.constants)
        self.result = Nests(inputs, self.outputs, constants, grouping.number)
        self.stored: dict[int, int] = {}  # nodes -> the array of scratch that holds them
        self.partial: dict[int, tuple[int, list[int]]] = {}  # groups -> parts and their results, if any
        self.is_wasteful = False

    def nests(self) -> Nests:
        # Which outputs each group stores, and those that have a nest of their own behind all groups.
        grouping = self.grouping
        own: list[list[str]] = [[] for _ in grouping.groups]
        alone: dict[frozenset[int], list[str]] = {}
        for name, g in grouping.place.items():
            if g >= 0:
                own[g].append(name)
            else:
                alone.setdefault(grouping.out_axes[name], []).append(name)
        for g, group in enumerate(grouping.groups):
            if group.scatter:
                self._emit_scatter(g, group, own[g], alone)
            else:
                self._emit_group(g, group, own[g])
        # What may be written over an input that another of these reads comes last.
        for axes, names in sorted(alone.items(), key=lambda x: any(grouping.donors.get(n) for n in x[1])):
            self._emit(axes, frozenset(), len(grouping.groups), names, [])
        return self.result

    def is_in_order(self) -> bool:
        """True if no nest reads what an earlier one may have overwritten."""
        over: set[int] = set()
        for placed in self.result.nests:
            if over.intersection(x.array for x in placed.nest.loads):
                return False
            made = {x.array for _, x in placed.nest.stores}
            for name in self.outputs:
                if self.arrays[name] in made:
                    over.update(
                        self.arrays[n] for n in self.grouping.donors.get(name, ()) if n in self.arrays
                    )
            # Elements are picked from anywhere, also where another point has stored its result.
            if over.intersection(x.array for x in placed.nest.loads if x.gathered):
                return False
        return True

    def _emit_group(self, g: int, group: ReductionGroup, names: list[str]) -> None:
        kept, reduced = group.kept, group.reduced
        if not group.members and not any(
            other.inside == g and other.members for other in self.grouping.groups
        ):
            return
        size = prod(self.domain[k] for k in kept)
        across: list[tuple[int, int, int]] = []
        parts = 1
        if group.in_parts:
            lengths = [self.domain[k] for k in sorted(reduced)]
            how = self.grouping.splitting
            most = lengths[0] if how.by_rows else prod(lengths)
            parts = min(how.most, max(1, size * prod(lengths) // how.part), most)
            partial = [self._scratch(parts * size) for _ in group.members]
            self._emit(kept, reduced, g, [], list(zip(group.members, partial)), parts, in_parts=True)
            self.partial[g] = parts, partial
        elif group.inside is None:
            for k, other in enumerate(self.grouping.groups):
                if other.inside == g and other.members:
                    columns = prod(self.domain[k] for k in reduced)
                    parts = self.grouping.splitting.parts_of(size * columns)
                    apart = parts * columns + APART
                    totals = [self._scratch(apart) for _ in other.members]
                    blocks = [self._scratch(apart) for _ in other.members]
                    across += zip((self.t.nodes[i][1] for i in other.members), blocks, totals)
                    self.partial[k] = parts, totals
        self._emit(kept, reduced, g, names, self._read_later(g), parts, across)

    def _emit_scatter(
        self, g: int, group: ReductionGroup, names: list[str], alone: dict[frozenset[int], list[str]]
    ) -> None:
        """Add the nests of sums at an index: in the first of these outputs, or in scratch."""
        if not group.members:
            return
        for name in names[1:]:
            alone.setdefault(self.grouping.out_axes[name], []).append(name)
        first, last = group.members[0], group.members[-1]
        size = prod(self.domain[k] for k in self.grouping.spaces[last])
        terms = len(group.members) * prod(self.domain[k] for k in group.kept | group.reduced)
        is_narrow = not names and last in self.grouping.values.values()  # sums of an output of 16 bits
        if is_narrow and size > MOST_SUMS * terms:
            self.is_wasteful = True
        array = self.arrays[names[0]] if names else self._scratch(size)
        self.stored.update(dict.fromkeys(group.members, array))
        self._emit(self.grouping.spaces[first], frozenset(), g, [], [(self.t.nodes[first][1], array)])
        adds = [(self.t.nodes[i][3], self.t.nodes[i][2], i) for i in group.members]
        self._emit(group.kept, group.reduced, g, [], [], adds=adds)

    def _scratch(self, elements: int) -> int:
        self.result.scratch.append(elements)
        return len(self.arrays) + len(self.result.scratch) - 1

    def _read_later(self, g: int) -> list[tuple[int, int]]:
        """The values of group `g` that later nests read, each with an array of scratch."""
        group = self.grouping.groups[g]
        found: dict[int, None] = {}
        seen: set[int] = set()

        def visit(i: int) -> None:
            if i in seen or self.grouping.last[i] < g:
                return
            seen.add(i)
            if i in self.grouping.group_of and self.grouping.groups[self.grouping.group_of[i]].inside == g:
                return  # it is taken in the same nest
            is_scan = group.reverse is not None and i in group.members
            if self.grouping.last[i] == g and (is_scan or self.grouping.spaces[i] <= group.kept):
                found[i] = None
                return
            for x in operands_of(self.t.nodes[i]):
                visit(x)

        for later, k in enumerate(self.grouping.groups):
            if later > g and k.inside != g:
                for i in k.members:
                    for x in operands_of(self.t.nodes[i]):
                        visit(x)
        for name, i in self.grouping.values.items():
            if self.grouping.place[name] != g:
                visit(i)
        result = []
        for i in found:
            self.stored[i] = self._scratch(prod(self.domain[k] for k in self.grouping.spaces[i]))
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
        own = self.grouping.groups[g].members if g < len(self.grouping.groups) else []
        outputs = [self.grouping.values[n] for n in names]
        earlier = {i: a for i, a in self.stored.items() if self.grouping.last[i] < g}
        joined: dict[int, int] = {}
        if g in self.partial and not in_parts:
            parts, partial = self.partial[g]
            joined, reduced = dict(zip(own, partial)), frozenset()
        roots = [*outputs, *(i for i, _ in stored), *(i for i, _, _ in across)]
        roots += [i for *both, _ in adds for i in both]
        scratch = earlier | joined
        order, leaves, gathers = self._within(roots, own, scratch)
        picked = [self._strides(t.nodes[i][1], t.nodes[i][-1]) for i in gathers]
        placed = [self._strides(i, t.nodes[i][-1]) for *_, i in adds]
        indexed = [x for x, _ in (*picked, *placed)]
        masks = [*leaves.values(), *(self.grouping.out_axes[n] for n in names), *map(frozenset, indexed)]
        axes = self._merged(kept, reduced, masks, indexed, order)
        front = (False,) if joined else ()
        lengths = (*(parts for _ in front), *(prod(domain[k] for k in group) for group in axes)) or (1,)

        def mask(there: frozenset[int], of_one: bool = False) -> Mask:
            return (*front, *(group[0] in there for group in axes)) or (of_one,)

        loads: list[Access] = []
        number: dict[int, int] = {}
        partial_at: dict[int, int] = {}
        arrays = {i: scratch[i] if i in scratch else self.arrays[t.nodes[i][1]] for i in leaves}
        for i in sorted(leaves, key=arrays.__getitem__):  # nests that are equal have one text
            if i in joined:
                partial_at[i] = len(loads)
                loads.append(Access(arrays[i], (True, *mask(kept)[1:]), self.grouping.number))
                continue
            kind = self.grouping.number if i in scratch else self.grouping.dtypes[t.nodes[i][1]]
            number[i] = len(loads)
            loads.append(Access(arrays[i], mask(leaves[i]), kind))
        strides = []
        load_of = {}
        for i, (along, own_stride) in zip((*gathers, *(i for *_, i in adds)), (*picked, *placed)):
            each = (*(0 for _ in front), *(along.get(group[-1], 0) for group in axes)) or (0,)
            by_lane = bool(axes) and (axes[-1][-1] in self.grouping.spaces[t.nodes[i][2]] or each[-1] > 1)
            strides.append((*each, own_stride))
            if t.nodes[i][0] == "scatter":
                at = Access(
                    self.stored[i],
                    mask(frozenset(along)),
                    self.grouping.number,
                    True,
                    by_lane or each[-1] != 1,
                )
                continue
            name = t.nodes[t.nodes[i][1]][1]
            load_of[i] = len(loads)
            loads.append(
                Access(self.arrays[name], mask(frozenset(along)), self.grouping.dtypes[name], True, by_lane)
            )
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
                steps.append(renumbered(node, number)[: 1 + len(operands_of(node))])
        stores = [
            (
                number[i],
                Access(self.arrays[n], mask(self.grouping.out_axes[n], True), self.grouping.dtypes[n]),
            )
            for n, i in zip(names, outputs)
        ]
        stores += [
            (number[i], Access(array, mask(self.grouping.spaces[i]), self.grouping.number))
            for i, array in stored
        ]
        sums = functools.partial(Access, mask=mask(reduced), dtype=self.grouping.number)
        nest = Nest(
            mask(kept, True),
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
                leaves[i] = self.grouping.spaces[i]
            elif node[0] == "gather":
                stack.append(node[2])
            else:
                assert i not in self.grouping.group_of or i in own, f"node {i} is read before it is stored"
                stack += operands_of(node)
        ordered = [i for i in self.grouping.order if i in needed]
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
