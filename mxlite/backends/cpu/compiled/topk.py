"""The largest or smallest numbers of each row, as generated code.

A row is read once, a vector at a time. Of its numbers so far the `k` best are kept in order, and few vectors
have one that is better than the last of those: a comparison tells. Each such number is inserted from the
end. As in `ops/index/order.py`, a number has a key of 32 bits that sorts as it does, nan above all; key and
position together are one number, and all of these differ, so equals stay in their order.
"""

from __future__ import annotations

import functools

from ....core.machine_code import native
from .calls.team import load
from .codegen.emitter import Function, Module
from .codegen.instructions import NBYTES
from .codegen.ir import I64, number, type_of, Value

MOST = 32
"""Most numbers that are kept: in the worst order each of a row's moves all of them."""
_LEAST, _MOST_ENTRY = -(1 << 63), (1 << 63) - 1
_NAN = 0x7FC00000


@functools.cache
def code(dtype: str, ascending: bool, values: bool, places: bool, indices: str) -> native.Code:
    """The code with one function, `topk`, of data, kept numbers, values, places (int32) and indices, then how
    many rows there are, how long they are, and k. Which of the results are wanted is said by `values`,
    `places` and `indices`, the type of these or nothing. Kept numbers: (rows, k + 1) of 64 bits.
    """
    module = Module()
    f = module.function("topk")
    data, kept, to_values, to_places, to_indices = (f.pointer(k) for k in range(5))
    rows, length, k = (f.integer(i) for i in range(5, 8))
    with f.loop(*f.share(rows)) as row:
        line = f.offset(data, f.times(row.index, length), dtype)
        best = f.offset(kept, f.times(row.index, f.plus(k, 1)), 8)
        f.store_at(number(I64, _MOST_ENTRY), best, 8)  # behind which nothing is inserted
        with f.loop(1, f.plus(k, 1)) as clear:
            f.store_at(number(I64, _LEAST), f.offset(best, clear.index, 8), 8)
        last = f.offset(best, k, 8)

        def look(index: Value, mask: Value | None) -> None:
            _insert(f, _keys(f, f.load(line, index, dtype, mask), mask, ascending), index, best, last, k)

        f.sweep(0, length, look)
        with f.loop(0, k) as one:
            entry = f.load_at(I64, f.offset(f.offset(best, one.index, 8), 1, 8), 8)
            place = f.binary("xor", f.binary("and", entry, 0xFFFFFFFF), 0xFFFFFFFF)
            at = f.plus(f.times(row.index, k), one.index)
            if values:
                kind = type_of(f"i{8 * NBYTES[dtype]}")
                found = f.load_at(kind, f.offset(line, place, dtype), NBYTES[dtype])
                f.store_at(found, f.offset(to_values, at, dtype), NBYTES[dtype])
            if places:
                f.store_at(f.cast("trunc", place, type_of("i32")), f.offset(to_places, at, 4), 4)
            if indices:
                f.store_one(f.number(place), to_indices, at, indices)
    f.done()
    return load(module)


def _keys(f: Function, x: Value, mask: Value | None, ascending: bool) -> Value:
    """The keys of a vector, signed; below all others outside `mask`."""
    bits = f.as_int(f.add(x, f.const(0.0)))  # -0 becomes 0
    key = f.binary("xor", bits, f.binary("and", f.binary("ashr", bits, 31), 0x7FFFFFFF))
    key = f.select(f.compare("uno", x, x), f.binary("or", f.binary("and", key, 0), _NAN), key)
    if ascending:
        key = f.binary("xor", key, -1)
    return key if mask is None else f.select(mask, key, f.binary("or", f.binary("and", key, 0), -(1 << 31)))


def _insert(f: Function, keys: Value, index: Value, best: Value, last: Value, k: Value) -> None:
    """Insert those of a vector's numbers that are better than the last one that is kept."""

    def entry_at(at: Value) -> Value:
        return f.load_at(I64, at, 8)

    limit = f.cast("trunc", f.binary("ashr", entry_at(last), 32), type_of("i32"))
    better = f.is_("sgt", keys, f.spread(limit, f.width))
    lanes = f.cast("zext", f.cast("bitcast", better, type_of(f"i{f.width}")), I64)
    with f.repeat(f.is_("ne", lanes, 0), [lanes]) as each:
        (left,) = each.values
        lane = f.call(I64, "llvm.cttz.i64", left, number(type_of("i1"), True))
        key = f.make("extractelement", type_of("i32"), (keys, lane))
        place = f.binary("xor", f.plus(index, lane), 0xFFFFFFFF)
        entry = f.binary("or", f.binary("shl", f.cast("sext", key, I64), 32), place)
        with f.when(f.is_("sgt", entry, entry_at(last))):
            first = f.offset(best, f.minus(k, 1), 8)
            with f.repeat(f.is_("slt", entry_at(first), entry), [k]) as moved:
                (at,) = moved.values
                before = f.minus(at, 1)
                f.store_at(entry_at(f.offset(best, before, 8)), f.offset(best, at, 8), 8)
                above = f.offset(best, f.minus(before, 1), 8)
                moved.again(before, condition=f.is_("slt", entry_at(above), entry))
            f.store_at(entry, f.offset(best, moved.results[0], 8), 8)
        rest = f.binary("and", left, f.minus(left, 1))
        each.again(rest, condition=f.is_("ne", rest, 0))
