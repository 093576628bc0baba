"""The normal distribution function, by W. J. Cody, 1969, "Rational Chebyshev approximations for the error
function": relative error below 1e-15 over the whole line. numpy has no erf.

    t = |x| / sqrt(2):   erf(t) = t * R1(t^2)                                         t <= 0.46875
                         erfc(t) = exp(-t^2) * R2(t)                        0.46875 < t <= 4
                         erfc(t) = exp(-t^2) / t * (1 / sqrt(pi) - R3(1 / t^2) / t^2)       4 < t
"""

from __future__ import annotations

import math
from typing import Any

PIECE = 2048  # numbers at a time, in float64: every temporary is at most 16 KiB

_P1 = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_Q1 = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_P2 = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_Q2 = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_P3 = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
_Q3 = (
    1.0,
    2.56852019228982242e0,
    1.87295284992346725e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)


def normal_cdf(xp: Any, x: Any, out: Any) -> None:
    """out = (1 + erf(x / sqrt(2))) / 2, the share of a standard normal distribution below x.

    x and out: contiguous, of one size; `out` may be x. Computed in float64.
    """
    source, target = x.reshape(-1), out.reshape(-1)
    for i in range(0, source.size, PIECE):
        _piece(xp, source[i : i + PIECE].astype("float64"), target[i : i + PIECE])


def _piece(xp: Any, x: Any, out: Any) -> None:
    t = xp.absolute(x)
    xp.multiply(t, math.sqrt(0.5), out=t)
    found = _tail(xp, xp.minimum(t, 4.0))
    far = xp.flatnonzero(t > 4)
    if far.size:
        found[far] = _far_tail(xp, xp.minimum(t[far], 40.0))
    near = xp.flatnonzero(t <= 0.46875)
    if near.size:
        found[near] = 1 - _centre(xp, t[near])
    xp.multiply(found, 0.5, out=found)  # of erfc(|x| / sqrt(2)): what lies beyond |x| on one side
    above = x > 0
    xp.subtract(1, found, out=found, where=above)
    bad = xp.flatnonzero(x != x)
    found[bad] = xp.nan
    xp.copyto(out, found, casting="unsafe")


def _horner(xp: Any, coefficients: tuple[float, ...], x: Any) -> Any:
    total = xp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        xp.multiply(total, x, out=total)
        xp.add(total, c, out=total)
    return total


def _ratio(xp: Any, above: tuple[float, ...], below: tuple[float, ...], x: Any) -> Any:
    value = _horner(xp, above, x)
    xp.divide(value, _horner(xp, below, x), out=value)
    return value


def _centre(xp: Any, t: Any) -> Any:
    """erf(t)."""
    return t * _ratio(xp, _P1, _Q1, t * t)


def _tail(xp: Any, t: Any) -> Any:
    """erfc(t)."""
    value = _ratio(xp, _P2, _Q2, t)
    xp.multiply(value, _exp_minus_square(xp, t), out=value)
    return value


def _far_tail(xp: Any, t: Any) -> Any:
    """erfc(t)."""
    inverse = 1 / (t * t)
    value = _ratio(xp, _P3, _Q3, inverse)
    xp.multiply(value, inverse, out=value)
    xp.subtract(1 / math.sqrt(math.pi), value, out=value)
    xp.divide(value, t, out=value)
    with xp.errstate(under="ignore"):
        xp.multiply(value, _exp_minus_square(xp, t), out=value)
    return value


def _exp_minus_square(xp: Any, t: Any) -> Any:
    """exp(-t^2), t^2 split so that the large part of it is exact: t's error would count 2 t^2 times."""
    coarse = xp.trunc(t * 16)
    xp.divide(coarse, 16, out=coarse)
    rest = (t - coarse) * (t + coarse)
    xp.negative(rest, out=rest)
    xp.exp(rest, out=rest)
    xp.multiply(coarse, coarse, out=coarse)
    xp.negative(coarse, out=coarse)
    with xp.errstate(under="ignore"):
        xp.exp(coarse, out=coarse)
        xp.multiply(rest, coarse, out=rest)
    return rest
