"""A block of attention scores as generated code: the common base of forward and backward.

See `attention.py` for the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .codegen import tile
from .codegen.emitter import width
from .codegen.functions import less_one, power_of_two, reduced, whole_number
from .codegen.ir import FLOAT, I1, I64, NULL, Value
from .codegen.routine import Int, Program, Routine
from .matrix.transposition import transposed

KEYS = 128  # in a block
LANES = (1, 2, 4)
"""Numbers of vectors of queries that a block may have."""


class AttentionForm(NamedTuple):
    """Parameters that the code depends on. `lanes`: vectors of queries in a block.

    mask: the dtype of a mask, or none. mask_repeats: True if all queries have the same.
    """

    width: int
    values: int
    dtype: str
    causal: bool
    mask: str = ""
    mask_repeats: bool = True
    lanes: int = 4

    @property
    def narrow(self) -> bool:
        return self.dtype != "float32"

    @property
    def rows(self) -> int:
        """R: queries of a block."""
        return self.lanes * width()

    @property
    def nbytes(self) -> int:
        return 2 if self.narrow else 4


def vectors_for(queries: int) -> int:
    """Number of vectors of queries in a block."""
    for v in LANES:
        if queries <= v * width() or v == tile.most_vectors():
            return v
    return 1


# Slots of the arguments: addresses, then numbers.
QUERY, KEY, VALUE, MASK, LENGTH, OUT, LOG_SUM, WORK, SCALE = range(9)
D_OUT, D_QUERY, D_KEY, D_VALUE = range(9, 13)
BATCH, HEADS, SHARED, QUERIES, NUM_KEYS, OWN = range(13, 19)  # OWN: bytes of work of a thread
MASK_BATCH, MASK_HEAD, MASK_QUERY, MASK_KEY = range(19, 23)  # strides in elements
COUNT = 23


def padded(n: int) -> int:
    return -(-n // width()) * width()


def pieces(form: AttentionForm, backward: bool, keys: int) -> dict[str, int]:
    """float32 numbers of each part of a thread's work."""
    r, e, v = form.rows, padded(form.width), padded(form.values)
    narrow, varied = int(form.narrow), int(bool(form.mask) and not form.mask_repeats)
    made = {
        "q": r * max(e, v),
        "q_t": r * e,
        "s_t": r * KEYS,
        "out_t": r * (e if backward else v),
        "key": KEYS * form.width * narrow,
        "value": KEYS * form.values * narrow,
        "mask": r * KEYS * varied,
        "mask_t": r * KEYS * varied,
    }
    if backward:
        made |= {
            "d": r * v,
            "d_t": r * v,
            "dp_t": r * KEYS,
            "delta": r,
            "d_key": keys * form.width,
            "d_value": keys * form.values,
        }
    return made


def work_bytes(form: AttentionForm, backward: bool, keys: int) -> int:
    """Bytes of work of one thread."""
    return sum(4 * padded_16(n) for n in pieces(form, backward, keys).values())


def padded_16(n: int) -> int:
    return -(-n // 16) * 16


def weight(f: Routine, x: Value) -> Value:
    """e^x for x that is not positive; 0 below -87."""
    _, r, shifted = reduced(f, x)
    value = f.mul(f.add(less_one(f, r), f.const(1.0)), power_of_two(f, whole_number(f, shifted)))
    return f.select(f.compare("olt", x, f.const(-87.0)), f.const(0.0), value)


class Attention:
    """Base of both directions."""

    backward = False

    def __init__(self, form: AttentionForm) -> None:
        self.form = form
        self.p = Program()
        self.f = self.p.entry("attention")
        self.r, self.v, self.lanes = form.rows, form.lanes, width()
        self.line = 4 * self.r  # bytes of a row of scores
        self.e, self.d = padded(form.width), padded(form.values)
        self._routines()
        self._arguments()
        self.run()
        self.f.done()

    def run(self) -> None:
        raise NotImplementedError

    # -- routines ------------------------------------------------------------------------------------

    def _routines(self) -> None:
        e, r = 4 * self.form.width, self.line
        self.product("scores", tile.TileForm(e, 4, r, r, self.r))
        self.pack("query", self.form.width, self.e, self.form.dtype)
        if self.form.narrow:
            self._widen()

    def product(self, name: str, form: tile.TileForm) -> None:
        tile.multiplier(self.p, name, form)

    def pack(self, name: str, numbers: int, padded: int, dtype: str) -> None:
        """`pack_name(source, rows, turned, count, scale)`: `count` rows of the source, scaled, as (R, padded)
        float32 with zeros around, and transposed as (padded, R).
        """
        f = self.p.routine(f"pack_{name}", source="ptr", rows="ptr", turned="ptr", count="i64", scale="float")
        factor = f.every(f.arg("scale"))
        whole, rest = divmod(numbers, self.lanes)
        for begin, end in ((0, f.arg("count")), (f.arg("count"), self.r)):
            with f.loop(begin, end) as loop:
                source = f.at(
                    f.arg("source"), f.times(loop.index, numbers * (2 if dtype != "float32" else 4))
                )
                target = f.at(f.arg("rows"), f.times(loop.index, 4 * padded))
                for k in range(padded // self.lanes):
                    at = k * self.lanes
                    value = f.const(0.0)
                    if begin == 0:
                        mask = tile.first(rest) if k == whole else None
                        value = f.mul(f.load(source, at, dtype, mask), factor)
                    f.store(value, target, at)
        self.turn(f, f.arg("rows"), 4 * padded, f.arg("turned"), self.line, self.r, padded)
        f.done()

    def turn(
        self, f: Routine, source: Value, source_row: int, target: Value, target_row: int, rows: int,
        columns: int, factor: Callable[[Int], Value] | None = None,
    ) -> None:  # fmt: skip
        """target (columns, rows) = source (rows, columns) transposed; `factor(column)`: its scale."""
        n = self.lanes
        with f.loop(0, rows, n) as i, f.loop(0, columns, n) as j:
            at = f.at(source, f.plus(f.times(i.index, source_row), f.times(j.index, 4)))
            scale = factor(j.index) if factor else None
            block = [f.read(f.at(at, k * source_row)) for k in range(n)]
            if scale is not None:
                block = [f.mul(x, scale) for x in block]
            turned = transposed(f, [f.as_int(x) for x in block])
            into = f.at(target, f.plus(f.times(j.index, target_row), f.times(i.index, 4)))
            for k, x in enumerate(turned):
                f.write(f.as_float(x), f.at(into, k * target_row))

    def _widen(self) -> None:
        """`widen(source, target, count)`: numbers of 16 bits as float32."""
        f = self.p.routine("widen", source="ptr", target="ptr", count="i64")
        f.sweep(
            0,
            f.arg("count"),
            lambda i, m: f.store(f.load(f.arg("source"), i, self.form.dtype, m), f.arg("target"), i, mask=m),
        )
        f.done()

    # -- arguments -----------------------------------------------------------------------------------

    def _arguments(self) -> None:
        f = self.f
        self.query, self.key, self.value, self.mask, self.length, self.out, self.log_sum = (
            f.pointer(s) for s in range(QUERY, LOG_SUM + 1)
        )
        self.scale = f.load_at(FLOAT, f.offset(f.arg("args"), SCALE, 8), 8)
        self.heads, self.shared, self.queries, self.keys = (
            f.integer(s) for s in (HEADS, SHARED, QUERIES, NUM_KEYS)
        )
        self.groups = f.over(self.heads, self.shared)
        base = f.at(f.pointer(WORK), f.times(f.thread, f.integer(OWN)))
        self.own: dict[str, Value] = {}
        sizes = pieces(self.form, self.backward, 0)
        # Those whose size depends on the number of keys come last.
        for name, count in sizes.items():
            self.own[name] = base
            if name == "d_key":
                base = f.at(base, f.times(f.over(f.plus(f.times(self.keys, self.form.width), 15), 16), 64))
            else:
                base = f.at(base, 4 * padded_16(count))
        self.blocks = f.over(f.plus(self.queries, self.r - 1), self.r)

    def null(self, pointer: Value) -> Value:
        return self.f.is_("eq", pointer, NULL)

    def there(self, pointer: Value) -> Value:
        return self.f.is_("ne", pointer, NULL)

    def end_of(self, b: Int) -> Int:
        """Keys of sample b that take part, according to its length."""
        f = self.f
        given = self.there(self.length)
        slot = f.either(given, f.at(self.length, f.times(b, 8)), f.arg("args"))
        found = f.load_at(I64, slot, 8)
        bounded = f.most(f.least(found, self.keys), 0)
        return f.either(given, bounded, self.keys)

    def place(self, block: Int) -> tuple[Int, Int]:
        """First query of a block, and how many it has. Blocks alternate between both ends: with a causal
        mask the later ones cost more, and each thread should have as much to do.
        """
        f = self.f
        half = f.binary("lshr", block, 1)
        odd = f.cast("trunc", f.value(block), I1)
        back = f.minus(f.minus(self.blocks, 1), half)
        start = f.times(f.either(odd, back, half), self.r)
        return start, f.least(f.minus(self.queries, start), self.r)

    # -- scores --------------------------------------------------------------------------------------

    def factor(self, name: str, array: Value, start: Int, numbers: int, count: Int) -> Value:
        """Rows [start, start + count) of K or V as float32."""
        f = self.f
        at = f.at(array, f.times(start, numbers * self.form.nbytes))
        if not self.form.narrow:
            return at
        f.run("widen", at, self.own[name], f.times(count, numbers))
        return self.own[name]

    def multiply(self, name: str, a: Value, b: Value, c: Value, rows: Int, steps: Int) -> None:
        self.f.run(name, a, b, c, rows, steps)

    def lines(
        self, start: Int, stop: Int, body: Callable[..., Sequence[Value]], carried: Sequence[Value] = ()
    ) -> tuple[Value, ...]:
        """body(row, *carried) for rows [start, stop) of a block."""
        with self.f.loop(start, stop, 1, carried) as loop:
            loop.again(*body(loop.index, *loop.values))
        return loop.results

    def score(self, row: Int) -> list[Value]:
        at = self.f.at(self.own["s_t"], self.f.times(row, self.line))
        return [self.f.at(at, 4 * self.lanes * j) for j in range(self.v)]

    def masked(
        self, b: Int, h: Int, start: Int, count: Int, first: Int, n: Int,
        body: Callable[..., Sequence[Value]], carried: Sequence[Value] = (),
    ) -> tuple[Value, ...]:  # fmt: skip
        """body(row, scores, changed, *carried) for the n keys from `first` on, against `count` queries from
        `start` on. `scores` are masked, and `changed` is true where the mask has changed them.
        """
        f, form = self.f, self.form
        base = None
        if form.mask:
            strides = [f.integer(s) for s in (MASK_BATCH, MASK_HEAD, MASK_QUERY, MASK_KEY)]
            where = f.plus(f.times(b, strides[0]), f.times(h, strides[1]))
            where = f.plus(where, f.plus(f.times(start, strides[2]), f.times(first, strides[3])))
            base = f.offset(self.mask, where, form.mask)
            if not form.mask_repeats:
                f.run("pack_mask", base, self.own["mask"], self.own["mask_t"], count, n, strides[2])
        zero = f.const(0.0)
        hidden = f.const(float("-inf"))

        def added(row: Int, scores: list[Value]) -> list[Value]:
            if base is None:
                return scores
            if form.mask_repeats:
                terms = [f.load_one(base, f.times(row, strides[3]), form.mask)] * self.v
            else:
                at = f.at(self.own["mask_t"], f.times(row, self.line))
                terms = [f.read(f.at(at, 4 * self.lanes * j)) for j in range(self.v)]
            if form.mask == "bool":
                return [f.select(f.compare("oeq", t, zero), hidden, s) for s, t in zip(scores, terms)]
            return [f.add(s, t) for s, t in zip(scores, terms)]

        def plain(row: Int, *values: Value) -> Sequence[Value]:
            scores = added(row, [f.read(at) for at in self.score(row)])
            return body(row, scores, bool(form.mask), *values)

        if not form.causal:
            return self.lines(0, n, plain, carried)
        # Keys up to the first query are seen by all; later ones by the queries that come no earlier.
        seen = f.most(f.least(f.minus(f.plus(start, 1), first), n), 0)
        carried = self.lines(0, seen, plain, carried)

        def diagonal(row: Int, *values: Value) -> Sequence[Value]:
            behind = f.minus(f.plus(first, row), start)  # the first query that sees the key
            scores = []
            for j, at in enumerate(self.score(row)):
                bound = f.every(f.minus(behind, j * self.lanes))
                sees = f.is_("sge", f.iota, bound)
                scores.append(f.select(sees, f.read(at), hidden))
            return body(row, added(row, scores), True, *values)

        return self.lines(seen, n, diagonal, carried)

    def write_rows(self, source: Value, padded: int, target: Value, numbers: int, count: Int) -> None:
        """The first `numbers` of each of `count` rows (R, padded) to contiguous rows."""
        f = self.f
        with f.loop(0, count) as loop:
            row = f.at(source, f.times(loop.index, 4 * padded))
            into = f.at(target, f.times(loop.index, numbers * self.form.nbytes))
            f.sweep(0, numbers, lambda i, m: f.store(f.load(row, i, mask=m), into, i, self.form.dtype, m))


def pack_mask(made: Attention) -> None:
    """`pack_mask(source, rows, turned, count, columns, stride)`: `count` rows of a mask, of `columns`
    numbers, as float32 (R, KEYS), and transposed.
    """
    f = made.p.routine(
        "pack_mask", source="ptr", rows="ptr", turned="ptr", count="i64", columns="i64", stride="i64"
    )
    kind = made.form.mask
    with f.loop(0, f.arg("count")) as loop:
        source = f.offset(f.arg("source"), f.times(loop.index, f.arg("stride")), kind)
        target = f.at(f.arg("rows"), f.times(loop.index, 4 * KEYS))
        f.sweep(0, f.arg("columns"), lambda i, m: f.store(f.load(source, i, kind, m), target, i, mask=m))
    made.turn(f, f.arg("rows"), 4 * KEYS, f.arg("turned"), made.line, made.r, KEYS)
    f.done()
