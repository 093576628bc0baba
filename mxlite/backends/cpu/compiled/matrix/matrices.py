"""Large matrix products, of numbers of any type that can be loaded, as generated code.

    C (M, N) = A (M, K) B (K, N)  (+ a row)  (+ C)

Blocks of A and of B are copied to float32 so that they are read contiguously, and no strides
map to the same cache sets (K. Goto, R. van de Geijn, 2008, "Anatomy of high-performance matrix
multiplication"). A panel of B, a few vectors wide, and a block of A then lie in the second cache; a tile of
a few rows keeps its sums in registers:

    for columns of B by block_columns            for each panel of B
        for rows of A by block_rows or all           for each tile of A
            for K by depth: copy B                       registers += tile x panel
                for rows of A by block_rows: copy A

All that is free in this is a `MatricesSchedule`: sizes of tiles and blocks, the order of the two loops at the
right, and if A or B is read where it lies instead, where its numbers are float32. B then needs contiguous
rows. Blocks are no wider or higher than a thread's share of C.

While a block is multiplied, the next one to be copied is prefetched, so that a product of few columns does
not wait for memory. Numbers of 16 bits are cast by the copies; a norm of A or B, a factor and a shift for
each column and a rectifier, is applied by them, too. Sums with 16-bit results are kept in float32, for two
blocks of rows at a time, and rounded once. Threads share rows or columns of C, copy what each needs and never
wait for each other. The order of a sum does not depend on how C is shared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from .....core.machine_code import native
from .....ops.norm.norm_act import is_lined
from ..calls.team import load
from ..codegen.emitter import width
from ..codegen.ir import Value
from ..codegen.routine import Int, Program, Routine
from .panel import Panel, panel_routine
from .schedule import MatricesForm, MatricesSchedule
from .transposition import transposed

AHEAD_ROWS = 16  # rows of an addend that are prefetched ahead of a copy

(A, B, C, BIAS, WORK, WORK_STEP, M, N, K, CHUNK, A_ROW, A_STEP, B_STEP, B_COLUMN, C_ROW, BY_ROWS, ADDS) = (
    range(17)
)
FACTOR, SHIFT, ADDEND_FACTOR, ADDEND_SHIFT, GAP = range(17, 22)
AT_A, A_NBYTES = 22, 23  # bytes of a block of B, and of one of A
BLOCK_ROWS, BLOCK_COLUMNS, SUM_ROWS = (
    24,
    25,
    26,
)  # what there is room for, should a team be smaller than asked
COUNT = 27


def most_of(schedule: MatricesSchedule, m: int, n: int, threads: int) -> tuple[int, int]:
    """Rows and columns of C that a thread has at most."""
    if schedule.by_rows:
        return min(m, -(-m // schedule.rows // threads) * schedule.rows), n
    return m, min(n, -(-n // schedule.panel // threads) * schedule.panel)


def pieces(form: MatricesForm, s: MatricesSchedule, m: int, n: int) -> tuple[int, int, int, int]:
    """Bytes of scratch of one thread that has m rows and n columns: a block of B, one of A, a row, sums."""
    panel = Panel.of(form.a_turned, s)
    across = -(-min(n, s.block_columns) // s.panel) if s.packs_b else 0
    down = -(-min(m, s.block_rows) // s.rows) if s.packs_a else 0
    sums = 4 * s.block_columns * min(m, 2 * s.block_rows) if form.c != "float32" else 0
    return across * panel.nbytes, down * panel.tile_nbytes, 4 * (s.block_columns + s.panel), sums


@functools.lru_cache(maxsize=256)
def code(form: MatricesForm, schedule: MatricesSchedule) -> native.Code:
    """The code with one function, `multiply`."""
    p = Program()
    _Multiply(p, form, schedule)
    return load(p)


class _Block(NamedTuple):
    """A block of A and one of B, the sums that they are added to, and where those are written."""

    a: Value
    b: Value
    begin: Value
    begin_row: Int
    c: Value
    c_row: Int
    steps: Int
    ahead: tuple[Value, Int, Value]
    across: Int


class _Multiply:
    def __init__(self, p: Program, form: MatricesForm, schedule: MatricesSchedule) -> None:
        self.form, self.schedule = form, schedule
        self.tiles = Panel.of(form.a_turned, schedule)
        assert not (form.line == "a" and form.a_turned) and not (form.line == "b" and form.b_turned)
        assert form.line == "b" or not form.addend
        self.panel = p.borrow(panel_routine, self.tiles)
        self.copy_a = _copy_a(p, form, self.tiles) if schedule.packs_a else ""
        self.copy_b = _copy_b(p, form, self.tiles) if schedule.packs_b else ""
        self.narrow = form.c != "float32"
        self.f = f = p.entry("multiply")
        slots = (FACTOR, SHIFT, ADDEND_FACTOR, ADDEND_SHIFT)[: len(_line(form, form.line))]
        self.line = [f.pointer(s) for s in slots]
        self.gap = f.integer(GAP)
        self.a, self.b, self.c, self.bias, work = (f.pointer(s) for s in (A, B, C, BIAS, WORK))
        (
            self.m,
            self.n,
            self.k,
            self.chunk,
            self.a_row,
            self.a_step,
            self.b_step,
            self.b_column,
            self.c_row,
        ) = (f.integer(s) for s in (M, N, K, CHUNK, A_ROW, A_STEP, B_STEP, B_COLUMN, C_ROW))
        self.adds = f.is_("ne", f.integer(ADDS), 0)
        by_rows = f.is_("ne", f.integer(BY_ROWS), 0)
        self.block_b = f.at(work, f.times(f.thread, f.integer(WORK_STEP)))
        self.block_a = f.at(self.block_b, f.integer(AT_A))
        self.row = f.at(self.block_a, f.integer(A_NBYTES))
        self.block_rows = f.integer(BLOCK_ROWS)
        self.sums = f.at(self.row, 4 * (schedule.block_columns + schedule.panel))
        r = f.share(self.m, schedule.rows)
        c = f.share(self.n, schedule.panel)
        r0, r1 = f.either(by_rows, r[0], 0), f.either(by_rows, r[1], self.m)
        c0, c1 = f.either(by_rows, 0, c[0]), f.either(by_rows, self.n, c[1])
        with f.loop(c0, c1, f.integer(BLOCK_COLUMNS)) as columns:
            self.j = columns.index
            self.nj = f.least(f.minus(c1, columns.index), f.integer(BLOCK_COLUMNS))
            self._fill_row()
            with f.loop(r0, r1, f.integer(SUM_ROWS) if self.narrow else 1 << 40) as many:
                self.first = many.index
                last = f.least(r1, f.plus(many.index, f.integer(SUM_ROWS))) if self.narrow else r1
                with f.loop(0, self.k, self.chunk) as deep:
                    self._chunk(deep.index, last)
                if self.narrow:
                    self._round(last)
        f.done()

    def _fill_row(self) -> None:
        """Initial values of the sums, for the current columns."""
        f, form = self.f, self.form

        def body(i: Value, mask: Value | None) -> None:
            value = f.const(0.0)
            if form.bias:
                value = f.load(f.offset(self.bias, self.j, form.bias), i, form.bias, mask)
            f.store(value, self.row, i, mask=mask)

        f.sweep(0, self.nj, body)

    def _chunk(self, k: Value, last: Int) -> None:
        """Some of the depth, for rows from `first` to `last`."""
        f = self.f
        steps = f.least(f.minus(self.k, k), self.chunk)
        is_first = f.is_("eq", k, 0)
        fresh = f.both(is_first, f.negated(self.adds))
        s, width = self.schedule, self.schedule.panel
        across = f.over(f.plus(self.nj, width - 1), width)
        b_at = f.at(self.b, f.plus(f.times(k, self.b_step), f.times(self.j, self.b_column)))
        if s.packs_b:
            with f.loop(0, across) as loop:
                done = f.times(loop.index, width)
                f.run(
                    self.copy_b, f.at(b_at, f.times(done, self.b_column)),
                    f.at(self.block_b, f.times(loop.index, self.tiles.nbytes)),
                    steps, f.minus(self.nj, done), self.b_step,
                    self.b_column, *self._line_at("b", f.plus(self.j, done)),
                    *([self.gap] if self.form.addend else []),
                )  # fmt: skip
        with f.loop(self.first, last, self.block_rows) as some:
            i, ni = some.index, f.least(f.minus(last, some.index), self.block_rows)
            a_at = f.at(self.a, f.plus(f.times(i, self.a_row), f.times(k, self.a_step)))
            if s.packs_a:
                lines = self._line_at("a", k)
                f.run(self.copy_a, a_at, self.block_a, ni, steps, self.a_row, self.a_step, *lines)
            target = f.at(self.c, f.plus(f.times(i, self.c_row), f.times(self.j, 4)))
            line: Int = self.c_row
            if self.narrow:
                target = f.at(self.sums, f.times(f.minus(i, self.first), 4 * s.block_columns))
                line = 4 * s.block_columns
            block = _Block(
                self.block_a if s.packs_a else a_at, self.block_b if s.packs_b else b_at,
                f.either(fresh, self.row, target), f.either(fresh, 0, line), target, line, steps,
                self._ahead(k, steps, i, ni), across,
            )  # fmt: skip
            if s.by_tiles:
                with f.loop(0, ni, s.rows) as tiles:
                    rows = f.least(f.minus(ni, tiles.index), s.rows)
                    self._panels(block, tiles.index, rows)
            else:
                self._panels(block, 0, ni)

    def _panels(self, x: _Block, i: Int, rows: Int) -> None:
        """The products of rows from i on of a block of A and all panels of B."""
        f, s = self.f, self.schedule
        a_line = self.a_step if self.form.a_turned else self.a_row
        a = self.tiles.tile_of(f, x.a, i, a_line) if s.by_tiles else x.a
        begin = f.at(x.begin, f.times(i, x.begin_row))
        c = f.at(x.c, f.times(i, x.c_row))
        tiles = f.over(f.plus(rows, s.rows - 1), s.rows)
        ahead_step = f.times(tiles, f.times(x.steps, s.ahead))
        before: Int = 0
        if s.by_tiles:
            before = f.times(f.over(i, s.rows), f.times(x.across, f.times(x.steps, s.ahead)))
        strides = [] if s.packs_a else [a_line]
        strides += [] if s.packs_b else [self.b_step]
        with f.loop(0, x.across) as loop:
            done = f.times(loop.index, s.panel)
            shift = f.times(done, 4)
            b = f.at(x.b, f.times(loop.index, self.tiles.nbytes) if s.packs_b else shift)
            f.run(
                self.panel, a, b, f.at(begin, shift), x.begin_row, f.at(c, shift),
                x.c_row, rows, x.steps, f.minus(self.nj, done),
                *x.ahead, f.plus(before, f.times(loop.index, ahead_step)), *strides,
            )  # fmt: skip

    def _ahead(self, k: Value, steps: Int, i: Value, ni: Int) -> tuple[Value, Int, Value]:
        """Addresses of the next data to be copied: some bytes, and the rest. If they are scattered, addresses
        in the cache.
        """
        f, form, s = self.f, self.form, self.schedule
        a_size, b_size = _nbytes(form.a), _nbytes(form.b)
        if not s.ahead:
            return self.c, 1 << 40, self.c
        if not form.a_turned:
            dense = f.is_("eq", self.a_row, f.times(steps, a_size))
            there = f.at(self.a, f.times(f.plus(i, s.block_rows), self.a_row))
            return f.either(dense, there, self.block_a), 1 << 40, self.block_a
        after = f.plus(k, self.chunk)
        a_dense = f.both(f.is_("eq", self.a_step, f.times(ni, a_size)), f.is_("eq", i, 0))
        b_dense = f.is_("eq", self.b_step, f.times(self.nj, b_size))
        near, far = f.at(self.a, f.times(after, self.a_step)), f.at(self.b, f.times(after, self.b_step))
        size = f.either(a_dense, f.times(self.chunk, self.a_step), 0)
        return near, size, f.either(b_dense, far, self.block_b)

    def _line_at(self, which: str, column: Int) -> list[Value]:
        """Addresses of factors and shifts from a column on, if A or B has some."""
        f = self.f
        return [f.at(x, f.times(column, 4)) for x in self.line] if self.form.line == which else []

    def _round(self, last: Int) -> None:
        """Write the sums of these rows to C."""
        f = self.f
        with f.loop(self.first, last) as loop:
            source = f.at(
                self.sums, f.times(f.minus(loop.index, self.first), 4 * self.schedule.block_columns)
            )
            target = f.offset(f.at(self.c, f.times(loop.index, self.c_row)), self.j, self.form.c)

            def body(i: Value, mask: Value | None) -> None:
                f.store(f.load(source, i, mask=mask), target, i, self.form.c, mask)

            f.sweep(0, self.nj, body)


def _nbytes(dtype: str) -> int:
    return 4 if dtype == "float32" else 2


def _line(form: MatricesForm, which: str) -> dict[str, str]:
    """Vectors that the copy of A or B reads if it normalizes."""
    if not which or form.line != which:
        return {}
    more = ("addend_factor", "addend_shift") if is_lined(form.addend) else ()
    return dict.fromkeys(("factor", "shift", *more), "ptr")


def _norm(f: Routine, form: MatricesForm, which: str, i: Int, mask: Value | None) -> Callable[..., Value]:
    """Function that a copy applies to the numbers of columns from `i` on, and to their addends."""
    if form.line != which:
        return lambda x: x
    line = [f.load(f.arg(name), i, mask=mask) for name in _line(form, which)]
    zero = f.const(0.0)

    def normalized(x: Value, added: Value | None = None) -> Value:
        y = f.fma(x, *line[:2])
        if added is not None and line[2:]:
            added = f.fma(added, *line[2:])
        if added is not None and form.addend == "relu":
            added = f.above(added, zero)
        if added is not None:
            y = f.add(y, added)
        return f.above(y, zero) if form.relu else y

    return normalized


def _copy_b(p: Program, form: MatricesForm, panel: Panel) -> str:
    """`copy_b`: `steps` rows of `left` columns at most a panel wide become (steps, panel)."""
    f = p.routine(
        "copy_b", b="ptr", into="ptr", steps="i64", left="i64", step="i64", column="i64", **_line(form, "b"),
        **({"gap": "i64"} if form.addend else {}),
    )  # fmt: skip
    lanes, line = width(), 4 * panel.vectors * width()
    if not form.b_turned:
        masks = [f.tail(j * lanes, f.arg("left")) for j in range(panel.vectors)]
        norms = [_norm(f, form, "b", j * lanes, mask) for j, mask in enumerate(masks)]
        p.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        with f.loop(0, f.arg("steps")) as loop:
            source, target = (
                f.at(f.arg("b"), f.times(loop.index, f.arg("step"))),
                f.at(f.arg("into"), f.times(loop.index, line)),
            )
            read = [source]
            if form.addend:
                read.append(f.at(source, f.arg("gap")))
                for line in range(0, panel.vectors * lanes * _nbytes(form.b), 64):
                    there = f.at(read[1], f.plus(f.times(f.arg("step"), AHEAD_ROWS), line))
                    f.prefetch(there)
            for j, (mask, norm) in enumerate(zip(masks, norms)):
                found = [f.load(x, j * lanes, form.b, mask) for x in read]
                f.write(norm(*found), f.at(target, 4 * lanes * j))
        f.done()
        return "copy_b"
    last = f.minus(f.arg("left"), 1)
    for j in range(panel.vectors):
        at = [f.at(f.arg("b"), f.times(f.least(j * lanes + r, last), f.arg("column"))) for r in range(lanes)]
        into = f.at(f.arg("into"), 4 * lanes * j)

        def body(i: Value, mask: Value | None, at: list[Value] = at, into: Value = into) -> None:
            found = [f.as_int(f.load(x, i, form.b, mask)) for x in at]
            target = f.at(into, f.times(i, line))
            for k, x in enumerate(transposed(f, found)):
                # There is room after the last step, up to the form's depth.
                f.write(f.as_float(x), f.at(target, line * k))

        f.sweep(0, f.arg("steps"), body)
    f.done()
    return "copy_b"


def _copy_a(p: Program, form: MatricesForm, panel: Panel) -> str:
    """`copy_a`: a block of A, by rows with room between them or, if it is turned, by steps in tiles."""
    f = p.routine(
        "copy_a", a="ptr", into="ptr", rows="i64", steps="i64", row="i64", step="i64", **_line(form, "a")
    )
    if not form.a_turned:
        with f.loop(0, f.arg("rows")) as loop:
            source = f.at(f.arg("a"), f.times(loop.index, f.arg("row")))
            target = f.at(f.arg("into"), f.times(loop.index, panel.row_nbytes))

            def body(i: Value, mask: Value | None) -> None:
                f.store(_norm(f, form, "a", i, mask)(f.load(source, i, form.a, mask)), target, i, mask=mask)

            f.sweep(0, f.arg("steps"), body)
        f.done()
        return "copy_a"
    # Step by step, in memory order: numbers of one tile are far apart, each in another cache line.
    whole = f.times(f.over(f.arg("rows"), panel.rows), panel.rows)
    mask = f.tail(0, f.minus(f.arg("rows"), whole))
    with f.loop(0, f.arg("steps")) as steps:
        source = f.at(f.arg("a"), f.times(steps.index, f.arg("step")))
        target = f.at(f.arg("into"), f.times(steps.index, 4 * width()))

        def copied(i: Int, mask: Value) -> None:
            there = f.at(target, f.times(f.over(i, panel.rows), panel.tile_nbytes))
            f.write(f.load(f.at(source, f.times(i, f.arg("row"))), 0, form.a, mask), there)

        with f.loop(0, whole, panel.rows) as loop:
            copied(loop.index, f.tail(0, panel.rows))
        with f.when(f.is_("slt", whole, f.arg("rows"))):
            copied(whole, mask)
    f.done()
    return "copy_a"
