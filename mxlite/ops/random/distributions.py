"""Samplers of many distributions, which draw each element from its own counters.

A sampler gets the numbers of the elements to draw and one parameter of each (float64 arrays), and returns
float64. If it rejects, it draws again for those elements only, with the next tag
(`RandomStream.element_bits`): so an element's value depends on (seed, step, stream, element) and its
parameters alone, not on its neighbours or on how the array is cut into pieces.

    gamma      G. Marsaglia, W. W. Tsang, 2000, "A simple method for generating gamma variables"
    poisson    W. Hoermann, 1993, "The transformed rejection method for generating Poisson random
               variables" (PTRS), and inversion for means below 10

A parameter outside its range gives nan. A sampler has no control flow on values of its own: such steps
go through its Source. So code can be generated from it, and a backend may draw faster (`RandomStream.draw`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import lgamma, log, pi
from typing import Any

import numpy as np

from .philox import RandomStream

PIECE = 1024  # elements drawn at a time: a float64 temporary has 8 KiB

WORK_BYTES = RandomStream.element_work_bytes(PIECE)
"""Scratch of `draw`."""

_ATTEMPTS = 2048  # tags for one purpose; so many rejections in a row do not happen
_GAMMA, _BOOST, _POISSON, OTHER = (1 + i * _ATTEMPTS for i in range(4))
_LOG_FACTORIALS = np.array([lgamma(k + 1) for k in range(16)])
_SMALL = 10.0  # means below this use inversion


class UniformSource:
    """Uniform numbers for elements, from one node's stream."""

    def __init__(self, xp: Any, rng: RandomStream, work: Any) -> None:
        self.xp, self.rng, self.work = xp, rng, work

    def uniform(self, elements: Any, tag: int) -> Any:
        """Four numbers each, (n, 4) float64, in the open interval (0, 1), of 32 bits."""
        bits = self.rng.element_bits(self.xp, elements, tag, self.work)
        return (bits + 0.5) * 2.0**-32

    def accepted(
        self, attempt: Callable[..., Any], elements: Any, tag: int, where: Any, *parameters: Any
    ) -> Any:
        """The first accepted number of each element: attempt(xp, u, *parameters) gives numbers, computed
        from `uniform` ones, and a mask of accepted ones. nan outside of `where`.
        """
        value = self.xp.full(len(elements), self.xp.nan)
        left = self.xp.flatnonzero(where)
        while left.size:
            u = self.uniform(elements[left], tag)
            numbers, is_accepted = attempt(self.xp, u, *(p[left] for p in parameters))
            value[left[is_accepted]] = numbers[is_accepted]
            left = left[~is_accepted]
            tag += 1
        return value

    def changed(
        self, f: Callable[..., Any], value: Any, elements: Any, tag: int, where: Any, *parameters: Any
    ) -> Any:
        """`value`, replaced by f(source, u, value, *parameters) in `where`."""
        some = self.xp.flatnonzero(where)
        if some.size:
            u = self.uniform(elements[some], tag)
            value[some] = f(self, u, value[some], *(p[some] for p in parameters))
        return value

    def repeated(self, step: Callable[..., Any], going: Any, most: int, *state: Any) -> Any:
        """The state after `most` steps, fewer if no element is `going` on: step(k, going, *state)
        with k = 0, 1, ... returns `going` and the next state.
        """
        k = 0
        while k < most and going.any():
            going, *state = step(k, going, *state)
            k += 1
        return state


Sampler = Callable[..., Any]


def draw(xp: Any, sampler: Sampler, out: Any, rng: Any, work: Any, *parameters: Any) -> None:
    """Fill `out`. parameters: numbers, or arrays of which each element serves as many neighbours of `out`."""
    if rng.draw(sampler, out, *parameters):
        return
    flat, source = out.reshape(-1), UniformSource(xp, rng, work)
    arrays = [p.reshape(-1) if hasattr(p, "reshape") else None for p in parameters]
    for begin in range(0, flat.size, PIECE):
        elements = xp.arange(begin, min(begin + PIECE, flat.size))
        of = [
            xp.full(len(elements), float(p))
            if x is None
            else x[elements // (flat.size // x.size)].astype("float64")
            for p, x in zip(parameters, arrays)
        ]
        xp.copyto(flat[begin : begin + PIECE], sampler(source, elements, *of), casting="unsafe")


def uniform(source: UniformSource, elements: Any, low: Any, high: Any) -> Any:
    """Uniform numbers in [low, high)."""
    return low + (high - low) * (source.uniform(elements, OTHER)[:, 0] - 2.0**-33)


def normal(source: UniformSource, elements: Any, mean: Any, deviation: Any) -> Any:
    """Normal numbers by the method of Box and Muller."""
    xp = source.xp
    return xp.where(deviation >= 0, mean + deviation * _normal(xp, source.uniform(elements, OTHER)), xp.nan)


def _normal(xp: Any, u: Any) -> Any:
    return xp.sqrt(-2 * xp.log(u[:, 0])) * xp.cos(2 * pi * u[:, 1])


def exponential(source: UniformSource, elements: Any, rate: Any) -> Any:
    """Exponential numbers, density rate * exp(-rate * x)."""
    xp = source.xp
    return xp.where(rate > 0, -xp.log(source.uniform(elements, OTHER)[:, 0]) / rate, xp.nan)


def bernoulli(source: UniformSource, elements: Any, probability: Any) -> Any:
    """1 with that probability, else 0."""
    xp = source.xp
    valid = (probability >= 0) & (probability <= 1)
    return xp.where(valid, source.uniform(elements, OTHER)[:, 0] < probability, xp.nan)


def gamma(source: UniformSource, elements: Any, shape: Any, scale: Any) -> Any:
    """Gamma numbers, density x^(shape-1) * exp(-x/scale); shape 0 gives 0."""
    xp = source.xp
    raised = xp.where(shape < 1, shape + 1, shape)
    value = source.accepted(_gamma, elements, _GAMMA, xp.isfinite(raised) & (raised >= 1), raised)
    value = source.changed(_boosted, value, elements, _BOOST, shape < 1, shape)
    return xp.where((shape >= 0) & (scale >= 0), value * scale, xp.nan)


def _gamma(xp: Any, u: Any, shape: Any) -> tuple[Any, Any]:
    """An attempt at gamma numbers, for shapes of at least 1."""
    d = shape - 1 / 3
    x = _normal(xp, u)
    v = (1 + x / xp.sqrt(9 * d)) ** 3
    inside = v > 0
    log_v = xp.log(xp.where(inside, v, 1))
    return d * v, inside & (xp.log(u[:, 2]) < 0.5 * x * x + d * (1 - v + log_v))


def _boosted(source: UniformSource, u: Any, value: Any, shape: Any) -> Any:
    """A gamma number of shape a is one of shape a + 1 times u^(1/a)."""
    xp = source.xp
    return value * xp.exp(xp.log(u[:, 0]) / shape)


def poisson(source: UniformSource, elements: Any, mean: Any) -> Any:
    """Poisson numbers, probability mean^k * exp(-mean) / k!."""
    xp = source.xp
    value = source.accepted(_poisson, elements, _POISSON, xp.isfinite(mean) & (mean >= _SMALL), mean)
    small = (mean >= 0) & (mean < _SMALL)
    return source.changed(_invert_poisson, value, elements, _POISSON, small, mean)


def _poisson(xp: Any, u: Any, mean: Any) -> tuple[Any, Any]:
    """An attempt at Poisson numbers, for means of at least _SMALL."""
    b = 0.931 + 2.53 * xp.sqrt(mean)
    a = -0.059 + 0.02483 * b
    horizontal, vertical = u[:, 0] - 0.5, u[:, 1]
    edge = 0.5 - xp.abs(horizontal)
    k = xp.floor((2 * a / edge + b) * horizontal + mean + 0.43)
    surely = (edge >= 0.07) & (vertical <= 0.9277 - 3.6224 / (b - 2))
    possible = (k >= 0) & ~((edge < 0.013) & (vertical > edge))
    height = xp.log(vertical * (1.1239 + 1.1328 / (b - 3.4)) / (a / (edge * edge) + b))
    below = height <= k * xp.log(mean) - mean - _log_factorial(xp, xp.maximum(k, 0))
    return k, surely | (possible & below)


def _invert_poisson(source: UniformSource, u: Any, _: Any, mean: Any) -> Any:
    """The smallest k whose cumulated probability exceeds u, which has 64 bits, from the first two numbers."""
    xp = source.xp
    rest, probability = u[:, 0] + (u[:, 1] - 0.5) * 2.0**-32, xp.exp(-mean)

    def step(k: Any, going: Any, rest: Any, probability: Any, count: Any) -> Any:
        rest = xp.where(going, rest - probability, rest)
        probability = probability * mean / (k + 1)
        return going & (rest >= probability), rest, probability, count + going

    # The mean is below 10: the probability beyond 100 is less than 2**-53.
    *_, count = source.repeated(step, rest >= probability, 100, rest, probability, xp.zeros(len(mean)))
    return count


def _log_factorial(xp: Any, k: Any) -> Any:
    """log(k!): a table below 16, Stirling's series from there, good to 1e-14."""
    n = xp.maximum(k, 1) + 1.0
    inverse = 1 / (n * n)
    series = (1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse / 1680))) / n
    large = (n - 0.5) * xp.log(n) - n + 0.5 * log(2 * pi) + series
    return xp.where(k < 16, xp.take(_LOG_FACTORIALS, xp.minimum(k, 15).astype("int64")), large)


def negative_binomial(source: UniformSource, elements: Any, k: Any, p: Any) -> Any:
    """Successes before `k` failures, each of probability p: a Poisson number whose mean is a gamma number."""
    xp = source.xp
    valid = (p > 0) & (p <= 1) & (k >= 0)
    safe = xp.where(valid, p, 1)
    return xp.where(valid, poisson(source, elements, gamma(source, elements, k, (1 - safe) / safe)), xp.nan)


def generalized_negative_binomial(source: UniformSource, elements: Any, mean: Any, dispersion: Any) -> Any:
    """Numbers with variance mean + dispersion * mean^2; dispersion 0 is Poisson's."""
    xp = source.xp
    spread = dispersion > 0
    safe = xp.where(spread, dispersion, 1)
    rate = xp.where(spread, gamma(source, elements, 1 / safe, mean * safe), mean)
    return xp.where((mean >= 0) & (dispersion >= 0), poisson(source, elements, rate), xp.nan)


LAWS: dict[Sampler, str] = {
    uniform: "Uniform random numbers in [`low`, `high`).",
    normal: "Normal random numbers of mean `mu` and standard deviation `sigma`.",
    exponential: "Exponential random numbers of rate `lam`, density lam * exp(-lam * x).",
    gamma: "Gamma random numbers, density x^(alpha-1) * exp(-x/beta): shape `alpha`, scale `beta`.",
    poisson: "Poisson random numbers of mean `lam`, as floating numbers.",
    negative_binomial: (
        "Negative binomial random numbers: successes before `k` failures, a failure having probability `p`."
    ),
    generalized_negative_binomial: (
        "Negative binomial random numbers of mean `mu` and variance mu + alpha * mu^2."
    ),
}
"""The first lines of the descriptions of a sampler's operators, with the names of their parameters."""
