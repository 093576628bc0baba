"""Cross-entropies of rows of scores, and their gradients, as generated code."""

from __future__ import annotations

import functools
from typing import NamedTuple

from ....core.machine_code import native
from .calls.team import load
from .codegen import functions
from .codegen.emitter import Function, Module
from .codegen.ir import I64, Value

# slots
_SCORES, _LABEL, _LOSSES, _HEAD, _GRADIENT, _ROWS, _COLUMNS = range(7)


class CrossEntropyForm(NamedTuple):
    """The types of arrays, "" for absent ones: losses, float32 if computed, or gradients. `scores` is
    also that of gradients, `head` that of their factor.
    """

    scores: str
    label: str
    losses: bool
    head: str = ""


@functools.lru_cache(maxsize=32)
def code(form: CrossEntropyForm, columns: int) -> native.Code:
    """The function "cross_entropy"; slots scores, label, losses, d_out, gradient, rows, columns.

    losses[n] = log(sum of exp(scores[n])) - scores[n, label[n]], and 0 for a label out of range. gradient
    = d_out[0] times the derivative of that, 0 likewise; it may alias scores. Each thread has whole
    rows, which are read repeatedly while they are in the nearest cache.
    """
    module = Module()
    f = module.function("cross_entropy")
    scores, labels, losses, d_out, gradient = (
        f.pointer(slot) for slot in (_SCORES, _LABEL, _LOSSES, _HEAD, _GRADIENT)
    )
    rows, width = f.integer(_ROWS), f.integer(_COLUMNS)
    first, last = f.share(rows)
    lowest, zero, one = f.const(float("-inf")), f.const(0.0), f.const(1.0)
    kind = form.scores
    keeps = bool(form.head) and kind == "float32"  # powers, to be multiplied later
    with f.loop(first, last) as row:
        x = row_of(f, scores, row.index, width, kind)
        number = f.load_one(labels, row.index, form.label)
        known, is_known = both(f, "ogt", number, -1.0, "olt", number, float(columns))
        whole = f.cast("fptosi", f.lane(number, 0), I64)
        at = f.either(is_known, whole, 0)
        d = row_of(f, gradient, row.index, width, kind) if form.head else x

        def largest(j: Value, mask: Value | None, best: Value) -> Value:
            value = f.load(x, j, kind, mask=mask)
            return f.maximum(best, value if mask is None else f.select(mask, value, lowest))

        (top,) = f.sweep(0, width, largest, [lowest], 4, f.maximum)
        top = f.largest(top)
        below = f.sub(f.load_one(x, at, kind), top)  # read before the gradient overwrites it

        def power_of(j: Value, mask: Value | None) -> Value:
            return functions.exp(f, f.sub(f.load(x, j, kind, mask=mask), top))

        def add(j: Value, mask: Value | None, total: Value) -> Value:
            power = power_of(j, mask)
            if keeps:
                f.store(power, d, j, mask=mask)
            return f.add(total, power if mask is None else f.select(mask, power, zero))

        (total,) = f.sweep(0, width, add, [zero], 4, f.add)
        total = f.total(total)
        if form.losses:
            f.store_one(f.select(known, f.sub(functions.log(f, total), below), zero), losses, row.index)
        if form.head:
            head = f.load_one(d_out, 0, form.head)
            factor = f.select(known, f.div(head, total), zero)

            def finish(j: Value, mask: Value | None) -> None:
                power = f.load(d, j, mask=mask) if keeps else power_of(j, mask)
                f.store(f.mul(power, factor), d, j, kind, mask=mask)

            f.sweep(0, width, finish)
            truth = f.sub(f.div(functions.exp(f, below), total), one)
            with f.when(is_known):
                f.store_one(f.mul(truth, head), d, at, kind)
    f.done()
    return load(module)


def row_of(f: Function, pointer: Value, row: Value, columns: Value, dtype: str) -> Value:
    """The address of a row."""
    return f.offset(pointer, f.times(row, columns), dtype)


def both(
    f: Function, one: str, x: Value, low: float, other: str, y: Value, high: float
) -> tuple[Value, Value]:
    """The conjunction of two comparisons: a mask, and its first lane as an i1."""
    a, b = f.compare(one, x, f.const(low)), f.compare(other, y, f.const(high))
    mask = f.both(a, b)
    return mask, f.lane(mask, 0)
