"""exp, log, tanh and others of vectors in registers, as instructions: `exp(f, x)` writes them into `f`.

Each reduces its argument to a short interval and takes a polynomial there, whose coefficients are minimax
fits of ours (Lawson's iteration in double precision, then rounded to float32). NaN gives NaN, infinities and
numbers out of range give what numpy gives, denormal arguments and results are right. The largest errors,
in units of the last place of a float32, over all arguments
(tests/backends/cpu/test_compiled.py measures them):

    exp 1.2   expm1 2   log 1.2   log1p 2.5   tanh 2.5   sigmoid 2.5   softplus 2.5   erf 2.5
    log2 2   log10 2.5   sqrt, reciprocal 0.5   rsqrt 1.5   gauss, gelu: absolute error 2e-7 of max(1, |x|)
"""

from __future__ import annotations

import math

from .emitter import Function, width
from .ir import I16, I32, number, Value, zero

_LOG2E = 1.4426950408889634
_LN2_HIGH = 0.693145751953125  # 16 bits of ln 2: exact times any exponent
_LN2_LOW = 1.428606820309417e-06  # the rest
_LOG2E_LOW = 1.92596298909109e-08  # what float32 leaves of log2(e)
_LOG2_HIGH, _LOG2_LOW = 0.301025390625, 4.6050389811980175e-06  # log10(2), as ln 2
_MAGIC = 12582912.0  # 1.5 * 2**23: adding it rounds to a whole number, in the low bits
_MAGIC_BITS = 0x4B400000

# (exp(r) - 1 - r) / r^2 for |r| <= ln 2 / 2
_EXP = (0.5, 0.16666506230831146, 0.041666168719530106, 0.008370321244001389, 0.0013952972367405891)
# (log(1 + r) - r + r^2 / 2) / r^3 for 1 + r from sqrt(1/2) to sqrt(2)
_LOG = (
    0.3333333134651184, -0.2500081956386566, 0.20001226663589478, -0.16623356938362122,
    0.14201758801937103, -0.13160182535648346, 0.12761574983596802, -0.07634492963552475,
)  # fmt: skip
# erf(x) / x of x^2, |x| <= 1
_ERF = (
    1.1283791065216064, -0.3761262595653534, 0.11283600330352783, -0.026854444295167923,
    0.005189535673707724, -0.0008020842215046287, 7.889122935011983e-05,
)  # fmt: skip
# -log(1 - erf(x)), x from 1 to 3.95
_ERFC = (
    0.00035371878766454756, 1.1270400285720825, 0.6382256746292114, 0.10303737223148346,
    -0.02180531993508339, 0.002939607948064804, -0.00018557407020125538,
)  # fmt: skip
# exp(x^2) (1 - erf(x)) / k of k = 1 / (1 + 0.3 x), x >= 0
_TAIL_STEP = 0.3
_TAIL = (
    0.16918767988681793, 0.17071984708309174, 0.14831067621707916, 0.21502359211444855, -0.0948539525270462,
    0.5479843616485596, -0.5124880075454712, 0.48565641045570374, -0.12954065203666687,
)  # fmt: skip


def reduced(f: Function, x: Value) -> tuple[Value, Value, Value]:
    """n, r and the number whose low bits are n, where x = n ln 2 + r and |r| <= ln 2 / 2."""
    shifted = f.fma(x, f.const(_LOG2E), f.const(_MAGIC))
    n = f.sub(shifted, f.const(_MAGIC))
    r = f.fma(n, f.const(-_LN2_HIGH), x)
    return n, f.fma(n, f.const(-_LN2_LOW), r), shifted


def whole_number(f: Function, shifted: Value) -> Value:
    """n as integers."""
    return f.binary("sub", f.as_int(shifted), _MAGIC_BITS)


def less_one(f: Function, r: Value) -> Value:
    """exp(r) - 1."""
    return f.fma(f.mul(r, r), f.polynomial(r, _EXP), r)


def power_of_two(f: Function, n: Value) -> Value:
    """2^n of integers n from -126 to 127."""
    biased = f.binary("add", n, 127)
    return f.as_float(f.binary("shl", biased, 23))


def exp(f: Function, x: Value) -> Value:
    """e^x."""
    return _exp(f, f.below(f.above(x, f.const(-104.0)), f.const(89.0)))


def _exp(f: Function, x: Value) -> Value:
    """e^x of x from -104 to 89."""
    n, r, shifted = reduced(f, x)
    value = f.polynomial(r, (1.0, 1.0, *_EXP))
    if f.width == width() == 16:  # AVX-512 has an instruction for value * 2^n
        return f.call(f.vector, _SCALE, value, n, zero(f.vector), number(I16, -1), number(I32, 4))
    # 2^n may be no float32 while the result is one, so it is applied by halves.
    whole = whole_number(f, shifted)
    half = f.binary("ashr", whole, 1)
    rest = f.binary("sub", whole, half)
    return f.mul(f.mul(value, power_of_two(f, half)), power_of_two(f, rest))


_SCALE = "llvm.x86.avx512.mask.scalef.ps.512"


def expm1(f: Function, x: Value) -> Value:
    """e^x - 1, exact near 0."""
    x = f.below(f.above(x, f.const(-30.0)), f.const(88.9))
    _, r, shifted = reduced(f, x)
    small = less_one(f, r)
    # Half of 2^n, which itself may be too large.
    half = power_of_two(f, f.binary("sub", whole_number(f, shifted), 1))
    value = f.fma(half, small, f.sub(half, f.const(0.5)))
    return f.intrinsic("copysign", f.add(value, value), x)  # the sum has lost the sign of -0.0


def log(f: Function, x: Value) -> Value:
    """The natural logarithm; -inf at 0, NaN below."""
    e, r, square, y = _log_parts(f, x)
    y = f.fma(e, f.const(_LN2_LOW), y)
    y = f.add(r, f.fma(square, f.const(-0.5), y))
    return _log_ends(f, x, f.fma(e, f.const(_LN2_HIGH), y))


def log2(f: Function, x: Value) -> Value:
    """The logarithm to base 2, exact for its powers."""
    e, r, square, y = _log_parts(f, x)
    y = f.add(r, f.fma(square, f.const(-0.5), y))
    return _log_ends(f, x, f.add(e, f.fma(y, f.const(_LOG2E), f.mul(y, f.const(_LOG2E_LOW)))))


def log10(f: Function, x: Value) -> Value:
    """The logarithm to base 10."""
    e, r, square, y = _log_parts(f, x)
    y = f.add(r, f.fma(square, f.const(-0.5), y))
    y = f.fma(e, f.const(_LOG2_LOW), f.mul(y, f.const(math.log10(math.e))))
    return _log_ends(f, x, f.fma(e, f.const(_LOG2_HIGH), y))


def _log_parts(f: Function, x: Value) -> tuple[Value, Value, Value, Value]:
    """e, r, r^2 and log(1 + r) - r + r^2 / 2, where x = 2^e (1 + r) and 1 + r is near 1."""
    tiny = f.compare("olt", x, f.const(1.1754943508222875e-38))
    scaled = f.select(tiny, f.mul(x, f.const(2.0**23)), x)
    bits = f.as_int(scaled)
    over = f.binary("sub", bits, 1060439283)  # sqrt(1/2)
    exponent = f.binary("ashr", over, 23)
    fraction = f.binary("shl", exponent, 23)
    r = f.sub(f.as_float(f.binary("sub", bits, fraction)), f.const(1.0))
    e = f.cast("sitofp", exponent, f.vector)
    e = f.select(tiny, f.sub(e, f.const(23.0)), e)
    square = f.mul(r, r)
    return e, r, square, f.mul(f.mul(square, r), f.polynomial(r, _LOG))


def _log_ends(f: Function, x: Value, y: Value) -> Value:
    """A logarithm `y` of x, with its values for infinity, NaN, 0 and numbers below."""
    y = f.select(f.compare("olt", x, f.const(float("inf"))), y, x)
    y = f.select(f.compare("olt", x, f.const(0.0)), f.const(float("nan")), y)
    return f.select(f.compare("oeq", x, f.const(0.0)), f.const(float("-inf")), y)


def log1p(f: Function, x: Value) -> Value:
    """log(1 + x), exact near 0."""
    y = f.add(x, f.const(1.0))
    lost = f.div(f.sub(x, f.sub(y, f.const(1.0))), y)  # what the sum rounded away
    ordinary = f.compare("one", f.abs(y), f.const(float("inf")))
    ordinary = f.both(ordinary, f.compare("une", y, f.const(0.0)))
    # The sum has lost the sign of -0.0.
    return f.intrinsic("copysign", f.add(log(f, y), f.select(ordinary, lost, f.const(0.0))), x)


def tanh(f: Function, x: Value) -> Value:
    """The hyperbolic tangent."""
    far = f.below(f.abs(x), f.const(10.0))
    _, r, shifted = reduced(f, f.add(far, far))
    power = power_of_two(f, whole_number(f, shifted))
    less = f.fma(power, less_one(f, r), f.sub(power, f.const(1.0)))  # e^2|x| - 1
    return f.intrinsic("copysign", f.div(less, f.add(less, f.const(2.0))), x)


def sigmoid(f: Function, x: Value) -> Value:
    """1 / (1 + e^-x); 0 where that is no ordinary number, below -88."""
    x = f.below(f.above(x, f.const(-89.0)), f.const(104.0))
    return f.div(f.const(1.0), f.add(_exp(f, f.neg(x)), f.const(1.0)))


def softplus(f: Function, x: Value) -> Value:
    """log(1 + e^x)."""
    small = _exp(f, f.neg(f.below(f.abs(x), f.const(104.0))))
    y = f.add(small, f.const(1.0))
    lost = f.div(f.sub(small, f.sub(y, f.const(1.0))), y)
    return f.add(f.above(x, f.const(0.0)), f.add(log(f, y), lost))


def erf(f: Function, x: Value) -> Value:
    """The error function."""
    t = f.abs(x)
    near = f.mul(x, f.polynomial(f.mul(x, x), _ERF))
    far = f.below(t, f.const(3.95))
    far = f.sub(f.const(1.0), _exp(f, f.neg(f.polynomial(far, _ERFC))))
    return f.select(f.compare("olt", t, f.const(1.0)), near, f.intrinsic("copysign", far, x))


def sqrt(f: Function, x: Value) -> Value:
    """The square root."""
    return f.sqrt(x)


def rsqrt(f: Function, x: Value) -> Value:
    """1 / sqrt(x)."""
    return f.div(f.const(1.0), f.sqrt(x))


def gauss(f: Function, x: Value) -> tuple[Value, Value]:
    """The normal distribution function of x, and e^(-x^2/2), which is sqrt(2 pi) times its density."""
    t = f.mul(f.abs(x), f.const(0.7071067811865476))
    bell = _exp(f, f.above(f.mul(f.mul(x, x), f.const(-0.5)), f.const(-104.0)))
    k = f.div(f.const(1.0), f.fma(t, f.const(_TAIL_STEP), f.const(1.0)))
    tail = f.mul(f.mul(bell, f.const(0.5)), f.mul(k, f.polynomial(k, _TAIL)))
    return f.select(f.compare("ogt", x, f.const(0.0)), f.sub(f.const(1.0), tail), tail), bell


def gelu(f: Function, x: Value) -> Value:
    """x times the normal distribution function of x."""
    return f.mul(x, gauss(f, x)[0])


def sign(f: Function, x: Value) -> Value:
    """-1, 0 or 1."""
    one = f.intrinsic("copysign", f.const(1.0), x)
    plain = f.select(f.compare("oeq", x, f.const(0.0)), f.const(0.0), one)
    return f.select(f.compare("uno", x, x), x, plain)
