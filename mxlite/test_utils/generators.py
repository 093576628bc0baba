"""Statistical tests of random number generators."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.errors import ArgumentError
from ..ndarray import NDArray

Bucket = tuple[float, float]
"""[low, high) of a continuous distribution."""
Generator = Callable[[int], Any]
"""The number of samples -> that many of them, as an NDArray or of numpy."""


def gen_buckets_probs_with_ppf(
    ppf: Callable[[float], float], nbuckets: int
) -> tuple[list[Bucket], list[float]]:
    """`nbuckets` buckets that are equally likely, and their probabilities; `ppf` is the quantile function."""
    ends = [ppf(i / nbuckets) for i in range(nbuckets + 1)]
    return list(itertools.pairwise(ends)), [1 / nbuckets] * nbuckets


def _drawn(generator: Generator, nsamples: int) -> np.ndarray:
    samples = generator(nsamples)
    flat = samples.asnumpy() if isinstance(samples, NDArray) else np.asarray(samples)
    if flat.size != nsamples:
        raise ArgumentError(f"the generator was asked for {nsamples} samples and gave {flat.size}.")
    return flat.reshape(-1)


def mean_check(generator: Generator, mu: float, sigma: float, nsamples: int = 1000000) -> bool:
    """True if the mean of samples is within three of its standard deviations, sigma / sqrt(n), of `mu`."""
    mean = float(_drawn(generator, nsamples).astype(np.float64).mean())
    return bool(abs(mean - mu) < 3 * sigma / math.sqrt(nsamples))


def var_check(generator: Generator, sigma: float, nsamples: int = 1000000) -> bool:
    """True if the variance of normal samples is within three of its standard deviations of sigma**2."""
    variance = float(_drawn(generator, nsamples).astype(np.float64).var(ddof=1))
    return bool(abs(variance - sigma**2) < 3 * math.sqrt(2 * sigma**4 / (nsamples - 1)))


def chi_square_check(
    generator: Generator,
    buckets: Sequence[Bucket] | Sequence[float],
    probs: Sequence[float],
    nsamples: int = 1000000,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Pearson's chi-square test: (p, samples found in each bucket, samples expected there).

    buckets: pairs [low, high), or the values themselves of a discrete distribution; probs: how likely each
    is. p is the probability of a distance like this one or larger.
    """
    if len(buckets) != len(probs):
        raise ArgumentError(f"{len(buckets)} buckets have {len(probs)} probabilities.")
    samples = _drawn(generator, nsamples)
    if isinstance(buckets[0], (tuple, list)):
        counts = np.array([np.count_nonzero((samples >= low) & (samples < high)) for low, high in buckets])  # type: ignore[misc]
    else:
        counts = np.array([np.count_nonzero(samples == value) for value in buckets])
    expected = np.asarray(probs, np.float64) * nsamples
    distance = float(np.sum((counts - expected) ** 2 / expected))
    return _chi_square_above(distance, len(buckets) - 1), counts, expected


def verify_generator(
    generator: Generator,
    buckets: Sequence[Bucket] | Sequence[float],
    probs: Sequence[float],
    nsamples: int = 1000000,
    nrepeat: int = 5,
    success_rate: float = 0.2,
    alpha: float = 0.05,
) -> list[float]:
    """The p of `nrepeat` chi-square tests; AssertionError where less than `success_rate` of them are above
    `alpha`.
    """
    tests = [chi_square_check(generator, buckets, probs, nsamples) for _ in range(nrepeat)]
    passed = sum(p > alpha for p, _, _ in tests)
    if passed < nrepeat * success_rate:
        _, counts, expected = tests[-1]
        raise AssertionError(
            f"{passed} of {nrepeat} chi-square tests passed, wanted {nrepeat * success_rate:g}: p = "
            f"{[p for p, _, _ in tests]}. Of {nsamples} samples the buckets {list(buckets)} have "
            f"{counts.tolist()}, expected {expected.tolist()}."
        )
    return [p for p, _, _ in tests]


def _chi_square_above(x: float, degrees: int) -> float:
    """The share of the chi-square distribution above x: the upper incomplete gamma function Q(degrees / 2,
    x / 2).

    By its series below a + 1 and its continued fraction above, as in W. Press et al., 2007, "Numerical
    Recipes", 6.2; both to float64's precision.
    """
    a, z = degrees / 2, x / 2
    if a == 0 or z <= 0:
        return 1.0 if z <= 0 else 0.0
    front = math.exp(a * math.log(z) - z - math.lgamma(a))
    if z < a + 1:
        term = total = 1 / a
        n = a
        while abs(term) > abs(total) * 1e-16:
            n += 1
            term *= z / n
            total += term
        return 1 - front * total
    b = z + 1 - a
    c, d = math.inf, 1 / b
    fraction = d
    for i in range(1, 10000):
        step = -i * (i - a)
        b += 2
        d = 1 / (step * d + b)
        c = b + step / c
        fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * fraction
