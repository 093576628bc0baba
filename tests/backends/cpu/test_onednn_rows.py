"""Softmax, layer normalization, activations and arithmetic on oneDNN, against the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends.cpu.onednn import library
from mxlite.backends.cpu.runtime import threads
from tests.backends.cpu import fast_kernels
from tests.conformance.case import Case, unit
from tests.conformance.conformance import Call, check_in_place, check_unwanted_outputs

pytestmark = pytest.mark.skipif(library() is None, reason="oneDNN is not installed")

CASES = {
    "softmax": Case(ops.softmax, {}, [(40, 130)]),
    "softmax-axis": Case(ops.softmax, {"axis": 1}, [(40, 33, 1)]),
    "log_softmax": Case(ops.log_softmax, {}, [(5, 8, 130)]),
    "SoftmaxActivation": Case(ops.SoftmaxActivation, {}, [(6, 4, 50)]),
    "SoftmaxActivation-channel": Case(ops.SoftmaxActivation, {"mode": "channel"}, [(6, 40)]),
    "LayerNorm": Case(ops.LayerNorm, {}, [(60, 130), (130,), (130,)]),
    "LayerNorm-parts": Case(ops.LayerNorm, {"eps": 1e-3}, [(7, 20, 3000), (3000,), (3000,)]),
    "LayerNorm-outputs": Case(ops.LayerNorm, {"output_mean_var": True}, [(60, 130), (130,), (130,)]),
    "sigmoid": Case(ops.sigmoid, {}, [(70, 67)]),
    "Activation-sigmoid": Case(ops.Activation, {"act_type": "sigmoid"}, [(70, 67)]),
    "tanh": Case(ops.tanh, {}, [(70, 67)]),
    "silu": Case(ops.silu, {}, [(70, 67)]),
    "leaky": Case(ops.LeakyReLU, {"act_type": "leaky", "slope": 0.1}, [(7, 10, 67)]),
    "add": Case(ops.elemwise_add, {}, [(70, 67)] * 2),
    "div": Case(ops.elemwise_div, {}, [(70, 67)] * 2, make={"rhs": unit}),
    "add_n": Case(ops.add_n, {"num_args": 4}, [(70, 67)] * 4),
    "broadcast_add-channel": Case(ops.broadcast_add, {}, [(4, 20, 9, 9), (1, 20, 1, 1)]),
    "broadcast_add-turned": Case(ops.broadcast_add, {}, [(20, 1, 1), (4, 20, 9, 9)]),
    "broadcast_sub-row": Case(ops.broadcast_sub, {}, [(70, 67), (67,)]),
    "broadcast_mul-column": Case(ops.broadcast_mul, {}, [(70, 67), (70, 1)]),
    "broadcast_div-one": Case(ops.broadcast_div, {}, [(70, 67), (1,)], make={"rhs": unit}),
}
REFUSED = {
    "softmax-inner-axis": Case(ops.softmax, {"axis": 1}, [(40, 33, 5)]),
    "softmax-temperature": Case(ops.softmax, {"temperature": 2.0}, [(40, 33)]),
    "LayerNorm-first": Case(ops.LayerNorm, {"axis": 0}, [(60, 130), (60,), (60,)]),
    "broadcast_sub-turned": Case(ops.broadcast_sub, {}, [(67,), (70, 67)]),
    "broadcast_add-outer": Case(ops.broadcast_add, {}, [(70, 1), (1, 67)]),
    "leaky-negative": Case(ops.LeakyReLU, {"act_type": "leaky", "slope": -0.1}, [(7, 10, 67)]),
    "relu": Case(ops.relu, {}, [(70, 67)]),
    "little": Case(ops.sigmoid, {}, [(7, 6)]),
}


@pytest.fixture(autouse=True)
def two_threads():
    """Where numpy is as fast as one thread of oneDNN's, two are asked for."""
    before = threads.set_num_threads(2)
    yield
    threads.set_num_threads(before)


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_are_the_references(name):
    case = CASES[name]
    arrays, heads = case.inputs(dtype="float32"), fast_kernels.heads_of(case, "float32")
    call = Call.of(case, dtype="float32")
    assert fast_kernels.kernel_name(call, "onednn").startswith("onednn"), name
    if case.op.grad_op is None or not case.op.grad_op.output_names(case.parsed):
        heads = None
    got = fast_kernels.run(case, "float32", "onednn", arrays, heads)
    want = fast_kernels.run(case, "float32", "reference", arrays, heads)
    fast_kernels.close(got, want, 2e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_the_reference_does_what_onednn_does_not(name):
    call = Call.of(REFUSED[name], dtype="float32")
    assert fast_kernels.kernel_name(call, "onednn") == "reference"


@pytest.mark.parametrize("name", CASES)
def test_float64_and_16_bits_are_the_references(name):
    for dtype in ("float64", "float16", "bfloat16"):
        assert fast_kernels.kernel_name(Call.of(CASES[name], dtype=dtype), "onednn") == "reference"


def _float32(case):
    return Case(case.op, case.attrs, case.shapes, dtype="float32", make=case.make)


@pytest.mark.parametrize("name", CASES)
def test_in_place_and_without_some_outputs_it_is_the_same(name):
    with fast_kernels.only("onednn"):
        check_in_place(_float32(CASES[name]))
        if "LayerNorm" not in name:  # with out, its statistics are oneDNN's, without they are the reference's
            check_unwanted_outputs(_float32(CASES[name]))


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-42])
@pytest.mark.parametrize("name", CASES)
def test_numbers_of_every_kind_go_through(name, value):
    case = CASES[name]
    arrays = case.inputs(dtype="float32")
    arrays[0].reshape(-1)[[0, arrays[0].size // 2]] = value
    with np.errstate(all="ignore"):
        got = fast_kernels.run(case, "float32", "onednn", arrays)
        want = fast_kernels.run(case, "float32", "reference", arrays)
    for n, x in want.items():
        np.testing.assert_array_equal(np.isnan(got[n]), np.isnan(x), err_msg=n)
        np.testing.assert_array_equal(np.isposinf(got[n]), np.isposinf(x), err_msg=n)
        np.testing.assert_array_equal(np.isneginf(got[n]), np.isneginf(x), err_msg=n)
        ordinary = np.isfinite(x)
        np.testing.assert_allclose(got[n][ordinary], x[ordinary], rtol=1e-4, atol=1e-5, err_msg=n)


def test_a_row_of_minus_infinity_is_nan_as_it_always_was():
    data = np.full((3, 9), -np.inf, np.float32)
    data[1] = 0
    case = Case(ops.softmax, {}, [(3, 9)])
    got = fast_kernels.run(case, "float32", "onednn", [data])["out"]
    want = fast_kernels.run(case, "float32", "reference", [data])["out"]
    np.testing.assert_allclose(got, want, rtol=1e-6)
