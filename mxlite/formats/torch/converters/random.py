"""Random numbers, drawn anew in each step by mxlite's own streams: equal in distribution, not in bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...building import GraphValue
from ..node import TorchNode


def bernoulli(n: TorchNode) -> GraphValue:
    """1 with probability `p`, else 0, while it trains; `p` itself afterwards.

    Stochastic depth and dropout that is written out divide it by `p`, which gives 1 then: as with dropout,
    nothing is dropped after training.
    """
    n.ignore("self")
    p = float(n.plain("p", 0.5))
    ones = n.builder.full(n.shape, 1, n.dtype)
    return ones * p if p in (0.0, 1.0) else n.builder.op("Dropout", ones, p=1 - p) * p


def _drawn(operator: str, **numbers: tuple[str, float]) -> Callable[[TorchNode], GraphValue]:
    """`numbers`: of each of the operator's, PyTorch's name and its default."""

    def convert(n: TorchNode) -> GraphValue:
        n.ignore("self")
        given = {ours: float(n.plain(theirs, default)) for ours, (theirs, default) in numbers.items()}
        made = n.builder.op(operator, shape=n.shape, dtype=str(n.dtype), **given)
        return n.builder.reshape(made, n.shape)

    return convert


def normal_around(n: TorchNode) -> GraphValue:
    """normal with a mean or a deviation for each element."""
    b = n.builder
    drawn = b.reshape(b.op("_random_normal", shape=n.shape, dtype=str(n.dtype)), n.shape)
    mean, deviation = (b.cast(n[name], n.dtype) for name in ("mean", "std"))
    return b.binary("add", b.binary("mul", drawn, deviation), mean)


def whole_numbers(n: TorchNode) -> GraphValue:
    """randint: low <= number < high"""
    n.ignore("self")
    low, high = int(n.plain("low", 0)), int(n.plain("high"))
    b = n.builder
    drawn = b.op("_random_randint", low=low, high=high, shape=n.shape, dtype="int64")
    return b.cast(b.reshape(drawn, n.shape), n.dtype)


def permutation(n: TorchNode) -> GraphValue:
    n.ignore("n")
    return n.builder.op("_shuffle", n.builder.constant(np.arange(n.shape[0]), n.dtype))


_normal = _drawn("_random_normal", loc=("mean", 0.0), scale=("std", 1.0))

CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    **dict.fromkeys("rand rand_like".split(), _drawn("_random_uniform")),
    **dict.fromkeys("randn randn_like".split(), _drawn("_random_normal")),
    **dict.fromkeys("normal.float_float normal_functional".split(), _normal),
    **dict.fromkeys("normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor".split(), normal_around),
    **dict.fromkeys("randint randint_like".split(), whole_numbers),
    "randperm": permutation,
    "exponential": _drawn("_random_exponential", lam=("lambd", 1.0)),
    "uniform": _drawn("_random_uniform", low=("from", 0.0), high=("to", 1.0)),
    "bernoulli.default": lambda n: n.builder.op("bernoulli", n["self"]),
    "bernoulli.p": bernoulli,
}
