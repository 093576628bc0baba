"""Gradients of layer normalization of rows as generated code. Each thread has whole rows."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from .....core.machine_code import native
from ..calls.team import load
from ..codegen.emitter import Function, Module
from ..codegen.ir import Value

BLOCK = 128
"""Rows whose terms of d_gamma and d_beta are added up before they are added to the thread's sums."""


@dataclass(frozen=True)
class NormForm:
    """Types of data and of gamma, and flags for the gradients of data and of the affine parameters."""

    data: str
    affine: str
    eps: float
    wants_data: bool = True
    wants_affine: bool = True


def _statistics(f: Function, x: Value, columns: Value, count: Value, form: NormForm) -> tuple[Value, Value]:
    """Mean and standard deviation of a row: two passes, so that no digits cancel."""
    zero = f.const(0.0)
    (total,) = f.sweep(
        0, columns, lambda j, m, t: f.add(t, f.load(x, j, form.data, mask=m)), [zero], 4, f.add
    )
    mean = f.div(f.total(total), count)

    def square(j: Value, mask: Value | None, total: Value) -> Value:
        apart = f.sub(f.load(x, j, form.data, mask=mask), mean)
        term = f.mul(apart, apart)
        return f.add(total, term if mask is None else f.select(mask, term, zero))

    (total,) = f.sweep(0, columns, square, [zero], 4, f.add)
    return mean, f.sqrt(f.add(f.div(f.total(total), count), f.const(form.eps)))


@functools.lru_cache(maxsize=64)
def backward_code(form: NormForm) -> native.Code:
    """The function "norm"; slots d_out, data, gamma, d_data, d_gamma, d_beta, sums, rows, columns, parts.

    sums: four rows of float32 for each part of the rows, those of a block of them and those of all.
    """
    module = Module()
    f = module.function("norm")
    d_out, data, gamma, d_data, d_gamma, d_beta, sums = (f.pointer(i) for i in range(7))
    rows, columns, parts = (f.integer(i) for i in range(7, 10))
    count, zero = f.number(columns), f.const(0.0)
    size = f.times(columns, 4)  # of the sums of one part
    with f.loop(*f.share(parts)) as part:
        own = f.offset(sums, f.times(size, part.index), "float32")
        part_gamma, part_beta, all_gamma, all_beta = (
            f.offset(own, f.binary("mul", columns, i), "float32") for i in range(4)
        )
        first, last = f.share(rows, part=(part.index, parts))

        def clear(*where: Value) -> None:
            def body(j: Value, mask: Value | None) -> None:
                for p in where:
                    f.store(zero, p, j, mask=mask)

            f.sweep(0, columns, body)

        if form.wants_affine:
            clear(all_gamma, all_beta)
        with f.loop(first, last, BLOCK) as block:
            beyond = f.plus(block.index, BLOCK)
            end = f.least(beyond, last)
            if form.wants_affine:
                clear(part_gamma, part_beta)
            with f.loop(block.index, end) as row:
                begin = f.times(row.index, columns)
                x, dy, dx = (f.offset(p, begin, form.data) for p in (data, d_out, d_data))
                mean, std = _statistics(f, x, columns, count, form)
                inverse = f.div(f.const(1.0), std)

                def terms(j: Value, mask: Value | None) -> tuple[Value, Value, Value]:
                    head = f.load(dy, j, form.data, mask=mask)
                    scaled = f.mul(f.sub(f.load(x, j, form.data, mask=mask), mean), inverse)
                    return head, scaled, f.mul(head, f.load(gamma, j, form.affine, mask=mask))

                def add(j: Value, mask: Value | None, one: Value, other: Value) -> tuple[Value, Value]:
                    head, scaled, g = terms(j, mask)
                    if form.wants_affine:
                        more = f.add(f.load(part_gamma, j, mask=mask), f.mul(head, scaled))
                        f.store(more, part_gamma, j, mask=mask)
                        f.store(f.add(f.load(part_beta, j, mask=mask), head), part_beta, j, mask=mask)
                    along = f.mul(g, scaled)  # 0 outside the mask: there the head is
                    return f.add(one, g), f.add(other, along)

                total, along = f.sweep(0, columns, add, [zero, zero], 2, f.add)
                if form.wants_data:
                    total, along = f.div(f.total(total), count), f.div(f.total(along), count)

                    def finish(j: Value, mask: Value | None) -> None:
                        _, scaled, g = terms(j, mask)
                        rest = f.sub(f.sub(g, total), f.mul(scaled, along))
                        f.store(f.mul(rest, inverse), dx, j, form.data, mask=mask)

                    f.sweep(0, columns, finish)
            if form.wants_affine:

                def gather(j: Value, mask: Value | None) -> None:
                    for part, whole in ((part_gamma, all_gamma), (part_beta, all_beta)):
                        more = f.add(f.load(whole, j, mask=mask), f.load(part, j, mask=mask))
                        f.store(more, whole, j, mask=mask)

                f.sweep(0, columns, gather)
    if form.wants_affine:
        f.meet()
        with f.when(f.is_("eq", f.thread, 0)):

            def join(j: Value, mask: Value | None) -> None:
                for k, p in ((2, d_gamma), (3, d_beta)):
                    at = f.plus(f.binary("mul", columns, k), j)
                    with f.loop(0, parts, 1, [zero]) as other:
                        place = f.plus(f.times(size, other.index), at)
                        other.again(f.add(other.values[0], f.load(sums, place, mask=mask)))
                    f.store(other.results[0], p, j, form.affine, mask=mask)

            f.sweep(0, columns, join)
    f.done()
    return load(module)
