"""Cross-entropies of rows of scores, and their gradients in the scores' place, as generated code."""

from __future__ import annotations

import functools

from ....core import native
from . import functions
from .emitter import Module
from .softmax import both, row_of
from .team import load

# slots
_SCORES, _LABEL, _LOSSES, _HEAD, _ROWS, _COLUMNS = range(6)


@functools.lru_cache(maxsize=32)
def code(label: str, columns: int, gradient: bool) -> native.Code:
    """The function "cross_entropy" for labels of that type; slots scores, label, losses, d_out, rows,
    columns.

    losses[n] = log(sum of exp(scores[n])) - scores[n, label[n]], 0 for a label that is no class. With
    `gradient`, scores become d_out[0] times the gradient of that, 0 likewise; d_out is not read without. Each
    thread has whole rows, which are read again while they are in the nearest cache.
    """
    module = Module()
    f = module.function("cross_entropy")
    scores, labels, losses, d_out = (f.pointer(slot) for slot in (_SCORES, _LABEL, _LOSSES, _HEAD))
    rows, width = f.integer(_ROWS), f.integer(_COLUMNS)
    first, last = f.share(rows)
    lowest, zero, one = f.const(float("-inf")), f.const(0.0), f.const(1.0)
    with f.loop(first, last) as row:
        x = row_of(f, scores, row.index, width, "float32")
        number = f.load_one(labels, row.index, label)
        known, is_known = both(f, "ogt", number, -1.0, "olt", number, float(columns))
        whole = f.emit(f"fptosi float {f.emit(f'extractelement {f.vector} {number}, i32 0')} to i64")
        at = f.emit(f"select i1 {is_known}, i64 {whole}, i64 0")

        def largest(j: str, mask: str | None, best: str) -> str:
            value = f.load(x, j, mask=mask)
            return f.maximum(best, value if mask is None else f.select(mask, value, lowest))

        (top,) = f.sweep("0", width, largest, [lowest], 4, f.maximum)
        top = f.largest(top)
        below = f.sub(f.load_one(x, at), top)  # read before the gradient takes its place

        def add(j: str, mask: str | None, total: str) -> str:
            power = functions.exp(f, f.sub(f.load(x, j, mask=mask), top))
            if gradient:
                f.store(power, x, j, mask=mask)
            return f.add(total, power if mask is None else f.select(mask, power, zero))

        (total,) = f.sweep("0", width, add, [zero], 4, f.add)
        total = f.total(total)
        f.store_one(f.select(known, f.sub(functions.log(f, total), below), zero), losses, row.index)
        if gradient:
            head = f.load_one(d_out, "0")
            factor = f.select(known, f.div(head, total), zero)

            def finish(j: str, mask: str | None) -> None:
                f.store(f.mul(f.load(x, j, mask=mask), factor), x, j, mask=mask)

            f.sweep("0", width, finish)
            truth = f.sub(f.div(functions.exp(f, below), total), one)
            with f.when(is_known):
                f.store_one(f.mul(truth, head), x, at)
    f.done()
    return load(module)
