"""sin, arctan2, pow and others of float32 vectors that are computed in float64: `sin(f, x)` writes a call.

Each is a function of its module (a routine), which widens its operands, works with the functions of
`double_functions.py`, cut off for float32, and rounds once. So the largest error is 0.51 units of the last
place of a float32, over all arguments (tests/backends/cpu/test_widened.py measures it); special values give
what numpy gives.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

from . import double_functions as functions
from .doubles import Doubles
from .emitter import Function
from .ir import Value

_EXP_TERMS, _LOG_TERMS, _SIN_TERMS = 10, 8, 7
_NEAR = 2.0**-13  # below it x + x^3 / 6 rounds to x, or to its neighbour at most
_WHOLE = 2.0**28  # quotients below are cut exactly

# 1 / pi in parts of 29 bits, so that a product with a float32 is exact.
_INVERSE_PI = 31830988618379067153776752674502872406891929148091289749533468811779359526845307
_PARTS = tuple(math.ldexp((_INVERSE_PI << 29 * (k + 1)) // 10**80 % 2**29, -29 * (k + 1)) for k in range(7))
_FAR = 2.0**20  # arguments from here on are reduced with all parts
# arctan(x) / x of x^2, for x up to tan(pi / 8)
_ARCTAN = tuple((-1) ** k / (2 * k + 1) for k in range(12))


def _exp(d: Doubles, x: Value) -> Value:
    return functions.exp(d, x, _EXP_TERMS)


def _log(d: Doubles, x: Value) -> Value:
    return functions.log(d, x, _LOG_TERMS)


def _reduced(d: Doubles, x: Value, shift: float) -> tuple[Value, Value]:
    """r and n, a whole number, where x = (n + shift + 2 m) pi + r for some whole m, and |r| <= pi / 2."""
    f = d.f
    n = d.add(d.intrinsic("rint", d.sub(d.mul(x, d.const(1 / math.pi)), d.const(shift))), d.const(0.0))
    r = functions.apart(d, x, d.add(n, d.const(shift)) if shift else n)
    far = d.compare("oge", d.abs(x), d.const(_FAR))
    with f.repeat(f.any_of(far), (r, n)) as large:
        turns = d.zero
        for part in _PARTS:
            more = d.mul(x, d.const(part))
            turns = d.add(turns, _without_twos(d, more))
        turns = d.sub(_without_twos(d, turns), d.const(shift))
        whole = d.intrinsic("rint", turns)
        rest = d.mul(d.sub(turns, whole), d.const(math.pi))
        large.again(*(d.select(far, a, b) for a, b in zip((rest, whole), large.values)))
    return large.results[0], large.results[1]


def _without_twos(d: Doubles, x: Value) -> Value:
    """x less the nearest multiple of 2, which is exact."""
    return d.fma(d.intrinsic("rint", d.mul(x, d.const(0.5))), d.const(-2.0), x)


def _sin(d: Doubles, x: Value) -> Value:
    return functions.signed_sine(d, *_reduced(d, x, 0.0), _SIN_TERMS)


def _cos(d: Doubles, x: Value) -> Value:
    return d.neg(functions.signed_sine(d, *_reduced(d, x, 0.5), _SIN_TERMS))


def _tan(d: Doubles, x: Value) -> Value:
    return d.div(_sin(d, x), _cos(d, x))


def _arctan2(d: Doubles, y: Value, x: Value) -> Value:
    """The angle of (x, y), by the arctangent of the smaller coordinate over the larger."""
    a, b = d.abs(y), d.abs(x)
    steep = d.compare("ogt", a, b)
    low, high = d.select(steep, b, a), d.select(steep, a, b)
    q = d.div(low, high)
    q = d.select(d.compare("oeq", low, high), d.const(1.0), q)  # both infinite
    q = d.select(d.compare("oeq", high, d.zero), d.zero, q)
    # arctan(q) = pi / 4 + arctan((q - 1) / (q + 1)) from tan(pi / 8) on
    upper = d.compare("ogt", q, d.const(math.tan(math.pi / 8)))
    q = d.select(upper, d.div(d.sub(q, d.const(1.0)), d.add(q, d.const(1.0))), q)
    angle = d.mul(q, functions.polynomial(d, d.mul(q, q), _ARCTAN))
    angle = d.select(upper, d.add(angle, d.const(math.pi / 4)), angle)
    angle = d.select(steep, d.sub(d.const(math.pi / 2), angle), angle)
    left = d.compare("olt", d.intrinsic("copysign", d.const(1.0), x), d.zero)  # also where x is -0.0
    angle = d.select(left, d.sub(d.const(math.pi), angle), angle)
    angle = d.intrinsic("copysign", angle, y)
    return d.select(d.compare("uno", x, y), d.add(x, y), angle)


def _rest(d: Doubles, x: Value) -> Value:
    """sqrt(1 - x^2)."""
    one = d.const(1.0)
    return d.sqrt(d.mul(d.sub(one, x), d.add(one, x)))


def _unless_near(d: Doubles, x: Value, value: Value) -> Value:
    """x where it is so small that it is the function's value, else `value` with the sign of x."""
    near = d.compare("olt", d.abs(x), d.const(_NEAR))
    return d.select(near, x, d.intrinsic("copysign", value, x))


def _sinh(d: Doubles, x: Value) -> Value:
    e = _exp(d, d.abs(x))
    return _unless_near(d, x, d.mul(d.sub(e, d.div(d.const(1.0), e)), d.const(0.5)))


def _cosh(d: Doubles, x: Value) -> Value:
    e = _exp(d, d.abs(x))
    return d.mul(d.add(e, d.div(d.const(1.0), e)), d.const(0.5))


def _arcsinh(d: Doubles, x: Value) -> Value:
    return _unless_near(d, x, _log(d, d.add(d.abs(x), d.sqrt(d.muladd(x, x, d.const(1.0))))))


def _arccosh(d: Doubles, x: Value) -> Value:
    one = d.const(1.0)
    y = _log(d, d.add(x, d.sqrt(d.mul(d.sub(x, one), d.add(x, one)))))
    return d.select(d.compare("olt", x, one), d.const(math.nan), y)


def _arctanh(d: Doubles, x: Value) -> Value:
    one, a = d.const(1.0), d.abs(x)
    return _unless_near(d, x, d.mul(_log(d, d.div(d.add(one, a), d.sub(one, a))), d.const(0.5)))


def _cbrt(d: Doubles, x: Value) -> Value:
    return d.intrinsic("copysign", _exp(d, d.mul(_log(d, d.abs(x)), d.const(1 / 3))), x)


def _hypot(d: Doubles, x: Value, y: Value) -> Value:
    endless = d.const(math.inf)
    a, b = d.abs(x), d.abs(y)
    found = d.sqrt(d.muladd(x, x, d.mul(y, y)))
    found = d.select(d.compare("oeq", a, endless), endless, found)  # also beside a NaN
    return d.select(d.compare("oeq", b, endless), endless, found)


def _pow(d: Doubles, x: Value, y: Value) -> Value:
    one, half, a = d.const(1.0), d.mul(y, d.const(0.5)), d.abs(x)
    size = _exp(d, d.mul(y, _log(d, a)))
    size = d.select(d.compare("oeq", a, one), d.select(d.compare("uno", y, y), y, one), size)
    whole = d.compare("oeq", d.intrinsic("rint", y), y)
    odd = d.both(whole, d.compare("une", d.intrinsic("rint", half), half))
    found = d.select(odd, d.intrinsic("copysign", size, x), size)
    real = d.both(d.compare("olt", x, d.zero), d.compare("une", y, d.intrinsic("rint", y)))
    real = d.both(real, d.compare("ogt", x, d.const(-math.inf)))
    found = d.select(real, d.const(math.nan), found)  # a root of a negative number
    found = d.select(d.compare("oeq", x, one), one, found)
    return d.select(d.compare("oeq", y, d.zero), one, found)


def _fmod(d: Doubles, x: Value, y: Value) -> Value:
    """x - n y, which is exact as long as n has 28 bits: larger quotients are taken in steps."""
    f, b = d.f, d.abs(y)
    rest = d.abs(x)

    def step(rest: Value) -> tuple[Value, Value]:
        n = d.intrinsic("trunc", d.div(rest, b))
        first = d.as_double(d.whole("and", d.as_whole(n), d.every_whole(-(1 << 25))))  # 28 bits
        more = d.both(d.compare("oge", n, d.const(_WHOLE)), d.compare("olt", n, d.const(math.inf)))
        return first, more

    again = f.any_of(d.compare("ord", rest, b))
    with f.repeat(again, (rest,)) as steps:
        (old,) = steps.values
        first, more = step(old)
        steps.again(d.fma(first, d.neg(b), old), condition=f.any_of(more))
    (rest,) = steps.results
    rest = d.select(d.compare("olt", rest, d.zero), d.add(rest, b), rest)  # a quotient was rounded up
    rest = d.select(d.compare("oeq", b, d.const(math.inf)), d.abs(x), rest)
    rest = d.select(d.compare("oeq", d.abs(x), d.const(math.inf)), d.const(math.nan), rest)
    rest = d.select(d.compare("uno", x, y), d.add(x, y), rest)
    return d.intrinsic("copysign", rest, x)


_FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "arcsin": lambda d, x: _arctan2(d, x, _rest(d, x)),
    "arccos": lambda d, x: _arctan2(d, _rest(d, x), x),
    "arctan": lambda d, x: _arctan2(d, x, d.const(1.0)),
    "arctan2": _arctan2,
    "sinh": _sinh,
    "cosh": _cosh,
    "arcsinh": _arcsinh,
    "arccosh": _arccosh,
    "arctanh": _arctanh,
    "cbrt": _cbrt,
    "hypot": _hypot,
    "pow": _pow,
    "fmod": _fmod,
}


def _call(name: str, f: Function, *operands: Value) -> Value:
    """The value of a routine of the module, which is written when it is first needed."""
    routine = f"{name}.{f.width}"
    if routine not in f.module.routines:
        given = {f"x{k}": f.vector for k in range(len(operands))}
        made = f.module.routines[routine] = Function(f.module, routine, f.width, given, f.vector)
        d = Doubles(made)
        value = d.narrow(_FUNCTIONS[name](d, *(d.widen(made.arg(n)) for n in given)))
        made.gives(value)
    return f.called(f.vector, routine, *operands)


CALLS: Mapping[str, Callable[..., Value]] = {n: functools.partial(_call, n) for n in _FUNCTIONS}
"""The step of each name as a call: `CALLS[name](f, *operands)`."""
