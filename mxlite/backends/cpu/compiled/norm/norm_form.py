"""Forms of generated batch normalization, and the arithmetic that both layouts share.

Statistics take one pass: sums of x - k and of its square, k being the first number of the channel. The
shift keeps the digits that E[x^2] - E[x]^2 loses if the mean is large; as k is one of the numbers, their
variance is no less than (k - mean)^2 / M, so cancellation stays within M rounding errors even if k
is an outlier. A few hundred numbers at a time are added in float32, these sums in float64.

    out = max(x * scale + shift + addend, 0),        scale = gamma / std,   shift = beta - mean * scale
    d = d_out where out > 0 or nan, else 0
    d_data = d * scale + (x - mean) * slope + offset,                   offset = -scale * sum(d) / M,
                                       slope = -scale / var' * sum(d * (x - mean)) / M,   var' = var + eps

`x * scale + shift` is rounded once, here and wherever else a norm is applied: convolutions with a norm as
prologue (`winograd/tiles.py`) agree with backward about each element that the rectifier lets through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..codegen.doubles import Doubles
from ..codegen.emitter import Function
from ..codegen.ir import DOUBLE, number, Value


@dataclass(frozen=True)
class NormForm:
    """`dtype` of the data; `batch`: by statistics of the batch, not the moving ones; `gamma`: there is one.

    `addend`: kind of the addend, one of `norm_act.ADDENDS`; in backward "" if `out` tells the mask.
    `stored`: in backward, True if the gradient of the addend is written, which is not so if it is not
    requested or already in d_out, because nothing is masked. `by_out`: the mask is read off `out`, else it is
    recomputed from data and addend. `result`: True if out, or d_data, is written; `past_cache`: by
    non-temporal stores. `line`: True if scale and shift are written.
    """

    dtype: str
    batch: bool
    gamma: bool
    relu: bool = False
    addend: str = ""
    stored: bool = False
    by_out: bool = False
    result: bool = True
    past_cache: bool = False
    line: bool = False


class Channel:
    """Numbers of the channels of a vector, or of the one channel that all its lanes belong to.

    `line`: scale and shift of the addend, if it has some.
    """

    def __init__(
        self, f: Function, form: NormForm, mean: Value, scale: Value, shift: Any, line: Sequence[Value] = ()
    ) -> None:
        self.f, self.form, self.mean, self.scale, self.shift, self.line = f, form, mean, scale, shift, line

    def sum(self, x: Value, addend: Value | None) -> Value:
        """Input of the rectifier."""
        y = self.f.fma(x, self.scale, self.shift)
        return y if addend is None else self.f.add(y, self._added(addend))

    def out(self, x: Value, addend: Value | None) -> Value:
        y = self.sum(x, addend)
        return self.f.above(y, self.f.const(0.0)) if self.form.relu else y

    def _added(self, addend: Value) -> Value:
        if not self.line:
            return addend
        y = self.f.fma(addend, *self.line)
        return self.f.above(y, self.f.const(0.0)) if self.form.addend == "relu" else y

    def masked(self, d: Value, x: Value, other: Value | None) -> Value:
        """Gradient masked by the rectifier; `other` is out or the addend, whichever determines the mask."""
        f = self.f
        if not self.form.relu:
            return d
        zero = f.const(0.0)
        seen = other if other is not None and self.form.by_out else self.sum(x, other)
        return f.select(f.compare("ugt", seen, zero), d, zero)  # nan does not stop it

    def d_data(self, d: Value, x: Value, slope: Value | None, offset: Value | None) -> Value:
        f = self.f
        direct = f.mul(d, self.scale)
        if slope is None or offset is None:
            return direct
        return f.add(direct, f.add(f.mul(f.sub(x, self.mean), slope), offset))


def scale_of(f: Function, form: NormForm, inverse: Value, gamma: Value | None) -> Value:
    """gamma / std. With `fix_gamma` there is no gamma."""
    return inverse if gamma is None else f.mul(inverse, gamma)


def shift_of(f: Function, mean: Value, scale: Value, beta: Value) -> Value:
    """beta - mean * scale, rounded once."""
    return f.fma(f.neg(mean), scale, beta)


def statistics(
    f: Function, first: Value, sums: Sequence[Value], per_count: Value, eps: Value
) -> tuple[Value, Value]:
    """Mean and 1 / std from k and the sums of x - k and (x - k)^2; all but the results float64."""
    w = Doubles(f)
    away = w.op("fmul", sums[0], per_count)
    square = w.op("fmul", sums[1], per_count)
    var = w.not_below_zero(w.op("fsub", square, w.op("fmul", away, away)))
    return w.narrow(w.op("fadd", first, away)), inverse_of(f, var, eps)


def inverse_of(f: Function, var: Value, eps: Value) -> Value:
    """1 / sqrt(var + eps), of float64."""
    w = Doubles(f)
    one = f.every(number(DOUBLE, 1.0))
    return w.narrow(w.op("fdiv", one, w.sqrt(w.op("fadd", var, eps))))


def slope_and_offset(
    f: Function, scale: Value, inverse: Value, sums: Sequence[Value], per_count: Value
) -> tuple[Value, Value]:
    """See above; `sums` are float64, of d and of d * (x - mean)."""
    w = Doubles(f)
    by = w.op("fneg", w.op("fmul", w.widen(scale), per_count))
    wide = w.widen(inverse)
    slope = w.op("fmul", w.op("fmul", sums[1], w.op("fmul", wide, wide)), by)
    return w.narrow(slope), w.narrow(w.op("fmul", sums[0], by))


def moved(f: Function, moving: Value, batch: Value, momentum: Value, rest: Value) -> Value:
    """moving * momentum + batch * (1 - momentum), of float64 numbers but for `moving`, rounded."""
    w = Doubles(f)
    kept = w.op("fmul", w.widen(moving), momentum)
    return w.narrow(w.op("fadd", kept, w.op("fmul", batch, rest)))


def variance_of(f: Function, inverse: Value, eps: Value) -> Value:
    """The variance recomputed from 1 / sqrt(var + eps); float64."""
    w = Doubles(f)
    wide = w.widen(inverse)
    return w.op("fsub", w.op("fdiv", f.every(number(DOUBLE, 1.0)), w.op("fmul", wide, wide)), eps)
