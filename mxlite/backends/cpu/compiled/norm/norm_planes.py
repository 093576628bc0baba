"""Batch normalization of arrays (N, C, P) with a plane of P numbers for each sample and channel.

A thread does whole channels, one after the other. The planes of one channel are few enough to stay in the
second level's cache between the passes over them, so that memory is read once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ..codegen.doubles import Doubles
from ..codegen.emitter import Module
from ..codegen.ir import Operand as Int, Value
from .norm_form import (
    Channel,
    inverse_of,
    moved,
    NormForm,
    scale_of,
    shift_of,
    slope_and_offset,
    statistics,
    variance_of,
)

# Slots of the arguments: addresses, then numbers.
DATA, ADDEND, OUT, GAMMA, BETA, MOVING_MEAN, MOVING_VAR, MEAN, VAR = range(9)
D_OUT, D_DATA, D_GAMMA, D_BETA, D_ADDEND = range(9, 14)
SAMPLES, CHANNELS, PLANE, PER_COUNT, EPS, MOMENTUM, NEW = range(14, 21)


class _Planes:
    """Base of forward and backward."""

    def __init__(self, form: NormForm) -> None:
        self.module = Module()
        f = self.f = self.module.function("norm")
        self.form, self.w = form, Doubles(f)
        self.samples, self.channels, self.plane = (f.integer(s) for s in (SAMPLES, CHANNELS, PLANE))
        self.per_count, self.eps = self.w.number(PER_COUNT), self.w.number(EPS)

    def planes(self, arrays: Sequence[Value], c: Value, sample: Int) -> list[Value]:
        """Address of the plane of a sample and channel in each array."""
        f = self.f
        at = f.binary("add", f.binary("mul", sample, self.channels), c)
        start = f.times(at, self.plane)
        return [f.offset(a, start, self.form.dtype) for a in arrays]

    def reduce(
        self,
        arrays: Sequence[Value],
        c: Value,
        terms: Callable[[Value, Value | None, list[Value]], tuple[Value, Value]],
    ) -> list[Value]:
        """Totals of both of `terms(i, mask, planes)` over a channel, float64: in float32 within a plane."""
        f, w = self.f, self.w

        def added(i: Value, mask: Value | None, *sums: Value) -> list[Value]:
            made = terms(i, mask, planes)
            if mask is not None:
                made = tuple(f.select(mask, t, f.const(0.0)) for t in made)  # type: ignore[assignment]
            return [f.add(s, t) for s, t in zip(sums, made)]

        with f.loop(0, self.samples, carried=(w.zero, w.zero)) as sample:
            planes = self.planes(arrays, c, sample.index)
            zeros = (f.const(0.0), f.const(0.0))
            sums = f.sweep(0, self.plane, added, zeros, unroll=4, join=f.add)
            sample.again(*(w.op("fadd", a, w.widen(b)) for a, b in zip(sample.values, sums)))
        return [w.total(s) for s in sample.results]

    def apply(
        self, arrays: Sequence[Value], c: Value, body: Callable[[Value, Value | None, list[Value]], None]
    ) -> None:
        """body(i, mask, planes) for every vector of a channel."""
        f = self.f
        with f.loop(0, self.samples) as sample:
            planes = self.planes(arrays, c, sample.index)
            f.sweep(0, self.plane, lambda i, mask: body(i, mask, planes), unroll=4)

    def load(self, planes: Sequence[Value], i: int, at: Value, mask: Value | None) -> Value:
        return self.f.load(planes[i], at, self.form.dtype, mask)


@functools.cache
def forward(form: NormForm) -> Module:
    p = _Planes(form)
    f, w = p.f, p.w
    data, addend, out, gamma, beta, moving_mean, moving_var, mean_out, var_out = (
        f.pointer(s) for s in (DATA, ADDEND, OUT, GAMMA, BETA, MOVING_MEAN, MOVING_VAR, MEAN, VAR)
    )
    first, last = f.share(p.channels)
    with f.loop(first, last) as channels:
        c = channels.index
        if form.batch:
            start = p.planes([data], c, 0)[0]
            shift = f.load_one(start, 0, form.dtype)

            def terms(i: Value, mask: Value | None, planes: list[Value]) -> tuple[Value, Value]:
                x = f.sub(p.load(planes, 0, i, mask), shift)
                return x, f.mul(x, x)

            mean, inverse = statistics(f, w.widen(shift), p.reduce([data], c, terms), p.per_count, p.eps)
        else:
            mean = f.load_one(moving_mean, c)
            inverse = inverse_of(f, w.widen(f.load_one(moving_var, c)), p.eps)
        f.store_one(mean, mean_out, c)
        f.store_one(inverse, var_out, c)
        if form.result:
            scale = scale_of(f, form, inverse, f.load_one(gamma, c) if form.gamma else None)
            at = Channel(f, form, mean, scale, shift_of(f, mean, scale, f.load_one(beta, c)))

            def applied(i: Value, mask: Value | None, planes: list[Value]) -> None:
                more = p.load(planes, 2, i, mask) if form.addend else None
                f.store(at.out(p.load(planes, 0, i, mask), more), planes[1], i, form.dtype, mask)

            p.apply([data, out, *([addend] if form.addend else [])], c, applied)
    f.done()
    return p.module


@functools.cache
def backward(form: NormForm) -> Module:
    p = _Planes(form)
    f, w = p.f, p.w
    data, out, gamma, beta, moving_mean, moving_var, mean_in, var_in = (
        f.pointer(s) for s in (DATA, OUT, GAMMA, BETA, MOVING_MEAN, MOVING_VAR, MEAN, VAR)
    )
    d_out, d_data, d_gamma, d_beta, d_addend = (
        f.pointer(s) for s in (D_OUT, D_DATA, D_GAMMA, D_BETA, D_ADDEND)
    )
    momentum, new = w.number(MOMENTUM), w.number(NEW)
    by_out, stored = form.relu and form.by_out, form.stored
    first, last = f.share(p.channels)
    with f.loop(first, last) as channels:
        c = channels.index
        mean, inverse = f.load_one(mean_in, c), f.load_one(var_in, c)
        scale = scale_of(f, form, inverse, f.load_one(gamma, c) if form.gamma else None)
        by_data = form.relu and not by_out
        shift = shift_of(f, mean, scale, f.load_one(beta, c)) if by_data else None
        at = Channel(f, form, mean, scale, shift)

        def terms(i: Value, mask: Value | None, planes: list[Value]) -> tuple[Value, Value]:
            x, d = p.load(planes, 0, i, mask), p.load(planes, 1, i, mask)
            d = at.masked(d, x, p.load(planes, 2, i, mask) if by_out else None)
            if stored:
                f.store(d, planes[-1], i, form.dtype, mask)
            return d, f.mul(d, f.sub(x, mean))

        arrays = [data, d_out, *([out] if by_out else []), *([d_addend] if stored else [])]
        sums = p.reduce(arrays, c, terms)
        f.store_one(w.narrow(sums[0]), d_beta, c)
        by_gamma = w.narrow(w.op("fmul", sums[1], w.widen(inverse))) if form.gamma else f.const(0.0)
        f.store_one(by_gamma, d_gamma, c)
        slope, offset = slope_and_offset(f, scale, inverse, sums, p.per_count) if form.batch else (None, None)
        if form.result:

            def applied(i: Value, mask: Value | None, planes: list[Value]) -> None:
                x, d = p.load(planes, 0, i, mask), p.load(planes, 1, i, mask)
                if not stored:
                    d = at.masked(d, x, p.load(planes, 3, i, mask) if by_out else None)
                f.store(at.d_data(d, x, slope, offset), planes[2], i, form.dtype, mask)

            head = d_addend if stored else d_out
            p.apply([data, head, d_data, *([out] if by_out and not stored else [])], c, applied)
        if form.batch:
            for moving, batch in ((moving_mean, w.widen(mean)), (moving_var, variance_of(f, inverse, p.eps))):
                f.store_one(moved(f, f.load_one(moving, c), batch, momentum, new), moving, c)
    f.done()
    return p.module
