"""Activations behind max pooling: the same numbers from a quarter of the work and of the bytes kept."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.executor.request.infer import infer
from tests.backends.passes.pass_lists import alone, left_out

SHAPE = (2, 3, 9, 8)


def network(act="relu", reader=None, **pool):
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), pad=(1, 1), num_filter=4, name="conv")
    x = mx.sym.Activation(x, act_type=act, name="act")
    pool = {"kernel": (2, 2), "stride": (2, 2), "pool_type": "max", **pool}
    y = mx.sym.Pooling(x, name="pool", **pool)
    y = mx.sym.FullyConnected(mx.sym.Flatten(y), num_hidden=3, name="fc")
    return mx.sym.Group([mx.sym.SoftmaxOutput(y, name="softmax"), *(reader(x) for _ in (reader,) if reader)])


def ops(net, train=True):
    graph = infer(net.graph, {"data": SHAPE}, {"data": "float32"})
    names = [n.op.op_name for n in alone("hoist_pooling", graph, train=train).graph.nodes if n.op is not None]
    return [n for n in names if n in ("Activation", "Pooling")]


AS_IT_WAS, SWAPPED = ["Activation", "Pooling"], ["Pooling", "Activation"]


@pytest.mark.parametrize("act", ["relu", "tanh", "sigmoid", "softrelu", "softsign"])
def test_what_never_falls_comes_behind(act):
    assert ops(network(act)) == ops(network(act), train=False) == SWAPPED


@pytest.mark.parametrize("kernel", [(2, 2), (3, 3)])
def test_windows_may_reach_beyond_the_data(kernel):
    assert ops(network(kernel=kernel, pooling_convention="full")) == SWAPPED


@pytest.mark.parametrize(
    "how",
    [
        dict(act="mish"),
        dict(pool_type="avg"),
        dict(pooling_convention="full", pad=(1, 1)),
        dict(reader=mx.sym.BlockGrad),
        dict(reader=lambda x: x),
    ],
    ids=["falls", "mean", "windows of nothing", "another reader", "an output"],
)
def test_all_else_stays(how):
    assert ops(network(**how)) == AS_IT_WAS


def test_marked_nodes_stay():
    with mx.AttrScope(force_mirroring="True"):
        net = network()
    assert ops(net) == AS_IT_WAS


def learned(net, **more):
    step = net.simple_bind(mx.cpu(), data=SHAPE, softmax_label=(2,), **more)
    rng = np.random.default_rng(0)
    for name, array in step.arg_dict.items():
        array[:] = [0, 2] if name == "softmax_label" else rng.standard_normal(array.shape)
    step.forward(is_train=True)
    step.backward()
    found = {n: g.asnumpy() for n, g in step.grad_dict.items() if g is not None and n != "softmax_label"}
    return {"out": step.outputs[0].asnumpy(), **found}, step.memory_plan


@pytest.mark.parametrize("act", ["relu", "tanh", "sigmoid"])
@pytest.mark.parametrize(
    "pool",
    [{}, dict(kernel=(3, 3), pad=(1, 1)), dict(global_pool=True)],
    ids=["2x2", "3x3 overlapping and padded", "global"],
)
def test_outputs_and_gradients_are_the_same(monkeypatch, act, pool):
    after, plan = learned(network(act, **pool))
    left_out(monkeypatch, "hoist_pooling")
    before, old = learned(network(act, **pool))
    assert [t.name for t in plan.problem.tasks] != [t.name for t in old.problem.tasks]
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert plan.arena_bytes <= old.arena_bytes


def test_lenet_keeps_less_for_backward():
    net = mx.models.get("lenet")
    sgd = mx.optimizer.SGD(momentum=0.9)
    plan = net.memory_plan(mx.cpu(), optimizer=sgd, data=(64, 1, 28, 28), softmax_label=(64,))
    assert plan.arena_bytes < 4.2 * 2**20
