"""One loop nest, written as LLVM instructions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from ....nests.facts import facts_of
from ....nests.nest import Access, Nest
from ..codegen.emit import emit
from ..codegen.emitter import Function
from ..codegen.ir import FLOAT, I64, Operand as Int, Value, zero
from .scan import carried_on, Scan, scans_of
from .schedule import BLOCK, NestSchedule, Reduction, REDUCTIONS

ROWS = 128  # that are added up before they are added to the rest
_SLOW = frozenset({"div", "sqrt", "rsqrt"})  # which take longer for more lanes: of equal ones one is enough


class _Point:
    """A place in a nest while code is written: addresses of the arrays there, the index along each axis that
    is known, the vector's mask, and the values that are known.
    """

    def __init__(
        self,
        pointers: Mapping[Access, Value],
        indices: Mapping[int, Int],
        values: dict[int, Value],
        mask: Value | None = None,
        lane: Int | None = None,
    ) -> None:
        self.pointers, self.indices, self.values = dict(pointers), dict(indices), values
        self.mask, self.lane = mask, lane
        self.made: dict[Value, tuple[Value, Value]] = {}
        self.carried: dict[int, Value] = {}  # what each scan has come to


class NestWriter:
    """Writes one nest. Slots: lengths, elements of a piece, parts, addresses of what is loaded, stored,
    summed and added to, strides of gathered places, constants.
    """

    def __init__(self, f: Function, nest: Nest, schedule: NestSchedule, slot: int) -> None:
        self.f, self.nest, self.facts, self.schedule = f, nest, facts_of(nest), schedule
        rank = len(nest.kept)
        self.lengths = [f.integer(slot + k) for k in range(rank)]
        self.piece, self.parts = f.integer(slot + rank), f.integer(slot + rank + 1)
        slot += rank + 2
        self.bases: dict[Access, Value] = {}
        sums = (x for _, *both in nest.across for x in both)
        added = [x for *_, x in nest.adds]
        for x in (*nest.loads, *(x for _, x in nest.stores), *sums, *added):
            self.bases[x] = f.pointer(slot)
            slot += 1
        self.gathered: dict[Access, list[Value]] = {}
        for x in (*nest.loads, *(x for _, x in nest.stores), *added):
            if x.gathered or x.strided:
                self.gathered[x] = [f.integer(slot + k) for k in range(rank + 1)]
                slot += rank + 1
        self.constants: dict[int, Value] = {}
        for k in range(len(nest.constants)):
            at = f.offset(f.arg("args"), slot, 8)
            self.constants[len(nest.loads) + k] = f.load_one(at, 0)
            slot += 1
        self.slot = slot
        self.scans = scans_of(nest)
        self.strides = {x: self._strides(x) for x in self.bases}

    def _strides(self, x: Access) -> dict[int, Int]:
        """Elements from one index to the next along each axis that an array has."""
        if x in self.gathered:
            along: list[Int] = [*self.gathered[x]]
            if not x.by_lane:
                along[self.facts.last] = 1
            return {k: along[k] for k, there in enumerate(x.mask) if there}
        found: dict[int, Int] = {}
        step: Int = 1
        for k in range(self.facts.last, -1, -1):
            if x.mask[k]:
                found[k] = step
                step = self.f.times(step, self.lengths[k])
        return found

    # -- units ---------------------------------------------------------------------------------------

    def write(self) -> None:
        if not self.facts.is_copy:
            self._write()
            return
        ((_, target),), (source,) = self.nest.stores, self.nest.loads
        with self.f.when(self.f.is_("ne", self.bases[source], self.bases[target])):  # it may be in place
            self._write()

    def _write(self) -> None:
        f = self.f
        outer = [k for k in self.facts.kept if not (self.facts.by_columns and k == self.facts.last)]
        counts: list[Int] = [self.parts if k == self.facts.inner else self.lengths[k] for k in outer]
        if self.nest.in_parts:
            counts.insert(0, self.parts)
        if self.facts.by_columns:
            more = f.plus(self.lengths[self.facts.last], f.minus(self.piece, 1))
            counts.append(f.over(more, self.piece))
        units: Int = 1
        for n in counts:
            units = f.times(units, n)
        if self.nest.across:
            self._parts_of_units(units, outer, counts)
        else:
            self._some_units(*f.share(units), outer, counts, self.bases)

    def _parts_of_units(self, units: Int, outer: Sequence[int], counts: Sequence[Int]) -> None:
        """All units, in parts that have sums of their own, and these in blocks."""
        f = self.f
        size: Int = 1
        for k in self.facts.reduced:
            size = f.times(size, self.lengths[k])
        with f.loop(*f.share(self.parts)) as part:
            here = dict(self.bases)
            for _, *both in self.nest.across:
                for x in both:
                    here[x] = f.offset(here[x], f.times(part.index, size), x.dtype)
            zero = f.const(0.0)

            def clear(which: int, i: Value, mask: Value | None) -> None:
                for both in self.nest.across:
                    f.store(zero, here[both[which]], i, mask=mask)  # type: ignore[index]

            def gather(i: Value, mask: Value | None) -> None:
                for _, block, total in self.nest.across:
                    more = f.add(f.load(here[total], i, mask=mask), f.load(here[block], i, mask=mask))
                    f.store(more, here[total], i, mask=mask)

            f.sweep(0, size, functools.partial(clear, 2))
            first, last = f.share(units, part=(part.index, self.parts))
            with f.loop(first, last, ROWS) as rows:
                f.sweep(0, size, functools.partial(clear, 1))
                end = f.least(f.plus(rows.index, ROWS), last)
                self._rows(rows.index, end, outer, counts, here)
                f.sweep(0, size, gather)

    def _rows(
        self,
        first: Value,
        last: Value,
        outer: Sequence[int],
        counts: Sequence[Int],
        bases: Mapping[Access, Value],
    ) -> None:
        """The units from `first` to `last`, some at a time."""
        f = self.f
        start: Value = first
        for together in dict.fromkeys((self.schedule.rows, 1)):
            whole = f.plus(start, f.binary("and", f.minus(last, start), -together))
            with f.loop(start, whole, together) as unit:
                numbers = [f.plus(unit.index, k) for k in range(together)]
                self._unit([self._row(i, outer, counts, bases) for i in numbers])
            start = whole

    def _row(
        self, index: Value, outer: Sequence[int], counts: Sequence[Int], bases: Mapping[Access, Value]
    ) -> _Point:
        """A unit by its number, where the last axis is reduced."""
        indices = dict(zip(outer, self.f.split(index, counts[1:])))
        return _Point({x: self._moved(p, x, indices) for x, p in bases.items()}, indices, {})

    def _some_units(
        self,
        first: Int,
        last: Int,
        outer: Sequence[int],
        counts: Sequence[Int],
        bases: Mapping[Access, Value],
    ) -> None:
        """The units from `first` to `last`."""
        f = self.f
        with f.loop(first, last) as unit:
            places = f.split(unit.index, counts[1:])
            part: Int | None = None
            if self.nest.in_parts:
                part = places.pop(0)
            start: Int = f.times(places.pop(), self.piece) if self.facts.by_columns else 0
            indices = dict(zip(outer, places))
            if self.facts.inner is not None:
                some = indices.pop(self.facts.inner), self.parts
                self.inner = f.share(self.lengths[self.facts.inner], part=some)
            pointers = {x: self._moved(p, x, indices) for x, p in bases.items()}
            if part is not None:
                size: Int = 1
                for k in self.facts.kept:
                    size = f.times(size, self.lengths[k])
                for _, x in self.nest.stores:
                    pointers[x] = f.offset(pointers[x], f.times(part, size), x.dtype)
            self.part = part
            if not self.facts.by_columns:
                self._unit([_Point(pointers, indices, {})])
                return
            end = f.least(f.plus(start, self.piece), self.lengths[self.facts.last])

            row = _Point(pointers, indices, dict(self.constants))
            self._compute([i for i in self.facts.row_values if self._is_shared(i)], row)
            if self.facts.adds_rows:
                self._add_rows(row, start, end)
                return

            def at(index: Int, mask: Value | None) -> _Point:
                here = {x: self._moved(p, x, {self.facts.last: index}) for x, p in pointers.items()}
                return _Point(here, {**indices, self.facts.last: index}, dict(row.values), mask, index)

            many = self.schedule.columns
            if not self.facts.reduced:
                f.sweep(
                    start,
                    end,
                    lambda i, m: self._unit([at(i, m)]),
                    unroll=self.schedule.unroll or (2 if len(self.nest.steps) <= 8 else 1),
                )
                return
            whole = f.plus(start, f.binary("and", f.minus(end, start), -many * f.width))
            with f.loop(start, whole, many * f.width) as loop:
                self._unit(
                    [at(f.plus(loop.index, k * f.width) if k else loop.index, None) for k in range(many)]
                )
            f.sweep(whole, end, lambda i, m: self._unit([at(i, m)]))

    def _add_rows(self, row: _Point, start: Int, end: Int) -> None:
        """The columns from `start` to `end` of all rows that are added at an index, row by row, in the order
        of memory.
        """
        f, last = self.f, self.facts.last
        roots = [i for *both, _ in self.nest.adds for i in both]

        def body(here: Sequence[_Point], carried: Sequence[Value]) -> list[Value]:
            (p,) = here
            needed = self.facts.needed(roots, p.values)
            self._compute([i for i in needed if last not in self.facts.spaces[i]], p)
            moved = {
                x: f.offset(p.pointers[x], self._places(x, p.values[i]), x.dtype)
                for _, i, x in self.nest.adds
            }

            def add(index: Value, mask: Value | None) -> None:
                here = {x: self._moved(q, x, {last: index}) for x, q in {**p.pointers, **moved}.items()}
                at = _Point(here, {**p.indices, last: index}, dict(p.values), mask, index)
                self._compute(self.facts.needed(roots, at.values), at)
                for i, _, x in self.nest.adds:
                    f.store(f.add(f.load(here[x], 0, mask=mask), at.values[i]), here[x], 0, mask=mask)

            f.sweep(start, end, add)
            return []

        self._sweep([row], body, [], [])

    def _moved(self, pointer: Value, x: Access, indices: Mapping[int, Int]) -> Value:
        """The address in an array with these indices added."""
        for k, index in indices.items():
            if k in self.strides[x]:
                stride = self.strides[x][k]
                pointer = self.f.offset(
                    pointer, self.f.times(index, stride) if stride != 1 else index, x.dtype
                )
        return pointer

    def _at(self, points: Sequence[_Point], axis: int, index: Int) -> list[_Point]:
        """The points at an index along an axis."""
        result = []
        for p in points:
            pointers = {x: self._moved(q, x, {axis: index}) for x, q in p.pointers.items()}
            result.append(_Point(pointers, {**p.indices, axis: index}, dict(p.values), p.mask, p.lane))
        return result

    def _unit(self, points: Sequence[_Point]) -> None:
        """All sweeps at a kept point, or at some vectors of them."""
        f, n = self.f, self.nest
        for p in points:
            p.values.update(self.constants)
        for level in self.facts.levels:
            is_last = level is self.facts.levels[-1]
            self._reduce(
                level,
                points,
                self.facts.early if is_last else [],
                self.facts.cache_writes if is_last else {},
            )
        kept = [(i, x) for i, x in n.stores if self.facts.is_kept(x)]
        whole = [(i, x) for i, x in n.stores if not self.facts.is_kept(x)]
        roots = [*(i for i, _ in whole), *(i for i, _, _ in self.facts.final)]
        roots += [i for *both, _ in n.adds for i in both]
        if roots:  # what the last sweep reads may be overwritten by what is stored before it
            needed = self.facts.needed(roots, self.facts.cache_writes)
            self._prepare([i for i in needed if self.facts.is_unit[i]], points)
        if kept:
            self._innermost(points, [i for i, _ in kept], functools.partial(self._store, kept))
        if roots:

            def finish(here: Sequence[_Point]) -> None:
                self._add(self.facts.final, here)
                self._add_at_index(here)
                self._store(whole, here)

            def body(here: Sequence[_Point], carried: Sequence[Value]) -> list[Value]:
                for p in here:
                    for i, x in self.facts.cache_writes.items():
                        p.values[i] = f.load(p.pointers[x], 0, x.dtype, p.mask)
                self._innermost(here, roots, finish)
                return []

            if self.scans:
                self._scan(points, body)
            else:
                self._sweep(points, body, [], [])

    def _scan(
        self,
        points: Sequence[_Point],
        body: Callable[[Sequence[_Point], Sequence[Value]], list[Value]],
    ) -> None:
        """`body` at every point of the reduced axis, in the order of the nest's scans."""
        f, (axis,) = self.f, self.facts.reduced
        length, order = self.lengths[axis], list(self.scans)
        along = axis == self.facts.last
        reverse = self.scans[order[0]].reverse

        def visit(index: Int, mask: Value | None, carried: Sequence[Value]) -> list[Value]:
            here = self._at(points, axis, index)
            for k, p in enumerate(here):
                p.carried = dict(zip(order, carried[k * len(order) :]))
                if along:
                    p.mask, p.lane = mask, index
            body(here, ())
            return [p.carried[i] for p in here for i in order]

        firsts: list[Value] = []
        for p in points:
            starts = [self.scans[i].first for i in order]
            self._compute(self.facts.needed(starts, p.values), p)
            firsts += [p.values[i] for i in starts]
        step = f.width if along else 1
        whole = f.binary("and", length, -step) if along else length
        with f.loop(0, whole, step, firsts) as loop:
            at: Int = f.minus(f.minus(length, step), loop.index) if reverse else loop.index
            loop.again(*visit(at, None, loop.values))
        if along:  # what is left, once or never
            with f.loop(whole, length, step, loop.results) as rest:
                left = f.minus(length, whole)
                rest.again(*visit(0 if reverse else whole, f.tail(0, left), rest.values))

    def _is_shared(self, i: int) -> bool:
        """True for a value that is the same in all of the innermost loop."""
        return self.facts.inner is None or self.facts.inner not in self.facts.spaces[i]

    def _innermost(
        self, points: Sequence[_Point], roots: Sequence[int], act: Callable[[Sequence[_Point]], None]
    ) -> None:
        """Compute `roots` at some points, and act on them: at each index along the innermost axis."""
        axis = self.facts.inner
        if axis is None:
            self._compute_all(roots, points)
            act(points)
            return
        for p in points:
            self._compute([i for i in self.facts.needed(roots, p.values) if self._is_shared(i)], p)
        with self.f.loop(*self.inner) as loop:
            here = self._at(points, axis, loop.index)
            self._compute_all(roots, here)
            act(here)

    def _store(self, stores: Sequence[tuple[int, Access]], points: Sequence[_Point]) -> None:
        """Store values at some points: a vector along the last axis, or one number."""
        f, last = self.f, self.facts.last
        for p in points:
            for i, x in stores:
                if x.mask[last] and (self.facts.by_columns or not self.facts.is_kept(x)):
                    f.store(p.values[i], p.pointers[x], 0, x.dtype, p.mask)
                else:
                    f.store_one(p.values[i], p.pointers[x], 0, x.dtype)

    def _prepare(self, roots: Sequence[int], points: Sequence[_Point]) -> None:
        """Compute what a sweep for `roots` needs and is the same in all of it."""
        for p in points:
            needed = self.facts.needed(roots, p.values)
            self._compute([i for i in needed if self.facts.is_unit[i] and self._is_shared(i)], p)

    def _add(self, sums: Sequence[tuple[int, Access, Access]], points: Sequence[_Point]) -> None:
        """Add the terms at some points to sums over the kept axes."""
        f, mask = self.f, points[0].mask
        for i, block, _ in sums:
            at = points[0].pointers[block]
            terms = (p.values[i] for p in points)  # one after the other, however many there are at a time
            f.store(functools.reduce(f.add, terms, f.load(at, 0, mask=mask)), at, 0, mask=mask)

    def _add_at_index(self, points: Sequence[_Point]) -> None:
        """Add the terms at some points to the places of their indices, one lane after the other. Neighbours
        often are added at one place, and each waits for the one before it: what else there is to add comes
        between them.
        """
        f = self.f
        for p in points:
            given = []
            for i, index, x in self.nest.adds:
                at, places, terms = p.pointers[x], self._places(x, p.values[index]), p.values[i]
                if p.mask is not None:  # lanes outside add to the first place what changes no sum
                    terms = f.select(p.mask, terms, f.const(-0.0))
                    places = f.either(p.mask, places, zero(places.type))
                given.append((at, places, terms, x.dtype))
            for k in range(f.width):
                for at, places, terms, dtype in given:
                    one = f.offset(at, f.lane(places, k), dtype)
                    f.store_at(f.add(f.load_at(FLOAT, one, 4), f.lane(terms, k)), one, 4)

    def _reduce(
        self,
        level: Sequence[int],
        points: Sequence[_Point],
        sums: Sequence[tuple[int, Access, Access]],
        stored: Mapping[int, Access],
    ) -> None:
        f = self.f
        terms = [self.facts.operands[i][0] for i in level]
        roots = [*terms, *(i for i, _, _ in sums)]
        kinds = [REDUCTIONS[self.facts.names[i]] for i in level]
        self._prepare(roots, points)
        firsts = [f.const(kind.begin) for kind in kinds]

        def body(here: Sequence[_Point], carried: Sequence[Value]) -> list[Value]:
            made = []
            self._compute_all(roots, here)
            self._add(sums, here)
            for k, p in enumerate(here):
                for i, x in stored.items():
                    f.store(p.values[i], p.pointers[x], 0, x.dtype, p.mask)
                for j, (kind, root) in enumerate(zip(kinds, terms)):
                    term = p.values[root]
                    if p.mask is not None and not self.facts.by_columns:
                        term = f.select(p.mask, term, firsts[j])
                    made.append(kind.join(f, carried[k * len(kinds) + j], term))
            return made

        results = self._sweep(points, body, firsts * len(points), kinds * len(points))
        for k, p in enumerate(points):
            for j, (kind, i) in enumerate(zip(kinds, level)):
                total = results[k * len(kinds) + j]
                p.values[i] = total if self.facts.by_columns else kind.across(f, total)

    # -- sweeps over the reduced axes --------------------------------------------------------------

    def _sweep(
        self,
        points: Sequence[_Point],
        body: Callable[[Sequence[_Point], Sequence[Value]], list[Value]],
        firsts: list[Value],
        kinds: list[Reduction],
    ) -> Sequence[Value]:
        """`body` at every point of the reduced axes; the carried values joined."""
        f = self.f

        def joined(a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
            return [kind.join(f, x, y) for kind, x, y in zip(kinds, a, b)]

        def bounds(axis: int) -> tuple[Int, Int]:
            grain = f.width if axis == self.facts.last else 1
            if self.nest.in_parts and axis == self.facts.reduced[0]:
                assert self.part is not None
                return f.share(self.lengths[axis], grain, (self.part, self.parts))
            return 0, self.lengths[axis]

        def over(axes: Sequence[int], here: Sequence[_Point], carried: Sequence[Value]) -> Sequence[Value]:
            if not axes:
                own = [_Point(p.pointers, p.indices, dict(p.values), p.mask, p.lane) for p in here]
                return body(own, carried)
            axis, *rest = axes
            start, stop = bounds(axis)
            if rest:
                with f.loop(start, stop, 1, carried) as loop:
                    loop.again(*over(rest, self._at(here, axis, loop.index), loop.values))
                return loop.results
            if axis == self.facts.last:
                return along(axis, here, carried, start, stop)
            if not carried:
                with f.loop(start, stop) as loop:
                    over((), self._at(here, axis, loop.index), ())
                return ()
            with f.loop(start, stop, ROWS, carried) as block:
                end = f.least(f.plus(block.index, ROWS), stop)
                with f.loop(block.index, end, 1, firsts) as loop:
                    loop.again(*over((), self._at(here, axis, loop.index), loop.values))
                block.again(*joined(block.values, loop.results))
            return block.results

        def along(
            axis: int, here: Sequence[_Point], carried: Sequence[Value], start: Int, stop: Int
        ) -> Sequence[Value]:
            def vector(index: Value, mask: Value | None, *values: Value) -> list[Value]:
                points = self._at(here, axis, index)
                for p in points:
                    p.mask, p.lane = mask, index
                return body(points, values)

            if not carried:
                few = len(here) * len(self.nest.steps) <= 24
                return f.sweep(start, stop, vector, unroll=self.schedule.unroll or (2 if few else 1))
            unroll = 4 if len(carried) == len(here) else 2
            joins = [functools.partial(k.join, f) for k in kinds]
            if not self.schedule.in_blocks:
                found = f.sweep(start, stop, vector, firsts, unroll, joins)
                return found if carried is firsts else joined(carried, found)
            with f.loop(start, stop, BLOCK, carried) as block:
                end = f.least(f.plus(block.index, BLOCK), stop)
                found = f.sweep(block.index, end, vector, firsts, unroll, joins)
                block.again(*joined(block.values, found))
            return block.results

        return over(self.facts.reduced, points, firsts)

    # -- values ------------------------------------------------------------------------------------

    def _compute_all(self, roots: Sequence[int], points: Sequence[_Point]) -> None:
        """What leads to `roots`, at some points; once what is the same at all of them."""
        first, *others = points
        needed = self.facts.needed(roots, first.values)
        shared = [i for i in needed if not self.facts.spaces[i].intersection(self.facts.kept)]
        self._compute(shared, first)
        for p in others:
            p.values.update((i, first.values[i]) for i in shared)
        for p in points:
            self._compute(self.facts.needed(roots, p.values), p)

    def _compute(self, numbers: Sequence[int], p: _Point) -> None:
        """The values `numbers`, at a point that knows what they need."""
        f, n = self.f, self.nest
        for i in numbers:
            if i < len(n.loads):
                x = n.loads[i]
                if x.mask[self.facts.last] and p.lane is not None:
                    p.values[i] = f.load(p.pointers[x], 0, x.dtype, p.mask)
                else:
                    p.values[i] = f.load_one(p.pointers[x], 0, x.dtype)
                continue
            name = self.facts.names[i]
            step = n.steps[i - n.first_step]
            if name == "index":
                (axis,) = step[1:]
                value = f.number(p.indices[axis])  # type: ignore[index]
                if axis == self.facts.last:
                    lanes = f.cast("sitofp", f.iota, f.vector)
                    value = f.add(value, lanes)
                p.values[i] = value
            elif name == "number":
                p.values[i] = f.const(step[1])  # type: ignore[arg-type]
            elif name == "scan":
                p.values[i], p.carried[i] = self._carried(self.scans[i], p, p.carried[i])
            elif name == "gather":
                load, index = cast(tuple[int, int], step[1:])
                p.values[i] = self._gather(n.loads[load], p.values[index], p)
            elif name == "broadcast":
                p.values[i] = p.values[self.facts.operands[i][0]]
            elif name in _SLOW and self.facts.last not in self.facts.spaces[i]:
                operands = [f.lane(p.values[x], 0) for x in self.facts.operands[i]]
                p.values[i] = f.every(emit(f, step, operands, p.made))
            else:
                p.values[i] = emit(f, step, [p.values[x] for x in self.facts.operands[i]], p.made)

    def _carried(self, scan: Scan, p: _Point, before: Value) -> tuple[Value, Value]:
        """The values of a scan at a point, and what it has come to behind them."""
        factor = None if scan.is_sum else p.values[scan.factor]
        term = None if scan.is_product else p.values[scan.term]
        along = self.facts.reduced[0] == self.facts.last
        return carried_on(self.f, scan, along, factor, term, before, p.mask)

    def _gather(self, x: Access, index: Value, p: _Point) -> Value:
        """The elements of an array at an index along an axis of its own. A nan counts as 0."""
        f, places = self.f, self._places(x, index)
        if not x.by_lane:
            at = f.offset(p.pointers[x], places, x.dtype)
            return f.load(at, 0, x.dtype, p.mask) if x.mask[self.facts.last] else f.load_one(at, 0, x.dtype)
        return f.gather(p.pointers[x], places, x.dtype, p.mask)

    def _places(self, x: Access, index: Value) -> Value:
        """The elements by which an index moves an address: for each lane its own, or for all of them."""
        f, stride = self.f, self.gathered[x][-1]
        index = f.select(f.compare("oeq", index, index), index, f.const(0.0))
        if not x.by_lane:
            return f.times(f.cast("fptosi", f.lane(index, 0), I64), stride)
        places = f.binary("mul", f.cast("fptosi", index, f.iota.type), f.spread(stride, f.width))
        if x.mask[self.facts.last]:
            along = f.spread(self.gathered[x][self.facts.last], f.width)
            places = f.binary("add", places, f.binary("mul", f.iota, along))
        return places
