"""Loop nests of computations as generated code, see `backends/te/nests.py`.

The kept points of a nest are its units, which threads share:

    the last axis is reduced    a unit is a kept point; vectors go along the last axis the last axis is kept
    a unit is a piece of the last axis at one point of the other kept axes; a vector has
                                columns, a few of which are worked on at a time, so that a row's bytes are
                                read together

Sums of many numbers are taken in blocks, whose sums are added, so that errors grow slowly. One function has
all nests of a computation; between two of them threads wait for each other. Lengths are arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, prod
from typing import Any, cast

from ....core.machine_code import native
from ...te.nests import Access, Nest, Nests, PlacedNest
from .calls import team
from .codegen.emit import emit
from .codegen.emitter import Function, Module, width
from .codegen.ir import FLOAT, I64, number, Operand as Int, Value
from .elementwise import bits_of

BLOCK = 4096  # numbers along a vector's axis that are added up before they are added to the rest
ROWS = 128  # the same, of rows that are added up
PIECE = 8192  # elements of the last axis in one unit, where nothing is reduced
_COLUMNS = 4  # vectors of columns that are reduced at a time
_DEAR = frozenset(
    {
        "exp",
        "expm1",
        "log",
        "log1p",
        "tanh",
        "sigmoid",
        "softplus",
        "erf",
        "normal",
        "bell",
        "sqrt",
        "rsqrt",
        "div",
    }
)
"""Steps that take longer than to store a number and to load it again."""


class _Reduction:
    """How numbers are joined: `begin` is what joins to the other one."""

    def __init__(self, begin: float, join: str, across: Callable[[Function, Value], Value]) -> None:
        self.begin, self.across = begin, across
        self._join = join

    def join(self, f: Function, a: Value, b: Value) -> Value:
        return getattr(f, self._join)(a, b)


def _product(f: Function, a: Value) -> Value:
    name = f"llvm.vector.reduce.fmul.{a.type.short}"
    return f.every(f.call(FLOAT, name, number(FLOAT, 1.0), a, flags="reassoc"))


_REDUCTIONS: Mapping[str, _Reduction] = {
    "reduce_sum": _Reduction(0.0, "add", Function.total),
    "reduce_prod": _Reduction(1.0, "mul", _product),
    "reduce_max": _Reduction(float("-inf"), "maximum", Function.largest),
    "reduce_min": _Reduction(float("inf"), "minimum", Function.smallest),
}


class Loops:
    """The code of a computation's nests for given lengths. `call` connects it to arrays."""

    def __init__(self, nests: Nests) -> None:
        self.nests = nests
        self.code = _code(tuple(p.nest for p in nests.nests))
        self.threads = team.threads_for(_nbytes(nests))
        self.scratch = nests.scratch

    def call(self, arrays: Sequence[int], keep: Any) -> team.Run:
        """The call for the addresses of all arrays: inputs, outputs, scratch."""
        slots: list[int] = []
        for placed in self.nests.nests:
            slots += [*placed.lengths, _piece(placed), placed.parts]
            slots += [arrays[x.array] for x in placed.nest.loads]
            slots += [arrays[x.array] for _, x in placed.nest.stores]
            slots += [arrays[x.array] for _, *both in placed.nest.across for x in both]
            slots += [n for strides in placed.strides for n in strides]
            slots += [bits_of(self.nests.constants[i]) for i in placed.nest.constants]
        return team.call(self.code, "nests", slots, self.threads, keep)


def _nbytes(nests: Nests) -> int:
    """Bytes that all nests move, and what their steps take."""
    total = 0
    for placed in nests.nests:
        size = prod(placed.lengths)
        for x in (*placed.nest.loads, *(x for _, x in placed.nest.stores)):
            total += 4 * prod(n for n, there in zip(placed.lengths, x.mask) if there)
        total += 2 * size * len(placed.nest.steps)
    return total


def _piece(placed: PlacedNest) -> int:
    """Elements of the last axis in a unit."""
    nest, last = placed.nest, placed.lengths[-1]
    if not nest.kept[-1]:
        return 1
    if all(nest.kept):
        each = ceil(last / max(1, ceil(last / PIECE)))
        return ceil(each / width()) * width()
    return _columns(nest) * width()


def _columns(nest: Nest) -> int:
    """Vectors of columns that are worked on at a time."""
    return _COLUMNS if len(nest.steps) <= 12 else 2


@functools.lru_cache(maxsize=1024)
def _code(nests: tuple[Nest, ...]) -> native.Code:
    module = Module()
    f = module.function("nests")
    slot = 0
    for k, nest in enumerate(nests):
        if k:
            f.meet()
        writer = _NestWriter(f, nest, slot)
        writer.write()
        slot = writer.slot
    f.done()
    return team.load(module)


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


class _NestWriter:
    """Writes one nest. Slots: lengths, elements of a piece, parts, addresses of what is loaded, stored and
    summed, strides of gathered loads, constants.
    """

    def __init__(self, f: Function, nest: Nest, slot: int) -> None:
        self.f, self.nest = f, nest
        rank = len(nest.kept)
        self.rank, self.last = rank, rank - 1
        self.kept = [k for k in range(rank) if nest.kept[k]]
        self.reduced = [k for k in range(rank) if not nest.kept[k]]
        self.by_columns = nest.kept[-1]
        self.lengths = [f.integer(slot + k) for k in range(rank)]
        self.piece, self.parts = f.integer(slot + rank), f.integer(slot + rank + 1)
        slot += rank + 2
        self.bases: dict[Access, Value] = {}
        sums = (x for _, *both in nest.across for x in both)
        for x in (*nest.loads, *(x for _, x in nest.stores), *sums):
            self.bases[x] = f.pointer(slot)
            slot += 1
        self.gathered: dict[Access, list[Value]] = {}
        for x in nest.loads:
            if x.gathered:
                self.gathered[x] = [f.integer(slot + k) for k in range(rank + 1)]
                slot += rank + 1
        self.constants: dict[int, Value] = {}
        for k in range(len(nest.constants)):
            at = f.offset(f.arg("args"), slot, 8)
            self.constants[len(nest.loads) + k] = f.load_one(at, 0)
            slot += 1
        self.slot = slot
        self.strides = {x: self._strides(x) for x in self.bases}
        self._spaces()
        self._levels()

    # -- facts ---------------------------------------------------------------------------------------

    def _strides(self, x: Access) -> dict[int, Int]:
        """Elements from one index to the next along each axis that an array has."""
        if x.gathered:
            along: list[Int] = [*self.gathered[x]]
            if not x.by_lane:
                along[self.last] = 1
            return {k: along[k] for k, there in enumerate(x.mask) if there}
        found: dict[int, Int] = {}
        step: Int = 1
        for k in range(self.last, -1, -1):
            if x.mask[k]:
                found[k] = step
                step = self.f.times(step, self.lengths[k])
        return found

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
            if name in _REDUCTIONS:
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
            if name in _REDUCTIONS:
                if at == len(self.levels):
                    self.levels.append([])
                self.levels[at].append(i)
                at += 1
            level.append(at)
        self.row_values = [
            i
            for i, space in enumerate(self.spaces)
            if i not in self.constants and not level[i] and space <= outer
        ]
        self.kept_for_last = self._kept_for_last()
        # Sums over the kept axes are added to in the last sweep that reduces, if their terms are known there.
        last = len(self.levels) - 1
        self.early = [x for x in self.nest.across if level[x[0]] <= last]
        self.final = [x for x in self.nest.across if level[x[0]] > last]

    def _kept_for_last(self) -> dict[int, Access]:
        """Values of the last sweep that reduces which the one behind it reads again, where an output is
        before it is known, as that takes less time than to compute them again (cache_write).
        """
        n = self.nest
        whole = {i: x for i, x in n.stores if not self._is_kept(x)}
        if not self.levels or len(whole) != 1 or n.across:
            return {}
        ((root, place),) = whole.items()
        if place.dtype != "float32" or not all(place.mask):
            return {}
        there = set(self._needed([self.operands[i][0] for i in self.levels[-1]], {}))
        for value in reversed(self._needed([root], {})):
            dear = any(self.names[i] in _DEAR and not self.is_unit[i] for i in self._needed([value], {}))
            if value in there and value != root and dear and not self.is_unit[value]:
                rest = self._needed([root], {value: place})
                # Nothing else is read there, which the value might have been written over.
                if all(self.is_unit[i] or i >= len(n.loads) for i in rest):
                    return {value: place}
        return {}

    def _needed(self, roots: Iterable[int], known: Mapping[int, Any]) -> list[int]:
        """The values that lead to `roots` and are not known, in their order."""
        needed: set[int] = set()
        stack = [x for x in roots if x not in known]
        while stack:
            i = stack.pop()
            if i not in needed:
                needed.add(i)
                stack += [x for x in self.operands[i] if x not in known]
        return sorted(needed)

    # -- units ---------------------------------------------------------------------------------------

    def write(self) -> None:
        f = self.f
        outer = [k for k in self.kept if not (self.by_columns and k == self.last)]
        counts: list[Int] = [self.lengths[k] for k in outer]
        if self.nest.in_parts:
            counts.insert(0, self.parts)
        if self.by_columns:
            more = f.plus(self.lengths[self.last], f.minus(self.piece, 1))
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
        for k in self.reduced:
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
                self._some_units(rows.index, end, outer, counts, here)
                f.sweep(0, size, gather)

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
            places = self._split(unit.index, counts)
            part: Int | None = None
            if self.nest.in_parts:
                part = places.pop(0)
            start: Int = f.times(places.pop(), self.piece) if self.by_columns else 0
            indices = dict(zip(outer, places))
            pointers = {x: self._moved(p, x, indices) for x, p in bases.items()}
            if part is not None:
                size: Int = 1
                for k in self.kept:
                    size = f.times(size, self.lengths[k])
                for _, x in self.nest.stores:
                    pointers[x] = f.offset(pointers[x], f.times(part, size), x.dtype)
            self.part = part
            if not self.by_columns:
                self._unit([_Point(pointers, indices, {})])
                return
            end = f.least(f.plus(start, self.piece), self.lengths[self.last])

            row = _Point(pointers, indices, dict(self.constants))
            self._compute(self.row_values, row)

            def at(index: Int, mask: Value | None) -> _Point:
                here = {x: self._moved(p, x, {self.last: index}) for x, p in pointers.items()}
                return _Point(here, {**indices, self.last: index}, dict(row.values), mask, index)

            many = _columns(self.nest)
            if not self.reduced:
                f.sweep(
                    start,
                    end,
                    lambda i, m: self._unit([at(i, m)]),
                    unroll=2 if len(self.nest.steps) <= 8 else 1,
                )
                return
            whole = f.plus(start, f.binary("and", f.minus(end, start), -many * f.width))
            with f.loop(start, whole, many * f.width) as loop:
                self._unit(
                    [at(f.plus(loop.index, k * f.width) if k else loop.index, None) for k in range(many)]
                )
            f.sweep(whole, end, lambda i, m: self._unit([at(i, m)]))

    def _split(self, index: Value, counts: Sequence[Int]) -> list[Int]:
        """The index along each axis of these lengths, of a number that counts all their points."""
        places: list[Int] = []
        rest: Int = index
        for n in reversed(counts[1:]):
            above = self.f.over(rest, n)
            places.insert(0, self.f.minus(rest, self.f.times(above, n)))
            rest = above
        return [rest, *places] if counts else []

    def _moved(self, pointer: Value, x: Access, indices: Mapping[int, Int]) -> Value:
        """The address in an array with these indices added."""
        for k, index in indices.items():
            if k in self.strides[x]:
                stride = self.strides[x][k]
                pointer = self.f.offset(
                    pointer, self.f.times(index, stride) if stride != 1 else index, x.dtype
                )
        return pointer

    def _unit(self, points: Sequence[_Point]) -> None:
        """All sweeps at a kept point, or at some vectors of them."""
        f, n = self.f, self.nest
        for p in points:
            p.values.update(self.constants)
        for level in self.levels:
            is_last = level is self.levels[-1]
            self._reduce(level, points, self.early if is_last else [], self.kept_for_last if is_last else {})
        kept = [(i, x) for i, x in n.stores if self._is_kept(x)]
        whole = [(i, x) for i, x in n.stores if not self._is_kept(x)]
        for p in points:
            self._compute(self._needed([i for i, _ in kept], p.values), p)
            for i, x in kept:
                if self.by_columns and x.mask[self.last]:
                    f.store(p.values[i], p.pointers[x], 0, x.dtype, p.mask)
                else:
                    f.store_one(p.values[i], p.pointers[x], 0, x.dtype)
        roots = [*(i for i, _ in whole), *(i for i, _, _ in self.final)]
        if roots:
            self._prepare([i for i in self._needed(roots, self.kept_for_last) if self.is_unit[i]], points)

            def body(here: Sequence[_Point], carried: Sequence[Value]) -> list[Value]:
                for p in here:
                    for i, x in self.kept_for_last.items():
                        p.values[i] = f.load(p.pointers[x], 0, x.dtype, p.mask)
                    self._compute(self._needed(roots, p.values), p)
                for p in here:
                    self._add(self.final, p)
                    for i, x in whole:
                        if x.mask[self.last]:
                            f.store(p.values[i], p.pointers[x], 0, x.dtype, p.mask)
                        else:
                            f.store_one(p.values[i], p.pointers[x], 0, x.dtype)
                return []

            self._sweep(points, body, [], [])

    def _is_kept(self, x: Access) -> bool:
        return not any(x.mask[k] for k in self.reduced)

    def _prepare(self, roots: Sequence[int], points: Sequence[_Point]) -> None:
        """Compute what a sweep for `roots` needs and is the same in all of it."""
        for p in points:
            needed = self._needed(roots, p.values)
            self._compute([i for i in needed if self.is_unit[i]], p)

    def _add(self, sums: Sequence[tuple[int, Access, Access]], p: _Point) -> None:
        """Add the terms at a point to sums over the kept axes."""
        for i, block, _ in sums:
            at = p.pointers[block]
            self.f.store(self.f.add(self.f.load(at, 0, mask=p.mask), p.values[i]), at, 0, mask=p.mask)

    def _reduce(
        self,
        level: Sequence[int],
        points: Sequence[_Point],
        sums: Sequence[tuple[int, Access, Access]],
        stored: Mapping[int, Access],
    ) -> None:
        f = self.f
        terms = [self.operands[i][0] for i in level]
        roots = [*terms, *(i for i, _, _ in sums)]
        kinds = [_REDUCTIONS[self.names[i]] for i in level]
        self._prepare(roots, points)
        firsts = [f.const(kind.begin) for kind in kinds]

        def body(here: Sequence[_Point], carried: Sequence[Value]) -> list[Value]:
            made = []
            for k, p in enumerate(here):
                self._compute(self._needed(roots, p.values), p)
                self._add(sums, p)
                for i, x in stored.items():
                    f.store(p.values[i], p.pointers[x], 0, x.dtype, p.mask)
                for j, (kind, root) in enumerate(zip(kinds, terms)):
                    term = p.values[root]
                    if p.mask is not None and not self.by_columns:
                        term = f.select(p.mask, term, firsts[j])
                    made.append(kind.join(f, carried[k * len(kinds) + j], term))
            return made

        results = self._sweep(points, body, firsts * len(points), kinds * len(points))
        for k, p in enumerate(points):
            for j, (kind, i) in enumerate(zip(kinds, level)):
                total = results[k * len(kinds) + j]
                p.values[i] = total if self.by_columns else kind.across(f, total)

    # -- sweeps over the reduced axes --------------------------------------------------------------

    def _sweep(
        self,
        points: Sequence[_Point],
        body: Callable[[Sequence[_Point], Sequence[Value]], list[Value]],
        firsts: list[Value],
        kinds: list[_Reduction],
    ) -> Sequence[Value]:
        """`body` at every point of the reduced axes; the carried values joined."""
        f = self.f

        def joined(a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
            return [kind.join(f, x, y) for kind, x, y in zip(kinds, a, b)]

        def bounds(axis: int) -> tuple[Int, Int]:
            grain = f.width if axis == self.last else 1
            if self.nest.in_parts and axis == self.reduced[0]:
                assert self.part is not None
                return f.share(self.lengths[axis], grain, (self.part, self.parts))
            return 0, self.lengths[axis]

        def moved(here: Sequence[_Point], axis: int, index: Int) -> list[_Point]:
            result = []
            for p in here:
                pointers = {x: self._moved(q, x, {axis: index}) for x, q in p.pointers.items()}
                result.append(_Point(pointers, {**p.indices, axis: index}, dict(p.values), p.mask, p.lane))
            return result

        def over(axes: Sequence[int], here: Sequence[_Point], carried: Sequence[Value]) -> Sequence[Value]:
            if not axes:
                own = [_Point(p.pointers, p.indices, dict(p.values), p.mask, p.lane) for p in here]
                return body(own, carried)
            axis, *rest = axes
            start, stop = bounds(axis)
            if rest:
                with f.loop(start, stop, 1, carried) as loop:
                    loop.again(*over(rest, moved(here, axis, loop.index), loop.values))
                return loop.results
            if axis == self.last:
                return along(axis, here, carried, start, stop)
            if not carried:
                with f.loop(start, stop) as loop:
                    over((), moved(here, axis, loop.index), ())
                return ()
            with f.loop(start, stop, ROWS, carried) as block:
                end = f.least(f.plus(block.index, ROWS), stop)
                with f.loop(block.index, end, 1, firsts) as loop:
                    loop.again(*over((), moved(here, axis, loop.index), loop.values))
                block.again(*joined(block.values, loop.results))
            return block.results

        def along(
            axis: int, here: Sequence[_Point], carried: Sequence[Value], start: Int, stop: Int
        ) -> Sequence[Value]:
            (p,) = here

            def vector(index: Value, mask: Value | None, *values: Value) -> list[Value]:
                pointers = {x: self._moved(q, x, {axis: index}) for x, q in p.pointers.items()}
                q = _Point(pointers, {**p.indices, axis: index}, dict(p.values), mask, index)
                return body([q], values)

            if not carried:
                return f.sweep(start, stop, vector, unroll=2 if len(self.nest.steps) <= 12 else 1)
            unroll = 4 if len(carried) == 1 else 2
            with f.loop(start, stop, BLOCK, carried) as block:
                end = f.least(f.plus(block.index, BLOCK), stop)
                found = f.sweep(
                    block.index, end, vector, firsts, unroll, [functools.partial(k.join, f) for k in kinds]
                )
                block.again(*joined(block.values, found))
            return block.results

        return over(self.reduced, points, firsts)

    # -- values ------------------------------------------------------------------------------------

    def _compute(self, numbers: Sequence[int], p: _Point) -> None:
        """The values `numbers`, at a point that knows what they need."""
        f, n = self.f, self.nest
        for i in numbers:
            if i < len(n.loads):
                x = n.loads[i]
                if x.mask[self.last] and p.lane is not None:
                    p.values[i] = f.load(p.pointers[x], 0, x.dtype, p.mask)
                else:
                    p.values[i] = f.load_one(p.pointers[x], 0, x.dtype)
                continue
            name = self.names[i]
            step = n.steps[i - n.first_step]
            if name == "index":
                (axis,) = step[1:]
                value = f.number(p.indices[axis])  # type: ignore[index]
                if axis == self.last:
                    lanes = f.cast("sitofp", f.iota, f.vector)
                    value = f.add(value, lanes)
                p.values[i] = value
            elif name == "number":
                p.values[i] = f.const(step[1])  # type: ignore[arg-type]
            elif name == "gather":
                load, index = cast(tuple[int, int], step[1:])
                p.values[i] = self._gather(n.loads[load], p.values[index], p)
            elif name == "broadcast":
                p.values[i] = p.values[self.operands[i][0]]
            else:
                p.values[i] = emit(f, step, [p.values[x] for x in self.operands[i]], p.made)

    def _gather(self, x: Access, index: Value, p: _Point) -> Value:
        """The elements of an array at an index along an axis of its own. A nan counts as 0."""
        f, stride = self.f, self.gathered[x][-1]
        index = f.select(f.compare("oeq", index, index), index, f.const(0.0))
        if not x.by_lane:
            place = f.times(f.cast("fptosi", f.lane(index, 0), I64), stride)
            at = f.offset(p.pointers[x], place, x.dtype)
            return f.load(at, 0, x.dtype, p.mask) if x.mask[self.last] else f.load_one(at, 0, x.dtype)
        many = f.iota.type
        places = f.binary("mul", f.cast("fptosi", index, many), f.spread(stride, f.width))
        if x.mask[self.last]:
            places = f.binary(
                "add", places, f.binary("mul", f.iota, f.spread(self.gathered[x][self.last], f.width))
            )
        return f.gather(p.pointers[x], places, x.dtype, p.mask)
