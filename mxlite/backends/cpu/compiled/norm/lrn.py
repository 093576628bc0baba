"""Local response normalization as generated code.

With s = knorm + alpha / nsize * (sum of the squares of the channels near c):

    out[c]    = x[c] s[c]^-beta
    d_data[c] = d[c] s[c]^-beta - 2 alpha beta / nsize x[c] (sum of d x s^(-beta - 1) of those channels)

The channels of one position lie in a row of scratch with zeros at both ends, so that neighbours are loads at
an offset. With channels last a vector has channels; else it has positions, and a row of scratch has a vector
for each channel, for as many positions at a time. Each thread has scratch of its own:

    forward   squares          backward   squares | d s^-beta | d x s^(-beta - 1)
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from .....core.machine_code import native
from ..calls.team import load
from ..codegen import functions
from ..codegen.emitter import Function, Module, width
from ..codegen.ir import Operand as Int, Value


class LrnForm(NamedTuple):
    """Parameters of the code: the type of the data, the window and its numbers, and the layout."""

    dtype: str
    reach: int  # channels to either side
    scale: float  # alpha / nsize
    beta: float
    knorm: float
    last: bool
    backward: bool


def scratch_floats(form: LrnForm, channels: int) -> int:
    """float32 numbers of scratch for one thread: a whole number of vectors for each row."""
    return _row_floats(form, channels) * (3 if form.backward else 1)


def _row_floats(form: LrnForm, channels: int) -> int:
    w = width()
    if not form.last:
        return (channels + 2 * form.reach) * w
    # The padding after the last channel of an incomplete vector is zero, too.
    return -(-(channels + 2 * form.reach + w) // w) * w


@functools.cache
def code(form: LrnForm) -> native.Code:
    """The code with one function, `lrn`. Its arguments are data, result, d_out, scratch, the floats of a row
    of scratch, N, C, P (with channels last 1, and N counts all positions).
    """
    module = Module()
    f = module.function("lrn")
    _LrnWriter(f, form).write()
    f.done()
    return load(module)


class _LrnWriter:
    """Writes the function."""

    def __init__(self, f: Function, form: LrnForm) -> None:
        self.f, self.form = f, form
        self.data, self.result, self.head, scratch = (f.pointer(k) for k in range(4))
        self.floats, self.n, self.c, self.p = (f.integer(k) for k in range(4, 8))
        mine = self.f.times(f.thread, self.f.times(self.floats, 3 if form.backward else 1))
        self.squares = f.offset(scratch, mine, 4)
        self.powers = f.offset(self.squares, self.floats, 4)
        self.terms = f.offset(self.powers, self.floats, 4)
        self.unit = 1 if form.last else f.width  # numbers of scratch from one channel to the next

    def write(self) -> None:
        f = self.f
        with f.loop(0, self.floats, f.width) as loop:
            for row in (self.squares, self.terms) if self.form.backward else (self.squares,):
                f.store(f.const(0.0), row, loop.index)
        if self.form.last:
            begin, end = f.share(self.n)
            with f.loop(begin, end) as line:
                self.position(f.times(line.index, self.c), None)
            return
        up = f.plus(self.p, f.width - 1)
        blocks = f.over(up, f.width)
        begin, end = f.share(f.times(self.n, blocks))
        with f.loop(begin, end) as item:
            sample, block = f.over(item.index, blocks), f.rest(item.index, blocks)
            at = f.times(block, f.width)
            base = f.plus(f.times(sample, f.times(self.c, self.p)), at)
            whole = f.is_("sle", f.plus(at, f.width), self.p)
            with f.when(whole):
                self.position(base, None)
            with f.when(f.negated(whole)):
                self.position(base, f.tail(at, self.p))

    def position(self, base: Value, mask: Value | None) -> None:
        """All channels of one position (or of a vector of positions under a mask)."""
        f, form = self.f, self.form

        def square(c: Value, at: Value, m: Value | None) -> None:
            x = f.load(self.data, at, form.dtype, m)
            f.store(f.mul(x, x), self.squares, self.place(c), "float32", m)

        def out(c: Value, at: Value, m: Value | None) -> None:
            x = f.load(self.data, at, form.dtype, m)
            power = self.power(self.base(self.near(self.squares, c)))
            f.store(f.mul(x, power), self.result, at, form.dtype, m)

        def term(c: Value, at: Value, m: Value | None) -> None:
            x, d = f.load(self.data, at, form.dtype, m), f.load(self.head, at, form.dtype, m)
            s = self.base(self.near(self.squares, c))
            by_power = f.mul(d, self.power(s))
            place = self.place(c)
            f.store(by_power, self.powers, place)
            f.store(f.mul(f.div(by_power, s), x), self.terms, place, "float32", m)

        def gradient(c: Value, at: Value, m: Value | None) -> None:
            x = f.load(self.data, at, form.dtype, m)
            spread = f.mul(self.near(self.terms, c), f.const(-2 * form.scale * form.beta))
            made = f.fma(spread, x, f.load(self.powers, self.place(c)))
            f.store(made, self.result, at, form.dtype, m)

        for body in (square, term, gradient) if form.backward else (square, out):
            if form.last:
                f.sweep(0, self.c, lambda c, m, body=body: body(c, f.plus(base, c), m))
            else:
                with f.loop(0, self.c) as channel:
                    c = channel.index
                    body(c, f.plus(base, f.times(c, self.p)), mask)

    def place(self, c: Value) -> Int:
        """Offset of channel `c` in a row of scratch."""
        return self.f.times(self.f.plus(c, self.form.reach), self.unit)

    def near(self, row: Value, c: Value) -> Value:
        """The sum over the channels near `c`."""
        f, here = self.f, self.place(c)
        total = f.load(row, here)
        for k in range(1, self.form.reach + 1):
            for side in (-k, k):
                total = f.add(total, f.load(row, f.plus(here, side * self.unit)))
        return total

    def base(self, total: Value) -> Value:
        return self.f.fma(total, self.f.const(self.form.scale), self.f.const(self.form.knorm))

    def power(self, base: Value) -> Value:
        """base^-beta."""
        f = self.f
        return functions.exp(f, f.mul(functions.log(f, base), f.const(-self.form.beta)))
