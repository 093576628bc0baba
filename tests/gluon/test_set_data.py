"""Parameter.set_data between forward and backward: a gradient is that of the values that forward read."""

import gc

import numpy as np
import pytest

import mxlite as mx
from mxlite import autograd, gluon, nd


class Weighted(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.w = self.params.get("w", shape=(2, 3), init="ones")

    def hybrid_forward(self, F, x, w):
        return F.broadcast_mul(F.square(x), w)


def scaled(is_hybridized):
    block = Weighted()
    block.initialize()
    if is_hybridized:
        block.hybridize()
    x = nd.array([[1, 2, 3], [4, 5, 6]])
    x.attach_grad()
    return block, x


@pytest.mark.parametrize("is_hybridized", [False, True])
def test_a_gradient_is_that_of_the_values_that_forward_read(is_hybridized):
    block, x = scaled(is_hybridized)
    with autograd.record():
        first = block(x)
        with autograd.pause():
            block.w.set_data(nd.full((2, 3), 10))
        total = first + 2 * block(x)
    block.w.set_data(nd.full((2, 3), 100))
    total.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), 2 * x.asnumpy() * (1 + 2 * 10))
    np.testing.assert_allclose(block.w.grad().asnumpy(), 3 * x.asnumpy() ** 2)
    assert (block.w.data().asnumpy() == 100).all()
    assert (block(x).asnumpy() == 100 * x.asnumpy() ** 2).all()


def test_a_view_of_a_parameter_is_kept_as_well():
    weight = gluon.Parameter("w", shape=(2, 3), init="ones")
    weight.initialize()
    x = nd.array([1, 2, 3, 4, 5, 6])
    x.attach_grad()
    with autograd.record():
        y = (x * weight.data().reshape((6,))).sum() + (x[:3] * weight.data()[1]).sum()
    weight.set_data(nd.zeros((2, 3)))
    y.backward()
    assert x.grad.asnumpy().tolist() == [2, 2, 2, 1, 1, 1]


def test_a_spectral_norm_has_the_gradient_of_pytorch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    values, start = rng.standard_normal((4, 6)).astype("f"), rng.standard_normal((1, 4)).astype("f")
    weight, u = gluon.Parameter("w", shape=(4, 6)), gluon.Parameter("u", shape=(1, 4), grad_req="null")
    for parameter, array in ((weight, values), (u, start)):
        parameter.initialize()
        parameter.set_data(nd.array(array))

    def normed():
        w = weight.data()
        v = nd.L2Normalization(nd.dot(u.data(), w))
        new = nd.L2Normalization(nd.dot(v, w.T))
        sigma = nd.sum(nd.dot(new, w) * v)
        with autograd.pause():
            u.set_data(new)
        return w / sigma

    with autograd.record():
        loss = (normed() ** 3 + normed()).sum()  # the second reads the u that the first has set
    loss.backward()

    w, at = torch.tensor(values, requires_grad=True), torch.tensor(start)

    def peer(at):
        v = torch.nn.functional.normalize(at @ w)
        new = torch.nn.functional.normalize(v @ w.T)
        return w / ((new @ w) * v).sum(), new.detach()

    one, at = peer(at)
    two, at = peer(at)
    (one**3 + two).sum().backward()
    np.testing.assert_allclose(weight.grad().asnumpy(), w.grad.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(u.data().asnumpy(), at.numpy(), rtol=1e-5)


def test_second_derivatives_reach_the_parameter_and_statistics_still_move():
    block, x = scaled(False)
    norm = gluon.nn.BatchNorm(in_channels=3)
    norm.initialize()
    with autograd.record():
        y = block(x)
        block.w.set_data(nd.full((2, 3), 7))
        (slope,) = autograd.grad(y, [x], create_graph=True)
        total = slope.sum() + 0 * norm(slope).sum()
    norm.running_mean.set_data(nd.full((3,), 100))
    total.backward()
    assert (slope.asnumpy() == 2 * x.asnumpy()).all()
    assert (block.w.grad().asnumpy() == 2 * x.asnumpy()).all()
    np.testing.assert_allclose(
        norm.running_mean.data().asnumpy(), 90 + 0.1 * slope.asnumpy().mean(0), rtol=1e-6
    )


def test_copies_live_as_long_as_what_reads_them():
    weight = gluon.Parameter("w", shape=(2, 3), init="ones")
    weight.initialize()
    x = nd.ones((2, 3))
    x.attach_grad()
    with autograd.record():
        y = x * weight.data()
    keepers = weight.data().var.keepers
    assert len(keepers) == 1
    y.backward()
    del y
    gc.collect()
    assert not keepers


def test_other_writes_before_a_hybridized_backward_are_refused():
    block, x = scaled(True)
    with autograd.record():
        y = block(x)
    block.w.data()[:] = 5
    with pytest.raises(mx.MXNetError, match=r"weighted\d+_w', which was written after forward.*set_data"):
        y.backward()


def test_a_second_backward_pass_runs_forward_on_the_old_values():
    net = gluon.nn.Dense(2, activation="relu", in_units=3)
    net.initialize("ones")
    net.hybridize()
    x = nd.ones((1, 3))
    with autograd.record():
        y = net(x)
    y.backward(retain_graph=True)
    net.bias.set_data(nd.full((2,), -100))  # which the first pass does not read: relu keeps its output
    net.weight.zero_grad()
    y.backward(retain_graph=True)
    assert (net.weight.grad().asnumpy() == 1).all()
    net.bias.data()[:] = 5
    assert (net.bias.data().asnumpy() == 5).all()
    y.backward(retain_graph=True)  # of the copy
    net.weight.data()[:] = 5
    with pytest.raises(mx.StateError, match=r"reads 'dense\d+_weight'"):
        y.backward()


def trained(before_step, is_deferred):
    """The weight after a step between whose forward and update `before_step(weight)` ran."""
    net, loss_of = gluon.nn.Dense(2, in_units=3, weight_initializer="ones"), gluon.loss.L2Loss()
    net.initialize()
    if is_deferred:
        net.hybridize()
        loss_of.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for _ in range(2):
        with autograd.record():
            loss = loss_of(net(nd.array([[1, 2, 3]])), nd.ones((1, 2)))
        loss.backward()
        before_step(net.weight)
        trainer.step(1)
    return net.weight.data().asnumpy()


def test_a_parameter_may_be_set_before_the_step_of_a_deferred_call():
    clipped = [
        trained(lambda w: w.set_data(w.data().clip(-0.5, 0.5)), is_deferred) for is_deferred in (False, True)
    ]
    np.testing.assert_allclose(*clipped, rtol=1e-6)
    halved = [trained(lambda w: w.set_data(nd.full((2, 3), 0.5)), deferred) for deferred in (False, True)]
    np.testing.assert_allclose(*halved, rtol=1e-6)
