"""Softmax of rows, its logarithm, their gradients, and the cross-entropy's, as generated code.

Each thread has whole rows. A row is read several times while it is in the nearest cache: for its largest
number, for the sum, for the result.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....core.machine_code import native
from .calls.team import load
from .codegen import functions
from .codegen.emitter import Function, Module
from .codegen.ir import I64, Value


@dataclass(frozen=True)
class SoftmaxForm:
    """`logarithm`: True for log_softmax. `scale`: the factor of data. The types are those of arrays."""

    logarithm: bool
    scale: float
    data: str
    out: str


# slots
_DATA, _OUT, _ROWS, _COLUMNS, _HEAD = range(5)


@functools.lru_cache(maxsize=128)
def forward_code(form: SoftmaxForm) -> native.Code:
    """The function "softmax"; slots data, out, rows, columns."""
    module = Module()
    f = module.function("softmax")
    data, out = f.pointer(_DATA), f.pointer(_OUT)
    rows, columns = f.integer(_ROWS), f.integer(_COLUMNS)
    first, last = f.share(rows)
    lowest, zero = f.const(float("-inf")), f.const(0.0)
    scale = f.const(form.scale)
    keeps = form.out == "float32" and not form.logarithm  # what is summed up, to be divided then
    with f.loop(first, last) as row:
        x, y = row_of(f, data, row.index, columns, form.data), row_of(f, out, row.index, columns, form.out)

        def scaled(j: Value, mask: Value | None, fill: Value | None = None) -> Value:
            value = f.load(x, j, form.data, mask=mask)
            value = value if form.scale == 1 else f.mul(value, scale)
            return value if mask is None or fill is None else f.select(mask, value, fill)

        (top,) = f.sweep(
            0, columns, lambda j, m, best: f.maximum(best, scaled(j, m, lowest)), [lowest], 4, f.maximum
        )
        top = f.largest(top)

        def add(j: Value, mask: Value | None, total: Value) -> Value:
            power = functions.exp(f, f.sub(scaled(j, mask), top))
            if keeps:
                f.store(power, y, j, mask=mask)
            return f.add(total, power if mask is None else f.select(mask, power, zero))

        (total,) = f.sweep(0, columns, add, [zero], 4, f.add)
        total = f.total(total)
        if form.logarithm:
            total = functions.log(f, total)

            def finish(j: Value, mask: Value | None) -> None:
                f.store(f.sub(f.sub(scaled(j, mask), top), total), y, j, form.out, mask=mask)
        else:
            factor = f.div(f.const(1.0), total)

            def finish(j: Value, mask: Value | None) -> None:
                if keeps:
                    power = f.load(y, j, mask=mask)
                else:
                    power = functions.exp(f, f.sub(scaled(j, mask), top))
                f.store(f.mul(power, factor), y, j, form.out, mask=mask)

        f.sweep(0, columns, finish)
    f.done()
    return load(module)


@functools.lru_cache(maxsize=128)
def backward_code(form: SoftmaxForm) -> native.Code:
    """The function "softmax"; slots d_data (of type `data`), out, rows, columns, d_out (of out's type)."""
    module = Module()
    f = module.function("softmax")
    d_data, out, d_out = f.pointer(_DATA), f.pointer(_OUT), f.pointer(_HEAD)
    rows, columns = f.integer(_ROWS), f.integer(_COLUMNS)
    first, last = f.share(rows)
    zero, scale = f.const(0.0), f.const(form.scale)
    with f.loop(first, last) as row:
        y, d = (row_of(f, p, row.index, columns, form.out) for p in (out, d_out))
        dx = row_of(f, d_data, row.index, columns, form.data)

        def add(j: Value, mask: Value | None, total: Value) -> Value:
            value = f.load(d, j, form.out, mask=mask)
            if not form.logarithm:
                value = f.mul(value, f.load(y, j, form.out, mask=mask))
            return f.add(total, value)

        (total,) = f.sweep(0, columns, add, [zero], 4, f.add)
        total = f.total(total)

        def finish(j: Value, mask: Value | None) -> None:
            result, head = f.load(y, j, form.out, mask=mask), f.load(d, j, form.out, mask=mask)
            if form.logarithm:
                value = f.sub(head, f.mul(functions.exp(f, result), total))
            else:
                value = f.mul(result, f.sub(head, total))
            value = value if form.scale == 1 else f.mul(value, scale)
            f.store(value, dx, j, form.data, mask=mask)

        f.sweep(0, columns, finish)
    f.done()
    return load(module)


@dataclass(frozen=True)
class LossForm:
    """The gradient of a cross-entropy after a softmax; see SoftmaxOutput for the meaning of the attributes.

    The types are those of the output, the gradient and the labels.
    `scale` is grad_scale with the constant part of the normalization; `valid`: divide by the number of labels
    that count, too.
    """

    out: str
    grad: str
    label: str
    scale: float
    smooth: float
    ignore: float | None
    valid: bool
    ignored_label: float


# slots
_L_OUT, _L_LABEL, _L_GRAD, _L_ROWS, _L_COLUMNS = range(5)


@functools.lru_cache(maxsize=128)
def loss_code(form: LossForm, columns: int) -> native.Code:
    """The function "loss"; slots out, label, d_data, rows, columns."""
    module = Module()
    f = module.function("loss")
    out, label, grad = f.pointer(_L_OUT), f.pointer(_L_LABEL), f.pointer(_L_GRAD)
    rows, width = f.integer(_L_ROWS), f.integer(_L_COLUMNS)
    spread = form.smooth / (columns - 1) if columns > 1 else 0.0
    scale, apart, zero = f.const(form.scale), f.const(spread), f.const(0.0)
    if form.valid:
        ignored = f.const(form.ignored_label)

        def count(j: Value, mask: Value | None, total: Value) -> Value:
            counts = f.compare("une", f.load(label, j, form.label, mask=mask), ignored)
            one = f.select(counts, f.const(1.0), zero)
            return f.add(total, one if mask is None else f.select(mask, one, zero))

        (valid,) = f.sweep(0, rows, count, [zero], 1, f.add)
        scale = f.div(scale, f.maximum(f.total(valid), f.const(1.0)))
    first, last = f.share(rows)
    with f.loop(first, last) as row:
        y, d = row_of(f, out, row.index, width, form.out), row_of(f, grad, row.index, width, form.grad)
        number = f.load_one(label, row.index, form.label)
        _, known = both(f, "ogt", number, -1.0, "olt", number, float(columns))
        whole = f.cast("fptosi", f.lane(number, 0), I64)
        at = f.either(known, whole, 0)
        # Read before the sweep: the gradient may overwrite the output.
        truth = f.sub(f.load_one(y, at, form.out), apart)
        truth = f.mul(f.sub(truth, f.const(1 - form.smooth - spread)), scale)
        factor = scale
        if form.ignore is not None:
            same = f.compare("oeq", number, f.const(form.ignore))
            factor, truth = f.select(same, zero, scale), f.select(same, zero, truth)
            none = f.lane(same, 0)

        def finish(j: Value, mask: Value | None) -> None:
            value = f.mul(f.sub(f.load(y, j, form.out, mask=mask), apart), factor)
            if form.ignore is not None:  # 0 even if out is nan
                value = f.select(same, zero, value)
            f.store(value, d, j, form.grad, mask=mask)

        f.sweep(0, width, finish)
        if form.ignore is not None:
            known = f.both(known, f.negated(none))
        with f.when(known):
            f.store_one(truth, d, at, form.grad)
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


def slots(arrays: Sequence[Any], *numbers: int) -> list[int]:
    """Addresses of two arrays, then numbers, then the addresses of the others."""
    from ..onednn.primitive import address_of

    return [*(address_of(x) for x in arrays[:2]), *numbers, *(address_of(x) for x in arrays[2:])]
