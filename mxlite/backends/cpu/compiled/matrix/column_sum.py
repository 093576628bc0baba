"""Sums of the columns of a matrix: the gradient of a bias."""

from __future__ import annotations

import functools
from typing import Any

from .....core.dtype import float32
from .....core.machine_code import native
from .....graph.opdef import DType
from .....ops.scratch import carve, Piece, scratch_bytes
from ...onednn.primitive import address_of, Run
from ...runtime.threads import num_threads
from ..calls.team import call, load, parts_for, usable
from ..codegen.emitter import Module, storable
from ..codegen.ir import Value

_ROWS = 256  # that are summed up in float32 before they are added to the total

_X, _OUT, _TOTALS, _NUM_ROWS, _COLUMNS, _PARTS = range(6)


class ColumnSum:
    """out[c] = sum over r of x[r, c], for a matrix of `rows` x `columns`; `adds`: accumulated into out.

    Each thread adds up its parts of the rows, a few hundred at a time so that they stay in the cache and the
    float32 sums short; then the first thread adds up the sums of all parts.
    """

    name = "compiled column sum"

    def __init__(self, rows: int, columns: int, dtype: DType, out: DType, adds: bool = False) -> None:
        if not usable() or not {dtype.name, out.name} <= storable():
            raise LookupError
        self.rows, self.columns, self.dtype, self.out = rows, columns, dtype, out
        self.adds = adds
        self.threads = num_threads()
        self.parts = parts_for(8 * rows * columns)
        self.bits = ()
        self.pieces: list[Piece] = [((self.parts, columns), float32)]

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def connect(self, x: Any, out: Any, work: Any) -> Run:
        """The call; `x` has rows x columns elements."""
        (totals,) = carve(work, self.pieces)
        args = [address_of(x), address_of(out), address_of(totals), self.rows, self.columns, self.parts]
        code = _code(self.dtype.name, self.out.name, self.adds)
        return call(code, "sum", args, self.threads, keep=(x, out, work))


@functools.lru_cache(maxsize=16)
def _code(dtype: str, out_dtype: str, adds: bool) -> native.Code:
    module = Module()
    f = module.function("sum")
    x, out, totals = f.pointer(_X), f.pointer(_OUT), f.pointer(_TOTALS)
    rows, columns, parts = f.integer(_NUM_ROWS), f.integer(_COLUMNS), f.integer(_PARTS)
    zero = f.const(0.0)
    with f.loop(*f.share(parts)) as part:
        mine = f.offset(totals, f.times(part.index, columns), "float32")
        first, last = f.share(rows, part=(part.index, parts))

        def clear(c: Value, mask: Value | None) -> None:
            f.store(zero, mine, c, mask=mask)

        f.sweep(0, columns, clear)
        with f.loop(first, last, _ROWS) as block:
            beyond = f.plus(block.index, _ROWS)
            end = f.least(beyond, last)

            def add_up(c: Value, mask: Value | None) -> None:
                with f.loop(block.index, end, 1, [zero]) as row:
                    at = f.times(row.index, columns)
                    at = f.plus(at, c)
                    row.again(f.add(row.values[0], f.load(x, at, dtype, mask=mask)))
                f.store(f.add(f.load(mine, c, mask=mask), row.results[0]), mine, c, mask=mask)

            f.sweep(0, columns, add_up)
    f.meet()
    with f.when(f.is_("eq", f.thread, 0)):

        def join(c: Value, mask: Value | None) -> None:
            before = f.load(out, c, out_dtype, mask=mask) if adds else zero
            with f.loop(0, parts, 1, [before]) as other:
                at = f.times(other.index, columns)
                at = f.plus(at, c)
                other.again(f.add(other.values[0], f.load(totals, at, mask=mask)))
            f.store(other.results[0], out, c, out_dtype, mask=mask)

        f.sweep(0, columns, join)
    f.done()
    return load(module)
