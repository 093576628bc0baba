"""Large matrix products, of numbers of any type that can be loaded, as generated code.

    C (M, N) = A (M, K) B (K, N)  (+ a row)  (+ C)

Blocks of A and of B are copied to float32 so that they are read contiguously, and no strides
map to the same cache sets (K. Goto, R. van de Geijn, 2008, "Anatomy of high-performance matrix
multiplication"). A panel of B, two vectors wide, and a block of A then lie in the second cache; a tile of
`rows()` rows keeps its sums in registers:

    for columns of B by COLUMNS                  for each panel of B
        for rows of A by ROWS or all                 for each tile of A
            for K by DEPTH: copy B                       registers += tile x panel
                for rows of A by ROWS: copy A

Blocks are no deeper than K requires, in steps of 2, and no wider or higher than a thread's share of C.

While a block is multiplied, the next one to be copied is prefetched, so that a product of few columns does
not wait for memory. Numbers of 16 bits are cast by the copies; a norm of A or B, a factor and a shift for
each column and a rectifier, is applied by them, too. Sums with 16-bit results are kept in float32, for ROWS
rows at a time, and rounded once. Threads share rows or columns of C, copy what each needs and never wait for
each other. The order of a sum does not depend on how C is shared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from .....core.machine_code import native
from .....ops.norm.norm_act import is_lined
from ..calls.team import load
from ..codegen import tile
from ..codegen.emitter import width
from ..codegen.ir import Value
from ..codegen.register_tile import Factors, multiplied
from ..codegen.routine import Int, Program, Routine
from .transposition import transposed

DEPTH, ROWS, COLUMNS = 512, 196, 512
LEAST_DEPTH = 64  # that there is code for
VECTORS = 2  # of a panel
_SIZES = (14, 8, 6, 4, 2, 1)
_UNROLL = 4
AHEAD = 32  # bytes of the next copy that are prefetched in a step of a tile
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


class MatricesForm(NamedTuple):
    """Parameters that the code depends on: types, and True if A and B are column-major. bias: its type, or
    "".

    line: "a" or "b" if that is normalized, which must be row-major; relu: True if by a rectifier, too.
    addend: the addend of B before that, one of `norm_act.ADDENDS`; it has B's layout, GAP bytes further.
    depth: steps of K that a block has room for, see `depth_of`.
    """

    a: str = "float32"
    b: str = "float32"
    c: str = "float32"
    a_turned: bool = False
    b_turned: bool = False
    bias: str = ""
    line: str = ""
    relu: bool = False
    addend: str = ""
    depth: int = DEPTH


def depth_of(k: int) -> int:
    """Room in a block for products of depth K."""
    depth = LEAST_DEPTH
    while depth < min(k, DEPTH):
        depth *= 2
    return depth


def rows() -> int:
    """Rows of a tile: as many as registers hold, at most a vector (by which transposed blocks are copied)."""
    return min(width(), (tile.registers() - 1 - VECTORS) // VECTORS)


def panel() -> int:
    """Columns of a panel."""
    return VECTORS * width()


def _row_bytes(depth: int) -> int:
    return 4 * depth + 64  # between rows of a block of A: an odd number of cache lines


def _tile_bytes(turned: bool, depth: int) -> int:
    """Between the tiles of a block of A."""
    return 4 * width() * depth + 64 if turned else rows() * _row_bytes(depth)


def most_of(m: int, n: int, threads: int) -> tuple[int, int]:
    """Rows and columns of C that a thread has at most: threads share rows if there are more, else columns."""
    if m > n:
        return min(m, -(-m // rows() // threads) * rows()), n
    return m, min(n, -(-n // panel() // threads) * panel())


def pieces(form: MatricesForm, m: int, n: int) -> tuple[int, int, int, int]:
    """Bytes of scratch of one thread that has m rows and n columns: a block of B, one of A, a row, sums."""
    across = -(-min(n, COLUMNS) // panel())
    down = -(-min(m, ROWS) // rows())
    sums = 4 * COLUMNS * min(m, 2 * ROWS) if form.c != "float32" else 0
    return (
        across * 4 * panel() * form.depth,
        down * _tile_bytes(form.a_turned, form.depth),
        4 * (COLUMNS + panel()),
        sums,
    )


@functools.lru_cache(maxsize=256)
def code(form: MatricesForm) -> native.Code:
    """The code with one function, `multiply`."""
    p = Program()
    _Multiply(p, form)
    return load(p)


class _Multiply:
    def __init__(self, p: Program, form: MatricesForm) -> None:
        self.p, self.form = p, form
        assert not (form.line == "a" and form.a_turned) and not (form.line == "b" and form.b_turned)
        assert form.line == "b" or not form.addend
        self.panel = p.borrow(panel_routine, form.a_turned, form.depth)
        self.copy_a, self.copy_b = _copy_a(p, form), _copy_b(p, form)
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
        self.sums = f.at(self.row, 4 * (COLUMNS + panel()))
        r = f.share(self.m, rows())
        c = f.share(self.n, panel())
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
        across = f.over(f.plus(self.nj, panel() - 1), panel())
        b_at = f.at(self.b, f.plus(f.times(k, self.b_step), f.times(self.j, self.b_column)))
        with f.loop(0, across) as loop:
            done = f.times(loop.index, panel())
            f.run(
                self.copy_b, f.at(b_at, f.times(done, self.b_column)),
                f.at(self.block_b, f.times(loop.index, 4 * panel() * self.form.depth)),
                steps, f.minus(self.nj, done), self.b_step,
                self.b_column, *self._line_at("b", f.plus(self.j, done)),
                *([self.gap] if self.form.addend else []),
            )  # fmt: skip
        with f.loop(self.first, last, self.block_rows) as some:
            i, ni = some.index, f.least(f.minus(last, some.index), self.block_rows)
            a_at = f.at(self.a, f.plus(f.times(i, self.a_row), f.times(k, self.a_step)))
            f.run(self.copy_a, a_at, self.block_a, ni, steps, self.a_row, self.a_step, *self._line_at("a", k))
            target = f.at(self.c, f.plus(f.times(i, self.c_row), f.times(self.j, 4)))
            line: Int = self.c_row
            if self.narrow:
                target, line = f.at(self.sums, f.times(f.minus(i, self.first), 4 * COLUMNS)), 4 * COLUMNS
            begin = f.either(fresh, self.row, target)
            begin_line = f.either(fresh, 0, line)
            near, size, far = self._ahead(k, steps, i, ni)
            ahead_step = f.times(f.over(f.plus(ni, rows() - 1), rows()), f.times(steps, AHEAD))
            with f.loop(0, across) as loop:
                done = f.times(loop.index, panel())
                shift = f.times(done, 4)
                f.run(
                    self.panel, self.block_a,
                    f.at(self.block_b, f.times(loop.index, 4 * panel() * self.form.depth)),
                    f.at(begin, shift), begin_line, f.at(target, shift),
                    line, ni, steps, f.minus(self.nj, done),
                    near, size, far, f.times(loop.index, ahead_step),
                )  # fmt: skip

    def _ahead(self, k: Value, steps: Int, i: Value, ni: Int) -> tuple[Value, Int, Value]:
        """Addresses of the next data to be copied: some bytes, and the rest. If they are scattered, addresses
        in the cache.
        """
        f, form = self.f, self.form
        a_size, b_size = _nbytes(form.a), _nbytes(form.b)
        if not form.a_turned:
            dense = f.is_("eq", self.a_row, f.times(steps, a_size))
            there = f.at(self.a, f.times(f.plus(i, ROWS), self.a_row))
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
            source = f.at(self.sums, f.times(f.minus(loop.index, self.first), 4 * COLUMNS))
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


def _copy_b(p: Program, form: MatricesForm) -> str:
    """`copy_b`: `steps` rows of `left` columns at most a panel wide become (steps, panel)."""
    f = p.routine(
        "copy_b", b="ptr", into="ptr", steps="i64", left="i64", step="i64", column="i64", **_line(form, "b"),
        **({"gap": "i64"} if form.addend else {}),
    )  # fmt: skip
    lanes, line = width(), 4 * panel()
    if not form.b_turned:
        masks = [f.tail(j * lanes, f.arg("left")) for j in range(VECTORS)]
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
                for line in range(0, panel() * _nbytes(form.b), 64):
                    there = f.at(read[1], f.plus(f.times(f.arg("step"), AHEAD_ROWS), line))
                    f.prefetch(there)
            for j, (mask, norm) in enumerate(zip(masks, norms)):
                found = [f.load(x, j * lanes, form.b, mask) for x in read]
                f.write(norm(*found), f.at(target, 4 * lanes * j))
        f.done()
        return "copy_b"
    last = f.minus(f.arg("left"), 1)
    for j in range(VECTORS):
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


def _copy_a(p: Program, form: MatricesForm) -> str:
    """`copy_a`: a block of A, by rows with room between them or, if it is turned, by steps in tiles."""
    f = p.routine(
        "copy_a", a="ptr", into="ptr", rows="i64", steps="i64", row="i64", step="i64", **_line(form, "a")
    )
    if not form.a_turned:
        with f.loop(0, f.arg("rows")) as loop:
            source = f.at(f.arg("a"), f.times(loop.index, f.arg("row")))
            target = f.at(f.arg("into"), f.times(loop.index, _row_bytes(form.depth)))

            def body(i: Value, mask: Value | None) -> None:
                f.store(_norm(f, form, "a", i, mask)(f.load(source, i, form.a, mask)), target, i, mask=mask)

            f.sweep(0, f.arg("steps"), body)
        f.done()
        return "copy_a"
    # Step by step, in memory order: numbers of one tile are far apart, each in another cache line.
    whole = f.times(f.over(f.arg("rows"), rows()), rows())
    mask = f.tail(0, f.minus(f.arg("rows"), whole))
    with f.loop(0, f.arg("steps")) as steps:
        source = f.at(f.arg("a"), f.times(steps.index, f.arg("step")))
        target = f.at(f.arg("into"), f.times(steps.index, 4 * width()))

        def copied(i: Int, mask: Value) -> None:
            there = f.at(target, f.times(f.over(i, rows()), _tile_bytes(True, form.depth)))
            f.write(f.load(f.at(source, f.times(i, f.arg("row"))), 0, form.a, mask), there)

        with f.loop(0, whole, rows()) as loop:
            copied(loop.index, f.tail(0, rows()))
        with f.when(f.is_("slt", whole, f.arg("rows"))):
            copied(whole, mask)
    f.done()
    return "copy_a"


def panel_routine(p: Program, turned: bool, depth: int = DEPTH) -> str:
    """`(a, b, begin, begin_row, c, c_row, rows, steps, left)`: all tiles of a block of A times a panel of B.

    Sums begin with what lies at `begin` and are written to `c`, `left` columns at most.
    """
    name = f"matrices_{'steps' if turned else 'rows'}{width()}x{depth}"
    sizes = [n for n in dict.fromkeys((rows(), *_SIZES)) if n <= rows()]
    for n in sizes:
        _tile(p, f"{name}_{n}", n, turned, depth)
    f = p.routine(
        name, a="ptr", b="ptr", begin="ptr", begin_row="i64", c="ptr", c_row="i64", rows="i64", steps="i64",
        left="i64", near="ptr", size="i64", far="ptr", ahead="i64",
    )  # fmt: skip
    whole = f.times(f.over(f.arg("rows"), rows()), rows())
    done: Int = 0
    for n in sizes:
        until = whole if n == rows() else f.plus(done, f.times(f.over(f.minus(f.arg("rows"), done), n), n))
        with f.loop(done, until, n) as loop:
            i = loop.index
            if turned:
                inside = f.rest(i, rows())
                a = f.at(
                    f.arg("a"),
                    f.plus(f.times(f.over(i, rows()), _tile_bytes(True, depth)), f.times(inside, 4)),
                )
            else:
                a = f.at(f.arg("a"), f.times(i, _row_bytes(depth)))
            away = f.plus(f.arg("ahead"), f.times(f.over(i, rows()), f.times(f.arg("steps"), AHEAD)))
            is_near = f.is_("slt", away, f.arg("size"))
            near, far = f.at(f.arg("near"), away), f.at(f.arg("far"), f.minus(away, f.arg("size")))
            f.run(
                f"{name}_{n}", a, f.arg('b'), f.at(f.arg('begin'), f.times(i, f.arg('begin_row'))),
                f.arg('begin_row'), f.at(f.arg('c'), f.times(i, f.arg('c_row'))), f.arg('c_row'),
                f.arg('steps'), f.arg('left'),
                f.either(is_near, near, far),
            )  # fmt: skip
        done = until
    f.done()
    return name


def _tile(p: Program, name: str, n: int, turned: bool, depth: int) -> None:
    """n rows of one panel."""
    f: Routine = p.routine(
        name, a="ptr", b="ptr", begin="ptr", begin_row="i64", c="ptr", c_row="i64", steps="i64", left="i64",
        ahead="ptr",
    )  # fmt: skip
    lanes = width()
    row, step = (4, 4 * lanes) if turned else (_row_bytes(depth), 4)
    masks = [f.tail(j * lanes, f.arg("left")) for j in range(VECTORS)]
    at = [f.at(f.arg("c"), f.times(r, f.arg("c_row"))) for r in range(n)]
    for there in at:  # prefetched for the end of the sums
        for j in range(VECTORS):
            f.prefetch(f.at(there, 4 * lanes * j), writes=True)
    sums = [f.const(0.0)] * (n * VECTORS)
    until = f.binary("and", f.arg("steps"), -_UNROLL)

    def ahead(i: Value, b: Value, k: int) -> None:
        for line in range(0, 0 if k else AHEAD * _UNROLL, 64):
            f.prefetch(f.at(f.arg("ahead"), f.plus(f.times(i, AHEAD), line)), level=2)

    factors = Factors(f.arg("a"), row, step, f.arg("b"), 4 * panel(), (None,) * VECTORS)
    sums = multiplied(f, sums, factors, 0, until, _UNROLL, ahead)
    sums = multiplied(f, sums, factors, until, f.arg("steps"))
    for r in range(n):
        begin = f.at(f.arg("begin"), f.times(r, f.arg("begin_row")))
        for j, mask in enumerate(masks):
            value = f.add(sums[r * VECTORS + j], f.load(begin, j * lanes, mask=mask))
            f.store(value, at[r], j * lanes, mask=mask)
    f.done()
