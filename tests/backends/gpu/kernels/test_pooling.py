"""Pooling of the GPU, run on the CPU: shapes and types that the table of rows lacks."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite import ops
from tests.backends.gpu.gpu_case import agree, BACKEND
from tests.conformance.case import apart, Case
from tests.conformance.conformance import Call, kernels_of
from tests.emulators.emulated_device import compiler

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

SQUARE = dict(kernel=(3, 3), stride=(2, 2), pad=(1, 1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_packs_of_channels(kind, dtype):
    """Whole packs of 16 bytes, at sizes where blocks go round."""
    data = (3, 19, 22, 32)
    case = Case(ops.PoolingChannelsLast, SQUARE | {"pool_type": kind}, [data], make={"data": apart})
    if kind == "max" and dtype == "bfloat16":  # many ties after rounding: the first one counts in both
        case.make["data"] = lambda rng, shape: rng.integers(0, 9, shape).astype(float)  # type: ignore[index]
    agree(case, dtype)


def test_numbers_that_are_none_and_infinite():
    """A nan makes its windows nan, and no element of theirs gets a gradient; of -inf the first one does."""
    x = np.random.default_rng(0).standard_normal((2, 7, 8, 4)).astype(np.float32)
    x[0, 3, 3, 1] = np.nan
    x[1, :4] = -np.inf
    case = Case(ops.PoolingChannelsLast, SQUARE, [x.shape])
    call = Call.of(case, dtype="float32")
    want, _ = call.execute(case.op, {"data": x})
    d = {"d_out": np.ones_like(want["out"]), "index": want["index"]}
    back, _ = call.execute(case.op.grad_op, d)
    with kernels_of(BACKEND):
        got, _ = call.execute(case.op, {"data": x})
        got_back, _ = call.execute(case.op.grad_op, d)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], name)
    np.testing.assert_array_equal(got_back["d_data"], back["d_data"])


def test_windows_without_an_element():
    """`full` windows may lie behind the data altogether: their maximum is -inf."""
    attrs = dict(kernel=(1, 1), stride=(3, 3), pooling_convention="full")
    call = Call.of(Case(ops.Pooling, attrs, [(2, 3, 5, 6)]), dtype="float32")
    (data,) = Case(ops.Pooling, attrs, [(2, 3, 5, 6)], make={"data": apart}).inputs(dtype="float32")
    want, _ = call.execute(ops.Pooling, {"data": data})
    assert np.isinf(want["out"]).any()
    with kernels_of(BACKEND):
        got, _ = call.execute(ops.Pooling, {"data": data})
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], name)
