"""The generated code that finds the largest or smallest few numbers of each row."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import usable

pytestmark = pytest.mark.skipif(not usable(), reason="generated code needs llvmlite")

SPECIAL = np.array([0.0, -0.0, 1, 2, np.nan, -np.nan, np.inf, -np.inf])


def _rows(rng, kind, shape):
    if kind == "special":
        return rng.choice(SPECIAL, shape)
    return np.sort(rng.standard_normal(shape), axis=-1)[..., :: -1 if kind == "falling" else 1]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape, axis", [((7, 100), -1), ((3, 4, 33), 2), ((50,), None), ((5, 3), 1)])
def test_they_are_numpys_in_order_and_equals_come_in_theirs(dtype, shape, axis):
    rng = np.random.default_rng(0)
    for kind in ("special", "rising", "falling"):
        x = _rows(rng, kind, shape).astype(dtype)
        values, is_nan = x.astype(float), np.isnan(x)
        finite = np.where(is_nan, np.inf, values)
        positions = np.broadcast_to(np.arange(shape[-1]), shape)
        for k in {1, 3, min(32, shape[-1])}:
            for ascends in (False, True):
                keys = (positions, is_nan, finite) if ascends else (positions, ~is_nan, -finite)
                want = np.lexsort(keys, axis=-1)[..., :k]
                data = mx.nd.array(x, dtype=dtype)
                found = mx.nd.topk(data, axis=axis, k=k, ret_typ="both", is_ascend=ascends)
                np.testing.assert_array_equal(found[1].asnumpy(), want, err_msg=f"{kind} {k} {ascends}")
                np.testing.assert_array_equal(found[0].asnumpy(), np.take_along_axis(x, want, -1))


def test_a_gradient_goes_where_the_numbers_came_from():
    x = mx.nd.array([[1.0, 5, 3, 5], [2, 2, 0, -1]])
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.topk(x, k=2, ret_typ="value")
    y.backward(mx.nd.array([[1.0, 2], [3, 4]]))
    assert x.grad.asnumpy().tolist() == [[0, 1, 0, 2], [3, 4, 0, 0]]
