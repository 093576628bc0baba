"""Norms in front of elementwise operators: which become elementwise themselves, with which numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.memplan import check
from mxlite.memplan.remat.split import kept_bytes
from tests.backends.passes.pass_lists import left_out
from tests.backends.passes.test_norm_act import needs_compiler, operators, step_of


def unit(x: Any, i: int, act: Any, **norm: Any) -> Any:
    x = mx.sym.Convolution(x, num_filter=16, kernel=(3, 3), pad=(1, 1), no_bias=True, name=f"c{i}")
    return act(mx.sym.BatchNorm(x, name=f"n{i}", fix_gamma=False, **norm))


def classes(x: Any) -> Any:
    x = mx.sym.FullyConnected(mx.sym.Pooling(x, global_pool=True, pool_type="avg"), num_hidden=10, name="fc")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def clipped(x: Any) -> Any:
    return mx.sym.clip(x, a_min=0, a_max=6)


ACTIVATIONS = {
    "clip": clipped,
    "silu": mx.sym.silu,
    "hard swish": mx.sym.hard_swish,
    "gelu": mx.sym.gelu,
    "tanh": mx.sym.tanh,
    "scaled": lambda x: x * 0.5,
    "two readers": lambda x: mx.sym.tanh(x) * mx.sym.sigmoid(x),
}


def network(act: Any, **norm: Any) -> Any:
    x = mx.sym.Variable("data")
    for i in range(3):
        x = unit(x, i, act, **norm)
    return classes(x)


@needs_compiler
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_step_is_the_same_with_and_without(name, monkeypatch):
    net = network(ACTIVATIONS[name])
    exe, got = step_of(net)
    assert operators(exe).count("_norm_statistics") == 3 and "BatchNorm" not in operators(exe)
    plan = exe.memory_plan
    check(plan)
    assert exe.measured_bytes == plan.peak_bytes
    for budget in (plan.peak_bytes, (plan.peak_bytes + plan.lower_bound_bytes) // 2):
        tight, same = step_of(net, memory_budget=budget)
        assert tight.measured_bytes <= budget
        for key, x in got.items():
            np.testing.assert_array_equal(same[key], x, err_msg=key)
    left_out(monkeypatch, "norm_chains", "inline_remat")
    plain, want = step_of(net)
    assert operators(plain).count("BatchNorm") == 3
    assert kept_bytes(plan.problem) <= kept_bytes(plain.memory_plan.problem)
    assert plan.arena_bytes <= plain.memory_plan.arena_bytes
    for key, x in want.items():
        scale = max(float(np.abs(x).max()), 1e-2)
        np.testing.assert_allclose(got[key], x, rtol=0, atol=1e-4 * scale, err_msg=key)


@needs_compiler
@pytest.mark.parametrize("name", ["clip", "silu", "hard swish", "gelu"])
def test_the_result_of_the_norm_is_not_kept(name, monkeypatch):
    """Backward keeps the inputs of the norms and of the convolutions alone."""
    net = network(ACTIVATIONS[name])
    plan = step_of(net, n=8)[0].memory_plan
    left_out(monkeypatch, "norm_chains", "inline_remat")
    before = step_of(net, n=8)[0].memory_plan
    image = 8 * 16 * 12 * 12 * 4
    assert kept_bytes(before.problem) - kept_bytes(plan.problem) >= 2 * image


@needs_compiler
def test_norms_that_others_read_stay():
    x = unit(mx.sym.Variable("data"), 0, lambda y: y)
    read = classes(mx.sym.clip(x, a_min=0, a_max=6) + mx.sym.Convolution(x, num_filter=16, kernel=(1, 1)))
    for net in (read, network(clipped, use_global_stats=True)):
        assert "_norm_statistics" not in operators(step_of(net)[0])


@needs_compiler
def test_moving_averages_move_once_a_step():
    net = network(clipped)
    exe, _ = step_of(net)
    with_pass = {k: a.asnumpy() for k, a in exe.aux_dict.items()}
    exe.forward(is_train=True)
    for k, a in exe.aux_dict.items():
        np.testing.assert_array_equal(a.asnumpy(), with_pass[k], err_msg=k)
    exe.backward()
    assert any(np.any(a.asnumpy() != with_pass[k]) for k, a in exe.aux_dict.items())
