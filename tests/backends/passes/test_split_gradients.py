"""A gradient that is wanted alone reads only its own factor."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx

SHAPE = (64, 1024)


def _bound(op, wanted, right=SHAPE, **more):
    x, y = mx.sym.exp(mx.sym.var("x")), mx.sym.var("y", shape=right)
    net = mx.sym.tanh(getattr(mx.sym, op)(x, y))
    requests = {n: "write" if n in wanted else "null" for n in net.list_arguments()}
    return net.simple_bind(mx.cpu(), grad_req=requests, x=SHAPE, **more)


def _gradients(exe):
    rng = np.random.default_rng(5)
    for a in exe.arg_dict.values():
        a[:] = rng.uniform(0.5, 1.5, a.shape)
    (out,) = exe.forward(is_train=True)
    exe.backward([mx.nd.array(rng.standard_normal(out.shape))])
    return {n: g.asnumpy() for n, g in exe.grad_dict.items() if g is not None}


def _reads(exe):
    """What the gradients of binary operators read, by operator."""
    problem = exe.memory_plan.problem
    return {t.op: [problem.values[v].name for v in t.inputs] for t in problem.tasks}


@pytest.mark.parametrize("op", ["elemwise_mul", "broadcast_mul", "elemwise_div", "broadcast_div"])
@pytest.mark.parametrize("kernels", ["onednn,compiled", "reference"])
def test_a_gradient_alone_has_the_same_bits_and_reads_no_more_than_it_needs(op, kernels, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    alone, both = _bound(op, "x"), _bound(op, "xy")
    np.testing.assert_array_equal(_gradients(alone)["x"], _gradients(both)["x"])
    assert not any("_backward" in name and op in name for name in _reads(alone))


@pytest.mark.parametrize("right", [(1, 1024), (64, 1)])
def test_operands_that_are_stretched_are_factors_too(right):
    alone, both = _bound("broadcast_mul", "x", right), _bound("broadcast_mul", "xy", right)
    np.testing.assert_array_equal(_gradients(alone)["x"], _gradients(both)["x"])
    summed = _gradients(_bound("broadcast_mul", "y", right))["y"]  # a sum over copies stays as it was
    np.testing.assert_allclose(summed, _gradients(both)["y"], rtol=1e-5)


def test_an_array_that_only_the_other_gradient_reads_is_not_kept():
    def net(masked):
        x = mx.sym.var("data")
        for i in range(4):
            x = mx.sym.FullyConnected(x, num_hidden=512, flatten=False, no_bias=True, name=f"fc{i}")
            x = mx.sym.broadcast_mul(x, mx.sym.var(f"mask{i}", shape=(2048, 1))) if masked else x * 0.5
        return mx.sym.MakeLoss(mx.sym.sum(x))

    peaks = []
    for masked in (True, False):
        symbol = net(masked)
        requests = {n: "write" if n.startswith("fc") else "null" for n in symbol.list_arguments()}
        plan = symbol.memory_plan(mx.cpu(), grad_req=requests, data=(2048, 512))
        peaks.append(plan.arena_bytes)
    assert peaks[0] <= 1.1 * peaks[1]
