"""Elementwise gradients that recompute what they alone read: which arrays are not kept, and the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import mxlite as mx
from mxlite.memplan import check
from mxlite.memplan.problem import padded
from mxlite.memplan.remat.split import kept_bytes
from tests.backends.passes.pass_lists import left_out
from tests.backends.passes.test_norm_act import needs_compiler

ROWS, WIDTH, HIDDEN = 128, 64, 96


def dense(x: Any, units: int, name: str) -> Any:
    return mx.sym.FullyConnected(x, num_hidden=units, no_bias=True, name=name)


def gated(act: Any = mx.sym.silu) -> Any:
    x = mx.sym.Variable("data")
    product = act(dense(x, HIDDEN, "gate")) * dense(x, HIDDEN, "up")
    return mx.sym.make_loss(mx.sym.mean(mx.sym.square(dense(product, WIDTH, "down"))), name="loss")


def bound(symbol: Any, **how: Any) -> Any:
    exe = symbol.simple_bind(mx.cpu(), data=(ROWS, WIDTH), **how)
    rng = np.random.default_rng(0)
    for x in exe.arg_dict.values():
        x[:] = rng.standard_normal(x.shape) / 4
    return exe


def step(exe: Any) -> dict[str, np.ndarray]:
    made = {"out": exe.forward(is_train=True)[0].asnumpy()}
    exe.backward()
    return made | {n: g.asnumpy() for n, g in exe.grad_dict.items() if g is not None}


@needs_compiler
def test_a_gate_is_recomputed_inside_the_gradient_that_reads_it(monkeypatch):
    exe = bound(gated())
    got, plan = step(exe), exe.memory_plan
    check(plan)
    assert exe.measured_bytes == plan.peak_bytes
    tight = bound(gated(), memory_budget=(plan.peak_bytes + plan.lower_bound_bytes) // 2)
    for name, x in step(tight).items():
        np.testing.assert_array_equal(x, got[name], err_msg=name)
    left_out(monkeypatch, "inline_remat")
    plain = bound(gated())
    for name, x in step(plain).items():
        np.testing.assert_allclose(got[name], x, rtol=1e-5, atol=1e-7, err_msg=name)
    saved = kept_bytes(plain.memory_plan.problem) - kept_bytes(plan.problem)
    assert saved == padded(4 * ROWS * HIDDEN)
    assert len(plan.problem.tasks) == len(plain.memory_plan.problem.tasks)  # nothing runs by itself


@needs_compiler
def test_what_is_made_of_arrays_that_are_not_there_stays(monkeypatch):
    """The slopes of tanh and sigmoid are taken from their results: what these were made of is gone."""

    def network() -> Any:
        return gated(lambda x: mx.sym.tanh(x) * mx.sym.sigmoid(dense(x, HIDDEN, "more")))

    plan = bound(network()).memory_plan
    left_out(monkeypatch, "inline_remat")
    assert kept_bytes(plan.problem) == kept_bytes(bound(network()).memory_plan.problem)


@needs_compiler
def test_what_a_product_reads_stays(monkeypatch):
    """The gradient in a weight reads the whole array."""
    x = dense(mx.sym.silu(dense(mx.sym.Variable("data"), HIDDEN, "a")), WIDTH, "b")
    net = mx.sym.make_loss(mx.sym.mean(mx.sym.square(x)), name="loss")
    plan = bound(net).memory_plan
    left_out(monkeypatch, "inline_remat")
    assert kept_bytes(plan.problem) == kept_bytes(bound(net).memory_plan.problem)
