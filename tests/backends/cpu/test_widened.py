"""Functions of float32 that generated code computes in float64: errors, special values, signs of zero."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite.backends.cpu.compiled.codegen import widened
from mxlite.te.steps import NUMPY
from tests.backends.cpu.test_compiled import compiled_map, cpu, every_float, ulps

__all__ = ["cpu"]

ONE = sorted(set(widened.CALLS) - {"arctan2", "hypot", "pow", "fmod"})
TWO = ["arctan2", "hypot", "pow", "fmod"]
SPECIAL = np.array(
    [0, 0.5, 1, 1.5, 2, 2.5, 3, 2.0**24, 3 * 2.0**24, 3e38, np.inf, np.nan, 1e-45, 1e-38, 1e-7, 88.7, 103.9,
     0.99999994, 1.0000001, 0.41421357, 2.0**-13, 2.0**20, 2.0**100],
    np.float32,
)  # fmt: skip


def wanted(name, *x):
    with np.errstate(all="ignore"):
        if name == "fmod":  # exact
            return NUMPY[name](*x).astype(np.float64)
        return NUMPY[name](*(v.astype(np.float64) for v in x))


def agree(name, found, oracle):
    with np.errstate(all="ignore"):
        rounded = oracle.astype(np.float32)
    ends = ~np.isfinite(rounded)
    np.testing.assert_array_equal(found[ends], rounded[ends])
    zero = rounded == 0
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(rounded[zero]))
    assert ulps(found[~ends], oracle[~ends]) <= (0 if name == "fmod" else 0.51)


@pytest.mark.parametrize("name", ONE)
def test_errors_over_all_arguments(name, cpu):
    x = np.concatenate(
        [SPECIAL, -SPECIAL, np.ascontiguousarray(every_float()[:: 7 if cpu == "this" else 61])]
    )
    agree(name, compiled_map(widened.CALLS[name])(x), wanted(name, x))


@pytest.mark.parametrize("name", TWO)
def test_errors_of_functions_of_two(name, cpu):
    rng = np.random.default_rng(3)
    ends = np.concatenate([SPECIAL, -SPECIAL])
    draws = rng.integers(0, 2**32, (2, 200000), dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = rng.standard_normal((2, 200000)).astype(np.float32)
    near[1, ::2] *= np.float32(1e-9)  # large quotients
    pairs = np.concatenate([np.stack(np.meshgrid(ends, ends)).reshape(2, -1), draws, near], axis=1)
    x, y = np.ascontiguousarray(pairs)
    agree(name, compiled_map(widened.CALLS[name], count=2)(x, y), wanted(name, x, y))
