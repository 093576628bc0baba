"""Calls of the generated code of a computation's nests."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Collection, Sequence
from math import ceil, prod
from typing import Any

from .....core.cached import cached_property
from .....core.dtype import float32
from .....core.machine_code import native
from .....graph.opdef import DType
from .....ops.scratch import carve, Piece, scratch_bytes
from .....te.computation import Computation
from ....nests.build import nests_of
from ....nests.facts import EXPENSIVE, facts_of
from ....nests.nest import Nest, Nests, PlacedNest
from ...onednn.primitive import address_of
from ..calls import team
from ..codegen.emitter import Module, storable, width
from .schedule import NestSchedule, schedule_of
from .writer import NestWriter

_FREE = frozenset({"load", "constant", "number", "index", "broadcast"})
PIECE = 8192  # elements of the last axis in one unit, where nothing is reduced
MOST_INNER = 32
"""Elements of the innermost axis in one unit: its lines stay in the cache from vector to vector."""
LEAST_ADDED = 64
"""Elements of rows that are added at an index in one unit: of fewer each thread reads all indices."""


class Loops:
    """The code of a computation's nests for given lengths. `call` connects it to arrays.

    `schedules` has one for each nest; the default ones unless given.
    """

    def __init__(self, nests: Nests, schedules: Sequence[NestSchedule] | None = None) -> None:
        self.nests = nests
        self.schedules = tuple(schedules or map(schedule_of, nests.nests))
        self.threads = team.threads_for(_nbytes(nests))
        self.scratch = nests.scratch
        slots: list[int] = []
        self._places: list[tuple[int, int]] = []  # slots of addresses, and of which array each is
        for placed, schedule in zip(nests.nests, self.schedules, strict=True):
            nest = placed.nest
            slots += [*placed.lengths, *_division(placed, schedule, self.threads)]
            stored, added = ([x for *_, x in places] for places in (nest.stores, nest.adds))
            for x in (*nest.loads, *stored, *(x for _, *both in nest.across for x in both), *added):
                self._places.append((len(slots), x.array))
                slots.append(0)
            slots += [n for strides in placed.strides for n in strides]
            slots += [_bits_of(nests.constants[i]) for i in nest.constants]
        self._type = ctypes.c_int64 * len(slots)
        self._slots = self._type(*slots)

    @cached_property
    def _make(self) -> Callable[[Any], team.Run]:
        """The factory of calls, from their slots."""
        code = _code(tuple((p.nest, s) for p, s in zip(self.nests.nests, self.schedules)))
        return team.caller(code, "nests", self.threads)

    def call(self, arrays: Sequence[int], keep: Any) -> team.Run:
        """The call for the addresses of all arrays: inputs, outputs, scratch."""
        slots: Any = self._type.from_buffer_copy(self._slots)
        for at, array in self._places:
            slots[at] = arrays[array]
        slots.keep = keep
        return self._make(slots)


def _bits_of(x: float) -> int:
    """A float32 number as the low half of a slot."""
    try:
        return int.from_bytes(struct.pack("<f", x), "little")
    except OverflowError:
        return 0x7F800000 if x > 0 else 0xFF800000


class Computed:
    """The loops of a computation between arrays by name. Raises LookupError where there is no code.

    Bits are the same on any number of threads.
    """

    bits = ()

    def __init__(self, nests: Callable[[], Nests], dtypes: Collection[str] = ("float32",)) -> None:
        """`nests` makes them, where code can be generated for arrays of these `dtypes`."""
        if not team.usable() or not set(dtypes) <= storable():
            raise LookupError
        self.loops = Loops(nests())
        self.pieces: list[Piece] = [((n,), float32) for n in self.loops.scratch]

    @property
    def nbytes(self) -> int:
        """Bytes of scratch."""
        return scratch_bytes(self.pieces)

    def run_of(self, work: Any, **given: Any) -> team.Run:
        """The call for these arrays, or addresses of their first elements."""
        names = (*self.loops.nests.inputs, *self.loops.nests.outputs)
        arrays = [*(given[n] for n in names), *(carve(work, self.pieces) if self.pieces else ())]
        return self.loops.call([address_of(x) for x in arrays], keep=(given, work))


class ColumnSum(Computed):
    """out[c] = sum over r of x[r, c], for a matrix of `rows` x `columns`; `adds`: accumulated into out."""

    name = "compiled column sum"

    def __init__(self, rows: int, columns: int, dtype: DType, out: DType, adds: bool = False) -> None:
        kinds = dtype.name, out.name
        super().__init__(lambda: _column_sum(rows, columns, *kinds, adds), kinds)

    def connect(self, x: Any, out: Any, work: Any) -> team.Run:
        """The call; `x` has rows x columns elements."""
        return self.run_of(work, x=x, before=out, out=out)


@functools.lru_cache(maxsize=256)
def _column_sum(rows: int, columns: int, dtype: str, out: str, adds: bool) -> Nests:
    t = Computation()
    total = t.sum(t.input("x", (rows, columns)), (0,))
    if adds:
        total = t.input("before", (1, columns)) + total
    dtypes = {"x": dtype, "before": out, "out": out}
    nests = nests_of(t, {"out": total}, {"out": (1, columns)}, dtypes, {"out": frozenset({"before"})})
    assert nests is not None
    return nests


def _nbytes(nests: Nests) -> int:
    """Bytes that all nests move, and what their steps take: as long as two bytes each, or half of one."""
    total = 0
    for placed in nests.nests:
        nest, lengths = placed.nest, placed.lengths
        for x in (*nest.loads, *(x for _, x in nest.stores)):
            total += 4 * prod(n for n, there in zip(lengths, x.mask) if there)
        total += 8 * prod(lengths) * len(nest.adds)
        facts = facts_of(nest)
        for name, space in zip(facts.names, facts.spaces):
            if name not in _FREE:
                elements = prod(lengths[k] for k in space)
                total += 2 * elements if name in EXPENSIVE else elements // 2
    return total


def _division(placed: PlacedNest, schedule: NestSchedule, threads: int) -> tuple[int, int]:
    """Elements of the last axis in a unit; the parts of sums, or those of the innermost axis."""
    facts, lengths = facts_of(placed.nest), placed.lengths
    piece = _piece(placed, schedule, threads, facts.inner is None)
    if facts.inner is None:
        return piece, placed.parts
    units = prod(lengths[k] for k in facts.kept if k not in (facts.inner, facts.last))
    units *= ceil(lengths[-1] / piece) if facts.by_columns else 1
    inner = lengths[facts.inner]
    parts = ceil(inner / MOST_INNER)
    return piece, min(inner, ceil(parts / threads) * threads) if units * parts % threads else parts


def _piece(placed: PlacedNest, schedule: NestSchedule, threads: int, evenly: bool) -> int:
    """Elements of the last axis in a unit; `evenly`: so that threads have equally many units."""
    nest, last = placed.nest, placed.lengths[-1]
    if not nest.kept[-1]:
        return 1
    outer = prod(n for n, kept in zip(placed.lengths[:-1], nest.kept) if kept)
    if nest.adds:
        each = max(LEAST_ADDED, ceil(last / threads)) if outer % threads else last
        return ceil(each / width()) * width()
    if all(nest.kept):
        count = ceil(last / PIECE)
        is_uneven = outer * count < 16 * threads and outer * count % threads
        if evenly and is_uneven and last >= threads * width():
            count = ceil(count / threads) * threads
        each = ceil(last / count)
        return ceil(each / width()) * width()
    return schedule.columns * width()


@functools.lru_cache(maxsize=1024)
def _code(nests: tuple[tuple[Nest, NestSchedule], ...]) -> native.Code:
    module = Module()
    f = module.function("nests")
    slot = 0
    for k, (nest, schedule) in enumerate(nests):
        if k:
            f.meet()
        writer = NestWriter(f, nest, schedule, slot)
        writer.write()
        slot = writer.slot
    f.done()
    return team.load(module)
