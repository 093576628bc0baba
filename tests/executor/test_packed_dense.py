"""Weights of dense layers that inference keeps in the order of their kernel."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.onednn import library
from mxlite.backends.cpu.packed_dense import dense_way

pytestmark = pytest.mark.skipif(
    library() is None or dense_way(16, 128, 256, True) is None, reason="oneDNN has no blocked weights here"
)

ROWS, K, N = 16, 256, 128


def bound(twice=False, rows=ROWS, **more):
    """x -> a dense layer and tanh, and another whose weight a second layer reads, if `twice`."""
    x = mx.sym.tanh(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=N, name="a"))
    weight = mx.sym.var("w")
    y = mx.sym.FullyConnected(x, weight, num_hidden=N, no_bias=True, name="b")
    if twice:
        y = mx.sym.FullyConnected(mx.sym.tanh(y), weight, num_hidden=N, no_bias=True, name="c")
    exe = y.simple_bind(mx.cpu(), data=(rows, K), grad_req="null", **more)
    rng = np.random.default_rng(3)
    for name in sorted(exe.arg_dict):
        exe.arg_dict[name][:] = rng.standard_normal(exe.arg_dict[name].shape).astype("f") / 4
    return exe


def wanted(exe, twice=False):
    a = {n: x.asnumpy().astype("d") for n, x in exe.arg_dict.items()}
    y = np.tanh(a["data"] @ a["a_weight"].T + a["a_bias"]) @ a["w"].T
    return np.tanh(y) @ a["w"].T if twice else y


def out(exe):
    return exe.forward(is_train=False)[0].asnumpy()


@pytest.mark.parametrize("rows", [ROWS, 128])
def test_they_take_no_second_place_and_results_are_those_of_a_budget_to_the_bit(rows):
    exe = bound(rows=rows)
    got = out(exe)
    assert {k[1] for k in exe._planned.infer.step.forms} == {"a_weight", "w"}
    assert all(exe.arg_dict[n].away.form is not None for n in ("a_weight", "w"))
    plain = bound(rows=rows, memory_budget=2 * exe.memory_plan.peak_bytes)
    assert not plain._planned.infer.step.forms
    np.testing.assert_array_equal(got, out(plain))
    assert exe.memory_plan.peak_bytes <= plain.memory_plan.peak_bytes
    np.testing.assert_allclose(got, wanted(exe), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("twice", [False, True])
def test_what_is_written_to_a_weight_is_seen(twice):
    exe = bound(twice)
    out(exe)
    exe.arg_dict["a_weight"][:] = exe.arg_dict["a_weight"] * -2
    np.testing.assert_allclose(out(exe), wanted(exe, twice), rtol=1e-4, atol=1e-4)
    exe.copy_params_from({"w": exe.arg_dict["w"] + 0.5})
    np.testing.assert_allclose(out(exe), wanted(exe, twice), rtol=1e-4, atol=1e-4)
    held = exe.arg_dict["w"][3:5]
    held[:] = 7
    np.testing.assert_allclose(out(exe), wanted(exe, twice), rtol=1e-4, atol=1e-4)


def test_one_row_and_many_read_the_plain_weight():
    assert dense_way(1, N, K, True) is None and dense_way(512, N, K, True) is None
