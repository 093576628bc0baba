"""In mixed precision updates read 16-bit gradients; a gradient alone needs only its own factor."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import usable
from tests.backends.passes.pass_lists import left_out

pytestmark = pytest.mark.skipif(not usable(), reason="llvmlite is not installed")

WIDTH, ROWS = 256, 8


def two_layers(shared=False):
    weight = mx.sym.var("w_weight")
    x = mx.sym.FullyConnected(mx.sym.var("data"), weight, num_hidden=WIDTH, no_bias=True, name="a")
    x = mx.sym.Activation(x, act_type="relu", name="r")
    x = mx.sym.FullyConnected(
        x, weight if shared else mx.sym.var("v_weight"), num_hidden=WIDTH, no_bias=True, name="b"
    )
    return mx.sym.SoftmaxOutput(x, name="softmax")


def ask(optimizer=None, **more):
    optimizer = optimizer or mx.optimizer.SGD(momentum=0.9)
    shapes = dict(data=(ROWS, WIDTH), softmax_label=(ROWS,))
    return dict(optimizer=optimizer, amp="bfloat16", **shapes, **more)


def casts(plan):
    """Gradients of weights that are cast for an update."""
    return [t.name for t in plan.problem.tasks if t.op == "_backward_Cast" and "weight" in t.name]


def weights_after(net, steps=3, **more):
    step = net.simple_bind(mx.cpu(), **ask(mx.optimizer.Adam() if more.pop("adam", False) else None, **more))
    rng = np.random.default_rng(0)
    for name, array in step.arg_dict.items():
        shape = array.shape
        array[:] = rng.integers(0, WIDTH, shape) if "label" in name else rng.standard_normal(shape) / 16
    for _ in range(steps):
        step.step(np.tile([0.01, 1e-4], (len(step.updated), 1)))
    assert step.measured_bytes == step.memory_plan.peak_bytes
    return [a.asnumpy().tobytes() for n, a in step.arg_dict.items() if n.endswith("weight")]


@pytest.mark.parametrize("adam", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_bits_are_those_with_a_cast_in_fewer_bytes(monkeypatch, shared, adam):
    net = two_layers(shared)
    with_all, plan = weights_after(net, adam=adam), net.memory_plan(mx.cpu(), **ask())
    left_out(monkeypatch, "inline_gradient_casts")
    before = net.memory_plan(mx.cpu(), **ask())
    assert weights_after(net, adam=adam) == with_all
    assert casts(before) and not casts(plan)
    assert not any(v.nbytes == 4 * WIDTH * WIDTH for v in plan.problem.values if not v.fixed)
    assert plan.arena_bytes <= before.arena_bytes


def test_the_first_layers_gradient_does_not_read_its_weight():
    problem = two_layers().memory_plan(mx.cpu(), **ask()).problem
    (first,) = [t for t in problem.tasks if t.name.startswith("a_backward")]
    assert not any("weight" in problem.values[v].name for v in first.inputs)
