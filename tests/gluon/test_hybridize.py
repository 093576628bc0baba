"""Hybridized blocks: bound programs inside a budget, mixed with calls one by one."""

import gc

import numpy as np
import pytest

import mxlite as mx
from mxlite import gluon
from mxlite.gluon import nn

RNG = np.random.default_rng(3)
X = RNG.standard_normal((8, 3, 12, 12)).astype("f")
Y = RNG.integers(0, 4, 8).astype("f")


class Residual(gluon.HybridBlock):
    def __init__(self, channels, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            with self.body.name_scope():
                self.body.add(nn.BatchNorm(), nn.Activation("relu"), nn.Conv2D(channels, 3, padding=1))

    def hybrid_forward(self, F, x):
        return x + self.body(x)


def network(blocks=8, dropout=0.0):
    mx.random.seed(5)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(8, 3, padding=1), *[Residual(8) for _ in range(blocks)])
        net.add(nn.Dropout(dropout), nn.GlobalAvgPool2D(), nn.Dense(4))
    net.initialize(mx.init.Xavier())
    return net


def train(net, loss, steps=3, x=X):
    """Parameters after some steps, and the losses."""
    mx.random.seed(8)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    losses = []
    for _ in range(steps):
        with mx.autograd.record():
            value = loss(net(mx.nd.array(x)), mx.nd.array(Y[: len(x)]))
        value.backward()
        trainer.step(len(x))
        losses.append(value.asnumpy())
    return {n: p.data().asnumpy() for n, p in net.collect_params().items()}, losses


def test_a_program_gives_what_calls_one_by_one_give():
    one, by_one = train(network(), gluon.loss.SoftmaxCELoss())
    net, loss = network(), gluon.loss.SoftmaxCELoss()
    net.hybridize()
    loss.hybridize()
    other, bound = train(net, loss)
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], atol=2e-3, rtol=1e-3, err_msg=name)
    np.testing.assert_allclose(by_one, bound, atol=1e-3)
    x = mx.nd.array(X)
    np.testing.assert_allclose(net(x).asnumpy(), plain(net, x), atol=1e-4)


def plain(net, x):
    net.hybridize(active=False)
    return net(x).asnumpy()


def test_results_are_bitwise_the_same_at_every_budget_and_the_plan_is_what_is_measured():
    net = network(dropout=0.3)
    net.hybridize()
    expected, losses = train(net, gluon.loss.SoftmaxCELoss())
    without = net.memory_plan.peak_bytes
    net.hybridize(memory_budget=1)
    with pytest.raises(mx.MemoryBudgetError) as caught:
        train(net, gluon.loss.SoftmaxCELoss(), 1)
    least = caught.value.least_feasible_bytes
    peaks = []
    for budget in (without - 1, (without + least) // 2, least):
        net = network(dropout=0.3)
        net.hybridize(memory_budget=budget)
        found, again = train(net, gluon.loss.SoftmaxCELoss())
        plan = net.memory_plan
        assert plan.peak_bytes <= budget and net.executor.measured_bytes == plan.peak_bytes
        assert np.array_equal(losses, again)
        for name, value in expected.items():
            assert np.array_equal(value, found[name]), name
        peaks.append(plan.peak_bytes)
    assert peaks == sorted(peaks, reverse=True) and peaks[-1] < without


def test_a_budget_that_is_too_small_is_refused_at_the_first_call_with_one_that_will_do():
    net = network()
    net.hybridize(memory_budget="64KiB")
    with pytest.raises(mx.MemoryBudgetError) as caught:
        train(net, gluon.loss.SoftmaxCELoss())
    least = caught.value.least_feasible_bytes
    net.hybridize(memory_budget=least)
    train(net, gluon.loss.SoftmaxCELoss(), 1)
    assert net.memory_plan.peak_bytes <= least
    net.hybridize(memory_budget=least // 2)
    with pytest.raises(mx.MemoryBudgetError):
        train(net, gluon.loss.SoftmaxCELoss(), 1)


def test_gradients_of_parameters_exist_once():
    net = network(2)
    net.hybridize()
    train(net, gluon.loss.SoftmaxCELoss(), 1)
    gradients = net.executor.grad_dict
    for name, p in net.collect_params().items():
        if p.grad_req != "null":
            assert gradients[name].storage is p.grad().storage, name


def test_two_calls_in_one_recording_sum_their_gradients():
    def gradients(hybrid):
        mx.random.seed(5)
        net = nn.HybridSequential(prefix="net_")
        with net.name_scope():
            net.add(nn.Dense(6, activation="tanh"), nn.Dense(2))
        net.initialize()
        a, b = mx.nd.array(X[:, 0, 0]), mx.nd.array(X[:, 1, 1])
        net(a)
        if hybrid:
            net.hybridize()
        for _ in range(2):
            with mx.autograd.record():
                loss = (net(a) * net(b)).sum() + (net[0].weight.data() ** 2).sum()
            loss.backward()
        return [p.grad().asnumpy() for p in net.collect_params().values()]

    for a, b in zip(gradients(False), gradients(True)):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_gradients_are_added_where_that_is_asked():
    net = nn.Dense(2, in_units=12)
    net.initialize()
    net.collect_params().setattr("grad_req", "add")
    net.hybridize()
    x = mx.nd.array(X[:, 0, 0])
    for times in (1, 2):
        with mx.autograd.record():
            out = net(x)
        out.backward()
        np.testing.assert_allclose(net.bias.grad().asnumpy(), [8 * times] * 2)
    net.zero_grad()
    assert (net.bias.grad().asnumpy() == 0).all()


def test_autograd_grad_leaves_the_gradients_of_parameters_alone():
    net = nn.Dense(2, in_units=12)
    net.initialize()
    net.hybridize()
    x = mx.nd.array(X[:, 0, 0])
    x.attach_grad()
    with mx.autograd.record():
        out = net(x).sum()
    (dx,) = mx.autograd.grad(out, [x])
    np.testing.assert_allclose(dx.asnumpy(), np.tile(net.weight.data().asnumpy().sum(0), (8, 1)), rtol=1e-5)
    assert (net.weight.grad().asnumpy() == 0).all() and (x.grad.asnumpy() == 0).all()


def test_a_graph_may_be_retained_and_gone_through_twice():
    net = network(1, dropout=0.5)
    net.hybridize()
    x = mx.nd.array(X)
    net(x)
    with mx.autograd.record():
        loss = net(x).sum()
    loss.backward(retain_graph=True)
    first = net[0].weight.grad().asnumpy()
    net(x)  # another call, meanwhile
    loss.backward()
    assert np.array_equal(net[0].weight.grad().asnumpy(), first)


def test_inference_between_forward_and_backward_does_not_disturb():
    net = network(1)
    net.hybridize()
    x = mx.nd.array(X)
    with mx.autograd.record():
        loss = net(x).sum()
    with mx.autograd.pause():
        net(x)
    net(x)
    loss.backward()
    first = net[0].weight.grad().asnumpy()
    with mx.autograd.record():
        loss = net(x).sum()
    loss.backward()
    assert np.array_equal(net[0].weight.grad().asnumpy(), first)


def test_calls_one_by_one_and_programs_mix():
    net, head = network(1), nn.Dense(1)
    head.initialize()
    net.hybridize()
    x = mx.nd.array(X)
    x.attach_grad()
    net(x)

    def both():
        with mx.autograd.record():
            loss = (head(mx.nd.relu(net(x * 2))) ** 2).mean()
        loss.backward()
        return x.grad.asnumpy(), net[0].weight.grad().asnumpy()

    head(net(x))
    bound = both()
    net.hybridize(False)
    for a, b in zip(bound, both()):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)


def test_outputs_stay_what_they_were():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize()
    first = net(mx.nd.ones((1, 3)))
    before = first.asnumpy()
    net(mx.nd.zeros((1, 3)))
    assert np.array_equal(first.asnumpy(), before)


def test_a_program_follows_parameters_that_are_replaced_and_frozen():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize()
    x = mx.nd.ones((1, 3))

    def trained():
        with mx.autograd.record():
            out = net(x)
        out.backward()
        return out.asnumpy()

    trained()
    net.initialize(mx.init.One(), force_reinit=True)
    assert trained().tolist() == [[3, 3]]
    net.weight.grad_req = "null"
    assert trained().tolist() == [[3, 3]]
    net.weight.set_data(mx.nd.zeros((2, 3)))
    assert trained().tolist() == [[0, 0]] and net.bias.grad().asnumpy().tolist() == [1, 1]


def test_one_program_serves_each_shape():
    net = network(1)
    net.hybridize()
    loss = gluon.loss.SoftmaxCELoss()
    for x in (X, X[:4], X):
        train(net, loss, 1, x)
        assert net.executor.arg_dict["data"].shape == x.shape


def test_programs_are_used_again():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize()
    x, seen = mx.nd.ones((1, 3)), set()
    for _ in range(4):
        with mx.autograd.record():
            outs = []
            for _ in range(3):
                outs.append(net(x))
                seen.add(id(net.executor))
        mx.autograd.backward(outs)
        assert net.bias.grad().asnumpy().tolist() == [3, 3]
    assert len(seen) == 3
    del outs
    gc.collect()


def test_inputs_and_outputs_may_be_nested():
    class Cell(gluon.HybridBlock):
        def hybrid_forward(self, F, x, states):
            a, b = states
            return x + a, [a * b, [x - b]]

    cell = Cell()
    x, a, b = (mx.nd.array([v]) for v in (5, 2, 3))
    for _ in range(2):
        out, (product, (rest,)) = cell(x, [a, b])
        assert [float(v.asscalar()) for v in (out, product, rest)] == [7, 6, 2]
        cell.hybridize()


def test_an_operator_of_several_outputs_may_end_a_block():
    net = nn.HybridLambda(lambda F, x: F.split(x, num_outputs=2, axis=0))
    for _ in range(2):
        a, b = net(mx.nd.array([1, 2]))
        assert (a.asscalar(), b.asscalar()) == (1, 2)
        net.hybridize()


def test_recording_for_inference_runs_call_by_call():
    net = network(1, dropout=0.5)
    net.hybridize()
    x = mx.nd.array(X)
    x.attach_grad()
    plain = net(x).asnumpy()
    with mx.autograd.record(train_mode=False):
        out = net(x)
    out.backward()
    np.testing.assert_allclose(out.asnumpy(), plain, atol=1e-4)
    assert np.abs(x.grad.asnumpy()).max() > 0


def test_options_that_do_not_exist_are_told():
    net = network(1)
    with pytest.raises(mx.OpAttributeError, match="hybridize has no option 'budget': it takes memory_budget"):
        net.hybridize(budget="1GiB")
    net.hybridize(static_alloc=True, static_shape=True)
    with pytest.raises(mx.StateError, match="has run no program yet"):
        net.memory_plan  # noqa: B018
    with pytest.raises(TypeError, match="must return symbols when it is given symbols, got ndarray"):
        net = nn.HybridLambda(lambda F, x: np.ones(3))
        net.hybridize()
        net(mx.nd.ones(3))


def test_mixed_precision_is_an_option():
    net = network(1)
    net.hybridize(amp="bfloat16")
    train(net, gluon.loss.SoftmaxCELoss(), 1)
    assert net.executor.amp is not None and net[0].weight.data().dtype == np.float32


def test_only_a_hybridized_block_wants_nothing_but_arrays():
    class Scaled(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.dense = gluon.nn.Dense(1)

        def hybrid_forward(self, F, x, how):
            return self.dense(x) * how["factor"]

    net = Scaled()
    net.initialize(mx.init.One())
    x = mx.nd.array([[1, 2]])
    assert net(x, {"factor": 2}).asnumpy().tolist() == [[6]]
    net.hybridize()
    with pytest.raises(
        mx.MXNetError, match="'scaled0' is hybridized, so it takes NDArrays or Symbols, got dict"
    ):
        net(x, {"factor": 2})
    with pytest.raises(mx.MXNetError, match="takes all arrays or all symbols, got both"):
        net(x, mx.sym.Variable("x"))
