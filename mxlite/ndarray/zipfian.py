"""Candidates for sampled losses, drawn by the order of their frequency."""

from __future__ import annotations

import math
from typing import Any

from ..core import Context, OpAttributeError
from .ndarray import NDArray
from .random import uniform


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


def log_range(num_sampled: int, range_max: int) -> float:
    """The logarithm of range_max + 1."""
    if num_sampled < 1 or range_max < 1:
        raise OpAttributeError(
            f"rand_zipfian: num_sampled and range_max must be at least 1, got {num_sampled} and {range_max}."
        )
    return math.log(range_max + 1)


def zipfian_of(drawn: Any, true_classes: Any, num_sampled: int, range_max: int) -> tuple[Any, Any, Any]:
    """What `rand_zipfian` gives, of numbers uniform in [0, log(range_max + 1)); arrays or symbols."""
    samples = (drawn.exp() - 1).astype("int64") % range_max
    share = num_sampled / math.log(range_max + 1)

    def expected(classes: Any) -> Any:
        classes = classes.astype("float64")
        return ((classes + 2.0) / (classes + 1.0)).log() * share

    return samples, expected(true_classes), expected(samples)
