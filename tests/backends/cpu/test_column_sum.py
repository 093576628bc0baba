"""Sums of columns as generated code."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.compiled.nests import ColumnSum
from mxlite.backends.cpu.runtime import threads

pytestmark = pytest.mark.skipif(not usable(), reason="llvmlite is not installed")


SHAPES = [(1, 1), (3, 17), (1000, 16), (257, 5), (2, 130), (513, 64), (2113, 67), (70_000, 3), (600, 1030)]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("rows, columns", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("adds", [False, True])
def test_sums(rows, columns, dtype, count, adds, monkeypatch):
    monkeypatch.setattr(threads, "_threads", count, raising=False)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, columns)).astype(kind)
    kernel = ColumnSum(rows, columns, kind, np.dtype("float32"), adds)
    guard = np.full(columns + 32, np.nan, "float32")
    out, work = guard[16 : 16 + columns], np.full(kernel.nbytes, 0xFF, np.uint8)
    if adds:
        out[:] = np.arange(columns)
    kernel.connect(x, out, work)()
    want = x.astype("float64").sum(0) + adds * np.arange(columns)
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5 * np.sqrt(rows))
    assert np.isnan(guard[:16]).all() and np.isnan(guard[16 + columns :]).all()


def test_long_sums_keep_their_digits():
    x = np.full((1_000_000, 1), 0.1, "float32")
    kernel = ColumnSum(*x.shape, x.dtype, x.dtype)
    out = np.empty(1, "float32")
    kernel.connect(x, out, np.empty(kernel.nbytes, np.uint8))()
    assert abs(out[0] / (1_000_000 * float(x[0, 0])) - 1) < 1e-4
