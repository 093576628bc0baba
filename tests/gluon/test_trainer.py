"""Trainer: steps, devices, files."""

import numpy as np
import pytest

import mxlite as mx
from mxlite import gluon
from mxlite.gluon import nn

X = np.random.default_rng(2).standard_normal((6, 4)).astype("f")


def made(ctx=None):
    mx.random.seed(1)
    net = nn.Dense(3, in_units=4, prefix="net_")
    net.initialize(mx.init.Xavier(), ctx=ctx)
    return net


def back(net, x):
    with mx.autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()


@pytest.mark.parametrize(
    ("name", "options"),
    [("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.1}), ("adam", {}), ("rmsprop", {})],
)
def test_a_step_is_the_optimizers_update_with_the_gradient_divided(name, options):
    net, other = made(), made()
    trainer = gluon.Trainer(net.collect_params(), name, options, kvstore=None)
    optimizer = mx.optimizer.create(name, rescale_grad=1 / 6, **options)
    updater = mx.optimizer.get_updater(optimizer)
    for _ in range(3):
        for n in (net, other):
            back(n, mx.nd.array(X))
        trainer.step(6)
        for i, p in enumerate(p for _, p in sorted(other.collect_params().items())):
            updater(i, p.grad(), p.data())
    for a, b in zip(net.collect_params().values(), other.collect_params().values()):
        assert np.array_equal(a.data().asnumpy(), b.data().asnumpy())


def test_parameters_have_factors_of_their_own_and_biases_decay_too():
    net = made()
    net.bias.data()[:] = 1
    net.weight.lr_mult = 0
    weight = net.weight.data().asnumpy()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "wd": 0.5})
    back(net, mx.nd.zeros((6, 4)))
    gradient = net.bias.grad().asnumpy()
    trainer.step(1)
    assert np.array_equal(net.weight.data().asnumpy(), weight)
    np.testing.assert_allclose(net.bias.data().asnumpy(), 1 - 0.1 * (gradient + 0.5), rtol=1e-6)


def test_a_gradient_that_is_not_new_is_refused_or_ignored():
    net, unused = made(), nn.Dense(1, in_units=1, prefix="unused_")
    unused.initialize()
    trainer = gluon.Trainer([*net.collect_params().values(), *unused.collect_params().values()], "sgd")
    back(net, mx.nd.array(X))
    with pytest.raises(mx.StateError, match=r"'unused_weight' on cpu\(0\) was not written by backward since"):
        trainer.step(6)
    before = net.weight.data().asnumpy()
    back(net, mx.nd.array(X))
    trainer.step(6, ignore_stale_grad=True)
    assert not np.array_equal(net.weight.data().asnumpy(), before)


def test_devices_share_the_gradient():
    one, two = made(), made([mx.cpu(0), mx.cpu(1)])
    options = {"learning_rate": 0.1, "momentum": 0.9}
    trainers = [gluon.Trainer(n.collect_params(), "sgd", options, kvstore="local") for n in (one, two)]
    for _ in range(3):
        back(one, mx.nd.array(X))
        with mx.autograd.record():
            losses = [(two(x) ** 2).sum() for x in gluon.utils.split_and_load(X, [mx.cpu(0), mx.cpu(1)])]
        mx.autograd.backward(losses)
        for trainer in trainers:
            trainer.step(6)
    weights = [a.asnumpy() for a in (one.weight.data(), *two.weight.list_data())]
    assert np.array_equal(weights[1], weights[2])
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-5)


def test_gradients_may_be_changed_between_the_sum_and_the_update():
    net = made()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    before = net.weight.data().asnumpy()
    back(net, mx.nd.array(X))
    trainer.allreduce_grads()
    norm = gluon.utils.clip_global_norm([p.grad() for p in net.collect_params().values()], 0.5)
    gradient = net.weight.grad().asnumpy()
    total = np.sqrt(sum((p.grad().asnumpy() ** 2).sum() for p in net.collect_params().values()))
    assert norm > 0.5 and total == pytest.approx(0.5, rel=1e-4)
    trainer.update(1)
    np.testing.assert_allclose(net.weight.data().asnumpy(), before - gradient, rtol=1e-6)


def test_the_rate_is_set_here_or_by_a_scheduler():
    trainer = gluon.Trainer(made().collect_params(), "sgd", {"learning_rate": 0.1})
    trainer.set_learning_rate(0.2)
    assert trainer.learning_rate == trainer.optimizer.learning_rate == 0.2
    options = {"learning_rate": 0.1, "lr_scheduler": mx.lr_scheduler.FactorScheduler(1, 0.5)}
    net = made()
    trainer = gluon.Trainer(net.collect_params(), "sgd", options)
    for _ in range(3):
        back(net, mx.nd.array(X))
        trainer.step(6)
    assert trainer.learning_rate == pytest.approx(0.025)
    with pytest.raises(UserWarning):
        trainer.set_learning_rate(1)


def test_states_are_saved_and_training_goes_on_as_if_it_had_not_stopped(tmp_path):
    file = str(tmp_path / "states")
    options = {"learning_rate": 0.1}

    def steps(net, trainer, count):
        for _ in range(count):
            back(net, mx.nd.array(X))
            trainer.step(6)

    net = made()
    trainer = gluon.Trainer(net.collect_params(), "adam", options)
    steps(net, trainer, 2)
    trainer.save_states(file)
    net.save_parameters(str(tmp_path / "net"))
    steps(net, trainer, 2)
    again = made()
    again.load_parameters(str(tmp_path / "net"))
    resumed = gluon.Trainer(again.collect_params(), "adam", options)
    resumed.load_states(file)
    steps(again, resumed, 2)
    assert np.array_equal(again.weight.data().asnumpy(), net.weight.data().asnumpy())
    with pytest.raises(mx.FormatError, match="saved by 'adam'"):
        gluon.Trainer(made().collect_params(), "sgd").load_states(file)


def test_what_belongs_to_several_machines_is_refused():
    params = made().collect_params()
    with pytest.raises(mx.MXLiteError, match="workers that do not wait for each other"):
        gluon.Trainer(params, "sgd", kvstore="dist_async")
    with pytest.raises(mx.OpAttributeError, match="compression_params are for several machines"):
        gluon.Trainer(params, "sgd", compression_params={"type": "2bit"})
    with pytest.raises(TypeError, match="each of params must be a Parameter, got 3"):
        gluon.Trainer([3], "sgd")
    with pytest.raises(TypeError, match="come too late"):
        gluon.Trainer(params, mx.optimizer.SGD(), {"learning_rate": 1})


def test_a_batch_is_split_over_devices():
    x = mx.nd.arange(10).reshape((5, 2))
    assert [p.shape for p in gluon.utils.split_data(x, 2, even_split=False)] == [(3, 2), (2, 2)]
    assert [len(p) for p in gluon.utils.split_data(mx.nd.ones(33), 15, even_split=False)] == [3] * 3 + [
        2
    ] * 12
    assert [p.shape for p in gluon.utils.split_data(x, 2, batch_axis=1)] == [(5, 1), (5, 1)]
    with pytest.raises(mx.ShapeError, match="5 samples, along axis 0 of"):
        gluon.utils.split_data(x, 2)
    parts = gluon.utils.split_and_load(np.ones((4, 2)), [mx.cpu(0), mx.cpu(1)])
    assert [p.context for p in parts] == [mx.cpu(0), mx.cpu(1)]


def test_files_are_checked_and_never_downloaded(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("abc")
    digest = "a9993e364706816aba3e25717850c26c9cd0d89d"
    assert gluon.utils.check_sha1(str(file), digest) and not gluon.utils.check_sha1(str(file), digest[::-1])
    assert gluon.utils.download("http://example.org/a.txt", str(tmp_path), sha1_hash=digest) == str(file)
    with pytest.raises(FileNotFoundError, match="mxlite downloads nothing"):
        gluon.utils.download("http://example.org/b.txt", str(tmp_path))


def test_stores_add_16_bits_of_several_devices_in_float32_and_in_order():
    parts = [np.float16(x) * np.ones((300, 700), np.float16) for x in (2048, 1, 1)]
    values = [mx.nd.array(p, ctx=mx.cpu(i), dtype="float16") for i, p in enumerate(parts)]
    for kind in ("local", "device"):
        store = mx.kv.create(kind)
        store.init("w", mx.nd.zeros((300, 700), dtype="float16"))
        store.push("w", values)
        found = [v.copy() for v in values]
        store.pull("w", out=found)
        for array, context in zip(found, (mx.cpu(0), mx.cpu(1), mx.cpu(2)), strict=True):
            assert (array.asnumpy() == 2050).all() and array.context == context
    assert [v.asnumpy()[0, 0] for v in values] == [2048, 1, 1]
    parameter = gluon.Parameter("p", shape=(4,), dtype="float16")
    parameter.initialize(ctx=[mx.cpu(i) for i in range(3)])
    trainer = gluon.Trainer([parameter], "sgd")
    for array, x in zip(parameter.list_grad(), (2048, 1, 1), strict=True):
        array[:] = x
    trainer.allreduce_grads()
    assert [g.asnumpy().tolist() for g in parameter.list_grad()] == [[2050] * 4] * 3
    with pytest.raises(mx.ShapeError, match=r"is \(300, 700\), but \(2,\) was pushed"):
        store.push("w", [values[0], mx.nd.zeros((2,))])
