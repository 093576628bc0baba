"""The gamma function, its logarithm and the logarithm's derivatives, by numpy alone.

Arguments are moved up by ``gamma(x + 1) = x * gamma(x)`` until Stirling's asymptotic series holds to the last
bit, negative ones first mirrored by Euler's ``gamma(x) * gamma(1 - x) = pi / sin(pi * x)``: M. Abramowitz and
I. Stegun, 1964, "Handbook of mathematical functions", chapter 6. Near 1 and 2, where the logarithm is 0, it
is its Taylor series. Everything is done in float64, in small pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from ...core.errors import OpAttributeError
from ...core.record import record
from ..blocks import pieces
from ..formula import formula
from .error_function import SMALL
from .unary import Real

_ENOUGH = 12  # the least argument for Stirling's series
_NARROW = 6, 5, 13  # for results of four bytes and two: the least argument, and terms of both series
_EULER = 0.57721566490153286061
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)
_ZETA = (  # zeta(k) - 1 from k = 2 on
    0.6449340668482264, 0.2020569031595943, 0.08232323371113819, 0.03692775514336993, 0.01734306198444914,
    0.008349277381922827, 0.00407735619794434, 0.0020083928260822143, 0.0009945751278180853,
    0.0004941886041194645, 0.0002460865533080483, 0.00012271334757848915, 6.124813505870483e-05,
    3.058823630702049e-05, 1.528225940865187e-05, 7.637197637899763e-06, 3.81729326499984e-06,
    1.908212716553939e-06, 9.539620338727962e-07, 4.769329867878064e-07, 2.38450502727733e-07,
    1.1921992596531106e-07, 5.960818905125948e-08, 2.980350351465228e-08, 1.4901554828365043e-08,
    7.45071178983543e-09,
)  # fmt: skip


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """c[0] + c[1] * x + ..., of two coefficients at least."""
    total = coefficients[-1] * x + coefficients[-2]
    for c in coefficients[-3::-1]:
        total = total * x + c
    return total


def _precision(itemsize: int) -> tuple[int, int, int]:
    """The least argument for Stirling's series, the number of its terms, and of Taylor's."""
    return _NARROW if itemsize < 8 else (_ENOUGH, len(_BERNOULLI), len(_ZETA))


def _stirling(z: Any, count: int) -> Any:
    """The difference of ``log gamma(z)`` and ``(z - 1/2) * log(z) - z + log(2 * pi) / 2``, for large z."""
    terms = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI[:count], 1))
    return _polynomial(1.0 / (z * z), terms) / z


def _sine(xp: Any, x: Any) -> Any:
    """sin(pi * x), after subtraction of the whole part of x."""
    whole = xp.rint(x) + 0.0  # never -0.0, so that of -0.0 stays -0.0
    sign = 1.0 - 2.0 * xp.fmod(xp.absolute(whole), 2.0)
    return sign * xp.sin(math.pi * (x - whole))


def _raised(xp: Any, z: Any, least: int) -> Any:
    """Step by step: z below `least` and a mask of those elements; z is changed in place."""
    for _ in range(least):
        low = z < least
        yield low
        z += low


@formula
def gamma_values(xp: Any, x: Any, itemsize: int = 8) -> Any:
    """gamma of a small float64 array; nan at negative whole numbers. `itemsize`: of the result's type."""
    enough, count, _ = _precision(itemsize)
    mirrored = x < 0.5
    z = xp.minimum(xp.where(mirrored, 1.0 - x, x), 180.0)  # beyond, it overflows
    product = xp.ones_like(z)
    for low in _raised(xp, z, enough):
        product *= xp.where(low, z, 1.0)
    half = xp.power(z, 0.5 * z - 0.25)
    y = half * xp.exp(_stirling(z, count) - z) * half * math.sqrt(2 * math.pi) / product
    y = xp.where(mirrored, math.pi / (_sine(xp, x) * y), y)
    return xp.where((x < 0) & (x == xp.floor(x)), xp.nan, y)


def _near_two(z: Any, count: int) -> Any:
    """log gamma(2 + z) for -0.5 <= z <= 0.5."""
    terms = tuple(c * (-1.0) ** k / k for k, c in enumerate(_ZETA[:count], 2))
    return z * (1.0 - _EULER + z * _polynomial(z, terms))


@formula
def gammaln_values(xp: Any, x: Any, itemsize: int = 8) -> Any:
    """log |gamma| of a small float64 array; infinite at 0 and negative whole numbers."""
    enough, count, near_count = _precision(itemsize)
    mirrored = x < 0.5
    y = xp.where(mirrored, 1.0 - x, x)
    z = y + 0.0
    product = xp.ones_like(z)
    for low in _raised(xp, z, enough):
        product *= xp.where(low, z, 1.0)
    far = (z - 0.5) * (xp.log(z) - 1.0) + (_stirling(z, count) + (0.5 * math.log(2 * math.pi) - 0.5))
    # Near 0 the mirror would cancel digits; gamma(x) = gamma(2 + x) / (x * (1 + x)) does not.
    small = mirrored & (x >= -0.25)
    rest = xp.where(small, x, xp.where(y <= 1.5, y - 1.0, y - 2.0))
    near = _near_two(xp.clip(rest, -0.5, 0.5), near_count)
    product = xp.where(y <= 1.5, y, xp.where(y <= 2.5, 1.0, product))
    product = xp.where(small, xp.absolute(x) * (1.0 + x), product)
    total = xp.where(small | (y <= 2.5), near, far) - xp.log(product)
    mirror = xp.log(math.pi / xp.absolute(_sine(xp, x))) - total
    total = xp.where(mirrored & ~small, mirror, total)
    pole = mirrored & (x == xp.floor(x))  # and where the mirror's two terms are infinite
    return xp.where(xp.isinf(x) | pole, xp.inf, total)


@formula
def digamma_values(xp: Any, x: Any, itemsize: int = 8) -> Any:
    """The derivative of log gamma, of a small float64 array; nan at negative whole numbers."""
    enough, count, _ = _precision(itemsize)
    mirrored = x < 0
    z = xp.where(mirrored, 1.0 - x, x)
    total = xp.zeros_like(z)
    for low in _raised(xp, z, enough):
        total -= xp.where(low, 1.0 / z, 0.0)
    square = 1.0 / (z * z)
    terms = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI[:count], 1))
    total += xp.log(z) - 0.5 / z - square * _polynomial(square, terms)
    part = x - xp.rint(x)
    total = xp.where(mirrored, total - math.pi / xp.tan(math.pi * part), total)
    return xp.where(mirrored & (part == 0), xp.nan, total)


def polygamma_values(xp: Any, n: int, x: Any) -> Any:
    """The n-th derivative of digamma, of a small float64 array; nan at negative whole numbers."""
    if n == 0:
        return digamma_values(xp, x)
    mirrored = x < 0
    z = xp.where(mirrored, 1.0 - x, xp.absolute(x))  # powers of -0.0 have signs
    total = xp.zeros_like(z)
    for low in _raised(xp, z, _ENOUGH + n):
        total += xp.where(low, xp.power(z, -(n + 1.0)), 0.0)
    total *= math.factorial(n)
    square = 1.0 / (z * z)
    terms = tuple(
        b * (math.factorial(2 * k + n - 1) / math.factorial(2 * k)) for k, b in enumerate(_BERNOULLI, 1)
    )
    series = math.factorial(n - 1) + math.factorial(n) / (2.0 * z) + square * _polynomial(square, terms)
    total += series * xp.power(z, -float(n))
    total *= (-1.0) ** (n + 1)
    # The mirror is the n-th derivative of -pi * cot(pi * x), a polynomial in the cotangent.
    row = [0.0, 1.0]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(row)][1:]
        row = [-s for s in slope] + [0.0, 0.0]
        for k, s in enumerate(slope):
            row[k + 2] -= s
    part = x - xp.rint(x)
    mirror = math.pi ** (n + 1) * _polynomial(1.0 / xp.tan(math.pi * part), tuple(row))
    total = xp.where(mirrored, (-1.0) ** n * total - mirror, total)
    return xp.where(mirrored & (part == 0), xp.nan, total)


class _Gamma(Real):
    """Base: a function computed in float64, in pieces."""

    abstract = True
    backward_in_place = {"d_data": ("d_out", "data")}
    flops_per_output = 100
    values: ClassVar[Callable[..., Any]]  # of float64, good enough for numbers of `itemsize` bytes

    @classmethod
    def forward(cls, xp, a, data, *, out):
        for x, into in pieces(data, out, size=SMALL):
            into[...] = cls.values(xp, x.astype("float64"), itemsize=x.dtype.itemsize)


class gamma(_Gamma):
    """Gamma function, ``integral of t**(data - 1) * exp(-t)``: factorials at whole numbers.

    data: (...)  ->  out: (...), same shape and dtype; nan at negative whole numbers. Gradient
    ``d_out * out * digamma(data)``.
    """

    backward_in_place = {"d_data": ("d_out", "data", "out")}
    values = staticmethod(gamma_values)

    @staticmethod
    def backward(xp, a, d_out, data, out, *, d_data):
        for d, x, y, into in pieces(d_out, data, out, d_data, size=SMALL):
            slope = digamma_values(xp, x.astype("float64"), itemsize=x.dtype.itemsize)
            into[...] = d * (y * slope)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_mul(heads["out"], w.elemwise_mul(outs["out"], w.digamma(ins["data"])))}


class gammaln(_Gamma):
    """Logarithm of the size of the gamma function, ``out = log(|gamma(data)|)``.

    data: (...)  ->  out: (...), same shape and dtype; infinite at 0 and negative whole numbers. Gradient
    ``d_out * digamma(data)``.
    """

    values = staticmethod(gammaln_values)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data, size=SMALL):
            into[...] = d * digamma_values(xp, x.astype("float64"), itemsize=x.dtype.itemsize)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_mul(heads["out"], w.digamma(ins["data"]))}


class digamma(_Gamma):
    """Derivative of `gammaln`; nan at negative whole numbers.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * polygamma(data, n=1)``. As PyTorch's
    torch.special.digamma.
    """

    values = staticmethod(digamma_values)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data, size=SMALL):
            into[...] = d * polygamma_values(xp, 1, x.astype("float64"))

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_mul(heads["out"], w.polygamma(ins["data"], n=1))}


class polygamma(_Gamma):
    """The `n`-th derivative of `digamma`, `n` from 0 to 20.

    data: (...)  ->  out: (...), same shape and dtype; nan at negative whole numbers. Gradient
    ``d_out * polygamma(data, n + 1)``. Elsewhere as PyTorch's torch.special.polygamma.
    """

    @record
    class Attrs:
        n: int

        def __post_init__(self) -> None:
            if not 0 <= self.n <= 20:
                raise OpAttributeError(f"parameter 'n' must be 0 to 20, got {self.n}.")

    @staticmethod
    def forward(xp, a, data, *, out):
        for x, into in pieces(data, out, size=SMALL):
            into[...] = polygamma_values(xp, a.n, x.astype("float64"))

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data, size=SMALL):
            into[...] = d * polygamma_values(xp, a.n + 1, x.astype("float64"))

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_mul(heads["out"], w.polygamma(ins["data"], n=a.n + 1))}
