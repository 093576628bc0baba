"""exp, log, sin and others of float64 vectors in registers, as instructions: `exp(d, x)` writes them.

Arguments are reduced to short intervals and evaluated by series there that are cut off below 2**-56 of the
result; the remaining errors are some roundings. The largest errors, in units of the last place of a float64
(tests/backends/cpu/test_traced.py checks them):

    exp 1   log 1   log1p 1.5   sin, cos 2, tan 3.5 for arguments up to 1000   power: 1 + its exponent of e

NaN gives NaN, infinities and numbers out of range give what numpy gives.
"""

from __future__ import annotations

import math

from .doubles import Doubles
from .ir import Value

_LN2_HIGH, _LN2_LOW = 0.6931471805599453, 2.3190468138462996e-17
_PI_HIGH, _PI_LOW = math.pi, 1.2246467991473532e-16
_MAGIC = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to a whole number, in the low bits
_MAGIC_BITS = 0x4338000000000000
_ROOT_HALF_BITS = 0x3FE6A09E667F3BCD
_EXP = tuple(1 / math.factorial(k) for k in range(14))
# (atanh(s) - s) / s^3 of s^2, twice: the logarithm of (1 + s) / (1 - s)
_LOG = tuple(2 / (2 * k + 3) for k in range(11))
# (sin(r) - r) / r^3 of r^2, |r| <= pi / 2
_SIN = tuple((-1) ** (k + 1) / math.factorial(2 * k + 3) for k in range(11))


def polynomial(d: Doubles, x: Value, coefficients: tuple[float, ...]) -> Value:
    """c[0] + c[1] x + c[2] x^2 + ..., by Horner's rule."""
    value = d.const(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = d.muladd(value, x, d.const(c))
    return value


def exp(d: Doubles, x: Value, terms: int = len(_EXP)) -> Value:
    """e^x; 10 terms of the series are enough for float32."""
    x = d.below(d.above(x, d.const(-746.0)), d.const(710.0))
    shifted = d.add(d.mul(x, d.const(math.log2(math.e))), d.const(_MAGIC))
    n = d.sub(shifted, d.const(_MAGIC))
    r = d.fma(n, d.const(-_LN2_HIGH), x)
    r = d.fma(n, d.const(-_LN2_LOW), r)
    value = polynomial(d, r, _EXP[:terms])
    # 2^n may be no float64 while the result is one, so it is applied by halves.
    whole = d.whole("sub", d.as_whole(shifted), d.every_whole(_MAGIC_BITS))
    half = d.whole("ashr", whole, d.every_whole(1))
    return d.mul(d.mul(value, _power_of_two(d, half)), _power_of_two(d, d.whole("sub", whole, half)))


def _power_of_two(d: Doubles, n: Value) -> Value:
    biased = d.whole("add", n, d.every_whole(1023))
    return d.as_double(d.whole("shl", biased, d.every_whole(52)))


def log(d: Doubles, x: Value, terms: int = len(_LOG)) -> Value:
    """The natural logarithm; -inf at 0, NaN below. 7 terms of the series are enough for float32."""
    tiny = d.compare("olt", x, d.const(2.0**-1022))
    bits = d.as_whole(d.select(tiny, d.mul(x, d.const(2.0**54)), x))
    over = d.whole("sub", bits, d.every_whole(_ROOT_HALF_BITS))
    exponent = d.whole("ashr", over, d.every_whole(52))
    fraction = d.as_double(d.whole("sub", bits, d.whole("shl", exponent, d.every_whole(52))))
    e = d.sub(d.as_double(d.whole("add", exponent, d.every_whole(_MAGIC_BITS))), d.const(_MAGIC))
    e = d.select(tiny, d.sub(e, d.const(54.0)), e)
    # log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + series)), s = f / (2 + f): what is rounded is small beside f.
    f = d.sub(fraction, d.const(1.0))
    s = d.div(f, d.add(f, d.const(2.0)))
    square = d.mul(s, s)
    half = d.mul(d.mul(f, f), d.const(0.5))
    y = d.mul(s, d.muladd(square, polynomial(d, square, _LOG[:terms]), half))
    y = d.muladd(e, d.const(_LN2_LOW), y)
    y = d.sub(f, d.sub(half, y))
    y = d.fma(e, d.const(_LN2_HIGH), y)
    y = d.select(d.compare("olt", x, d.const(math.inf)), y, x)
    y = d.select(d.compare("olt", x, d.const(0.0)), d.const(math.nan), y)
    return d.select(d.compare("oeq", x, d.const(0.0)), d.const(-math.inf), y)


def log1p(d: Doubles, x: Value) -> Value:
    """log(1 + x), exact near 0."""
    y = d.add(x, d.const(1.0))
    lost = d.div(d.sub(x, d.sub(y, d.const(1.0))), y)  # the rounding error of the sum
    ordinary = d.compare("one", d.abs(y), d.const(math.inf))
    ordinary = d.both(ordinary, d.compare("une", y, d.const(0.0)))
    return d.add(log(d, y), d.select(ordinary, lost, d.const(0.0)))


def sin(d: Doubles, x: Value) -> Value:
    """The sine, of -0.0 too; arguments are taken to be below 2^20 in size."""
    n = d.add(d.intrinsic("rint", d.mul(x, d.const(1 / math.pi))), d.const(0.0))  # never -0.0
    return signed_sine(d, apart(d, x, n), n)


def cos(d: Doubles, x: Value) -> Value:
    """The cosine, as the sine of the distance from the nearest zero."""
    n = d.intrinsic("rint", d.sub(d.mul(x, d.const(1 / math.pi)), d.const(0.5)))
    return d.neg(signed_sine(d, apart(d, x, d.add(n, d.const(0.5))), n))


def apart(d: Doubles, x: Value, turns: Value) -> Value:
    """x - turns pi."""
    r = d.fma(turns, d.const(-_PI_HIGH), x)
    return d.fma(turns, d.const(-_PI_LOW), r)


def signed_sine(d: Doubles, r: Value, n: Value, terms: int = len(_SIN)) -> Value:
    """(-1)^n sin(r) for r from -pi / 2 to pi / 2; 7 terms of the series are enough for float32."""
    square = d.mul(r, r)
    y = d.muladd(d.mul(d.mul(square, r), polynomial(d, square, _SIN[:terms])), d.const(1.0), r)
    y = d.intrinsic("copysign", y, r)  # the sum of zeros has lost the sign of one
    odd = d.whole("shl", d.as_whole(d.add(n, d.const(_MAGIC))), d.every_whole(63))
    return d.as_double(d.whole("xor", d.as_whole(y), odd))


def tan(d: Doubles, x: Value) -> Value:
    """The tangent."""
    return d.div(sin(d, x), cos(d, x))


def power(d: Doubles, x: Value, y: Value) -> Value:
    """x^y of x >= 0 and finite y; 0^0 is NaN."""
    return exp(d, d.mul(y, log(d, x)))
