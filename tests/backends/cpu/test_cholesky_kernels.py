"""The generated code for Cholesky factors of many small matrices, and for their gradients."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import usable
from mxlite.core.errors import MXLiteError

pytestmark = pytest.mark.skipif(not usable(), reason="generated code needs llvmlite")


def _definite(rng, count, n):
    a = rng.standard_normal((count, n, n))
    return a @ a.swapaxes(1, 2) + n * np.eye(n)


def _turned(x, lower):
    return x if lower else x.swapaxes(-1, -2)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("count, n", [(1, 1), (1, 32), (5, 3), (16, 7), (37, 17)])
def test_factors_are_numpys_and_read_the_symmetric_part(count, n, lower):
    rng = np.random.default_rng(n)
    a = _definite(rng, count, n)
    odd = rng.standard_normal(a.shape)
    given = a + odd - odd.swapaxes(1, 2)
    got = mx.nd.linalg_potrf(mx.nd.array(given.astype("f")), lower=lower).asnumpy()
    want = _turned(np.linalg.cholesky(a), lower)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert not _turned(got, lower)[:, np.triu(np.ones((n, n), bool), 1)].any()


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("count, n", [(1, 2), (19, 5), (3, 32)])
def test_gradients_are_those_of_finite_differences(count, n, lower):
    rng = np.random.default_rng(n)
    a, head = _definite(rng, count, n), rng.standard_normal((count, n, n))
    x = mx.nd.array(a.astype("f"))
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.linalg_potrf(x, lower=lower)
    y.backward(mx.nd.array(head.astype("f")))
    got, step = x.grad.asnumpy(), 1e-5

    def loss(moved):
        return (_turned(np.linalg.cholesky(moved), lower) * head).sum((1, 2))

    np.testing.assert_array_equal(got, got.swapaxes(1, 2))
    for _ in range(6):
        direction = rng.standard_normal((count, n, n))
        direction += direction.swapaxes(1, 2)
        slope = (loss(a + step * direction) - loss(a - step * direction)) / (2 * step)
        np.testing.assert_allclose((got * direction).sum((1, 2)), slope, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("which", [0, 16, 20])
def test_a_matrix_that_is_not_definite_is_an_error_each_time(which):
    a = _definite(np.random.default_rng(0), 21, 4).astype("f")
    good = mx.nd.array(a)
    a[which, 3, 3] = -1
    for _ in range(2):
        with pytest.raises(MXLiteError, match="not positive definite"):
            mx.nd.linalg_potrf(mx.nd.array(a)).wait_to_read()
        mx.nd.linalg_potrf(good).wait_to_read()
