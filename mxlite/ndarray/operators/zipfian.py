"""Candidate classes for sampled losses, drawn from a log-uniform (Zipfian) distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import Context, OpAttributeError, ShapeError
from ..ndarray import NDArray
from ..random import uniform
from .creation import array


def rand_zipfian(
    true_classes: NDArray, num_sampled: int, range_max: int, ctx: Context | None = None
) -> tuple[NDArray, NDArray, NDArray]:
    """Classes k in [0, range_max) with probability log((k + 2) / (k + 1)) / log(range_max + 1).

    true_classes: (N,)  ->  samples: (num_sampled,) int64, drawn with replacement; how often each of the true
    classes, (N,) float64, and of the samples, (num_sampled,) float64, is expected among so many. Frequent
    classes come first.
    """
    drawn = uniform(0, log_range(num_sampled, range_max), shape=(num_sampled,), ctx=ctx, dtype="float64")
    return zipfian_of(drawn, true_classes, num_sampled, range_max)


def sample_unique_zipfian(range_max: int, shape: tuple[int, int]) -> list[NDArray]:
    """Classes as of `rand_zipfian`, drawn until there are enough different ones; waits.

    shape (N, K)  ->  samples: (N, K) int64, no class twice in a row; how many were drawn for it: (N,) int64.
    `mx.nd._internal._sample_unique_zipfian`, for MXNet's sake.
    """
    if len(shape) != 2 or shape[1] > range_max:
        raise ShapeError(f"shape must be (rows, at most {range_max} different classes), got {tuple(shape)}.")
    rows = [_unique_row(range_max, shape[1]) for _ in range(shape[0])]
    samples = np.array([r for r, _ in rows], "int64").reshape(shape)
    return [array(samples, dtype="int64"), array(np.array([n for _, n in rows], "int64"), dtype="int64")]


def _unique_row(range_max: int, count: int) -> tuple[np.ndarray, int]:
    """The first `count` different classes of a sequence of draws, and how many draws that took."""
    drawn = np.empty(0, "int64")
    while True:
        numbers = uniform(0, log_range(count, range_max), shape=(2 * count + len(drawn),), dtype="float64")
        more = np.expm1(numbers.asnumpy()).astype("int64") % range_max
        drawn = np.concatenate([drawn, more])
        first = np.sort(np.unique(drawn, return_index=True)[1])
        if len(first) >= count:
            return drawn[first[:count]], int(first[count - 1]) + 1


def log_range(num_sampled: int, range_max: int) -> float:
    """The logarithm of range_max + 1."""
    if num_sampled < 1 or range_max < 1:
        raise OpAttributeError(
            f"rand_zipfian: num_sampled and range_max must be at least 1, got {num_sampled} and {range_max}."
        )
    return math.log(range_max + 1)


def zipfian_of(drawn: Any, true_classes: Any, num_sampled: int, range_max: int) -> tuple[Any, Any, Any]:
    """The result of `rand_zipfian` for uniform numbers in [0, log(range_max + 1)); arrays or symbols."""
    samples = (drawn.exp() - 1).astype("int64") % range_max
    share = num_sampled / math.log(range_max + 1)

    def expected(classes: Any) -> Any:
        classes = classes.astype("float64")
        return ((classes + 2.0) / (classes + 1.0)).log() * share

    return samples, expected(true_classes), expected(samples)
