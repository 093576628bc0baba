"""Training in mixed precision: Module, loss scales, checkpoints, and what is learned."""

import logging
from pathlib import Path

import numpy as np
import pytest

import mxlite as mx
from mxlite import sym
from mxlite.core import bfloat16
from mxlite.core.errors import BindError, DTypeError
from mxlite.io.datasets import FASHION_MNIST
from mxlite.module.optim.loss_scale import are_finite, LossScale, WINDOW
from tests.networks.small_networks import mlp

KINDS = ["bfloat16", "float16"]


def numbers(count=48, width=6, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, width)).astype("float32")
    return x, np.argmax(x[:, :classes], axis=1).astype("float32")


def batches(**more):
    return mx.io.NDArrayIter(*numbers(), batch_size=16, **more)


def net_with_dropout():
    x = sym.FullyConnected(sym.Variable("data"), num_hidden=32, name="fc1")
    x = sym.Activation(sym.BatchNorm(x, fix_gamma=False, name="bn"), act_type="relu", name="relu")
    x = sym.FullyConnected(sym.Dropout(x, p=0.3, name="drop"), num_hidden=5, name="fc2")
    return sym.SoftmaxOutput(x, name="softmax")


def fit(net, epochs=2, module=None, **how):
    mx.random.seed(1)
    np.random.seed(1)
    module = module or mx.mod.Module(net, **how)
    module.fit(
        batches(), num_epoch=epochs, initializer=mx.init.Xavier(),
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9},
    )  # fmt: skip
    return module


def params(module):
    args, aux = module.get_params()
    return {n: a.asnumpy() for n, a in (args | aux).items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [None, 128.0, "dynamic"])
def test_fit_owns_what_its_plan_says(kind, scale):
    module = fit(net_with_dropout(), amp=kind, loss_scale=scale)
    assert module.is_fused
    assert module.measured_bytes == module.memory_plan.peak_bytes
    assert all(x.dtype == "float32" for x in params(module).values())
    assert all(np.all(np.isfinite(x)) for x in params(module).values())
    assert module.get_outputs()[0].dtype == np.float32
    for desc in module.data_shapes:  # fed in 16 bits, which is all that is read of it
        assert str(np.dtype(module._executor.arg_dict[desc.name].dtype)) == kind
    for desc in module.label_shapes:
        assert module._executor.arg_dict[desc.name].dtype == np.float32


def test_fit_within_a_budget_gives_the_same_bits():
    x = sym.Variable("data")
    for i in range(32):  # so many that activations take more than the scratch of one product
        x = sym.Activation(sym.FullyConnected(x, num_hidden=64, name=f"fc{i}"), act_type="tanh", name=f"t{i}")
    net = sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=5, name="score"), name="softmax")
    whole = fit(net, amp="bf16")
    plan = whole.memory_plan
    with pytest.raises(mx.MemoryBudgetError) as error:
        fit(net, amp="bf16", memory_budget=plan.lower_bound_bytes - 1)
    tight = fit(net, amp="bf16", memory_budget=error.value.least_feasible_bytes)
    assert tight.measured_bytes == tight.memory_plan.peak_bytes < plan.peak_bytes
    for name, value in params(whole).items():
        np.testing.assert_array_equal(params(tight)[name], value, name)


def test_a_fused_update_and_one_by_hand_give_the_same_bits():
    fused = fit(net_with_dropout(), amp="bf16")
    by_hand = fit(net_with_dropout(), amp="bf16", fused_update=False)
    assert fused.is_fused and not by_hand.is_fused
    for name, value in params(fused).items():
        np.testing.assert_array_equal(params(by_hand)[name], value, name)


def test_a_batch_of_another_size_stays_in_mixed_precision():
    module = fit(net_with_dropout(), amp="bf16")
    x, y = numbers(8)
    module.forward(mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array(y)]), is_train=True)
    module.backward()
    assert module._executor.amp == bfloat16
    assert any(t.op == "Cast" for t in module.memory_plan.problem.tasks)


# -- files -------------------------------------------------------------------------------------


def test_a_checkpoint_is_float32_and_is_read_with_and_without_mixed_precision(tmp_path):
    module = fit(net_with_dropout(), amp="bf16")
    prefix = str(tmp_path / "net")
    module.save_checkpoint(prefix, 2, save_optimizer_states=True)
    symbol, args, aux = mx.model.load_checkpoint(prefix, 2)
    assert "Cast" not in symbol.tojson() and symbol.list_arguments() == module.symbol.list_arguments()
    assert all(a.dtype == np.float32 for a in (*args.values(), *aux.values()))
    outs = []
    for kind in ("bf16", None):
        again = mx.mod.Module.load(prefix, 2, amp=kind, load_optimizer_states=True)
        again.bind(batches().provide_data, batches().provide_label)
        again.init_params()
        again.init_optimizer(optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
        for name, value in params(module).items():
            np.testing.assert_array_equal(params(again)[name], value, name)
        outs.append(again.predict(batches()).asnumpy())
    np.testing.assert_array_equal(outs[0], module.predict(batches()).asnumpy())
    np.testing.assert_allclose(outs[1], outs[0], atol=0.03)
    assert np.any(outs[1] != outs[0])


@pytest.mark.parametrize("kind, scale", [("bf16", None), ("fp16", "dynamic")])
def test_training_goes_on_to_the_same_bits_after_a_stop(tmp_path, monkeypatch, kind, scale):
    monkeypatch.setattr("mxlite.module.optim.loss_scale.WINDOW", 4)  # the scale moves within these few steps
    how = dict(optimizer_params={"learning_rate": 0.1, "momentum": 0.9}, initializer=mx.init.Xavier())
    prefix = str(tmp_path / "run")

    def run(epochs, **more):
        mx.random.seed(3)
        np.random.seed(3)
        module = mx.mod.Module(net_with_dropout(), amp=kind, loss_scale=scale)
        module.fit(batches(shuffle=True), num_epoch=epochs, **how, **more)
        return module

    whole = run(4)
    run(2, checkpoint_prefix=prefix)
    rest = run(4, checkpoint_prefix=prefix, resume=True)
    assert rest.loss_scale == whole.loss_scale
    for name, value in params(whole).items():
        np.testing.assert_array_equal(params(rest)[name], value, name)


# -- loss scales -------------------------------------------------------------------------------


def one_weight(scale, gradient):
    """A module of one weight, 1, with always this gradient, computed in float16; and a step at a learning
    rate of 1 / gradient, that gives the new weight."""
    x = sym.FullyConnected(sym.Variable("data"), num_hidden=1, no_bias=True, name="fc")
    net = sym.MakeLoss(sym.sum(x), grad_scale=gradient)
    module = mx.mod.Module(net, label_names=None, amp="fp16", loss_scale=scale)
    module.bind([("data", (1, 1))])
    module.init_params(mx.init.One())
    module.init_optimizer(optimizer_params={"learning_rate": 1 / gradient, "rescale_grad": 1.0})

    def step():
        module.train_step(mx.io.DataBatch([mx.nd.ones((1, 1))]))
        return float(module.get_params()[0]["fc_weight"].asnumpy()[0, 0])

    return module, step


def test_updates_too_small_for_float16_are_made_with_a_scale():
    assert one_weight(None, 3e-9)[1]() == 1.0
    assert one_weight(2.0**20, 3e-9)[1]() == pytest.approx(0, abs=1e-3)
    assert one_weight("dynamic", 3e-9)[1]() == pytest.approx(0, abs=1e-3)


def test_an_update_whose_gradients_overflow_is_skipped_and_halves_a_dynamic_scale(caplog):
    caplog.set_level(logging.INFO)
    module, step = one_weight("dynamic", 1.5)
    assert module.loss_scale == 2**16
    assert step() == 1.0 and module.loss_scale == 2**15  # 1.5 * 2^16 is beyond 65504
    assert "the loss scale is 32768 now" in caplog.text
    assert step() == pytest.approx(0, abs=1e-3)
    assert module.loss_scale == module._executor.loss_scale == 2**15
    module, step = one_weight(2.0**16, 1.5)
    assert step() == step() == 1.0 and module.loss_scale == 2**16


def test_a_dynamic_scale_grows_after_many_good_steps_and_never_beyond_its_bounds():
    scale = LossScale.of("dynamic", "float16")
    for _ in range(WINDOW - 1):
        scale.learn(True)
    assert scale.value == 2**16
    scale.learn(True)
    assert scale.value == 2**17
    for _ in range(20 * WINDOW):
        scale.learn(True)
    assert scale.value == 2**24
    for _ in range(60):
        scale.learn(False)
    assert scale.value == 1


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_gradients_are_finite_if_all_of_their_numbers_are(bad):
    large = [mx.nd.array(np.full((300, 300), x, "float32")) for x in (3e38, -3e38)]
    assert are_finite(large)
    large[1][7, 5] = bad
    assert not are_finite(large)
    assert not are_finite([mx.nd.array([np.inf, -np.inf])])


def test_what_makes_no_sense_is_refused():
    net = mlp()
    for kind in ("int8", "float32", 3):
        with pytest.raises(DTypeError, match="amp must be"):
            mx.mod.Module(net, amp=kind)
    with pytest.raises(BindError, match="loss_scale must be 'dynamic', a number above 0, or None"):
        mx.mod.Module(net, amp="fp16", loss_scale="automatic")
    with pytest.raises(BindError, match="number above 0"):
        mx.mod.Module(net, amp="fp16", loss_scale=-1)
    for scale in ("dynamic", 8.0):
        with pytest.raises(BindError, match="is for mixed precision"):
            mx.mod.Module(net, loss_scale=scale)


# -- what is learned ---------------------------------------------------------------------------


def dense_net():
    x = sym.Flatten(sym.Variable("data"))
    for i, width in enumerate((96, 48)):
        x = sym.FullyConnected(x, num_hidden=width, name=f"fc{i}")
        x = sym.Activation(x, act_type="relu", name=f"r{i}")
    return sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=10, name="score"), name="softmax")


def conv_net():
    x = sym.Variable("data")
    for i, filters in enumerate((8, 16)):
        x = sym.Convolution(x, num_filter=filters, kernel=(3, 3), pad=(1, 1), no_bias=True, name=f"conv{i}")
        x = sym.Activation(sym.BatchNorm(x, fix_gamma=False, name=f"bn{i}"), act_type="relu", name=f"r{i}")
        x = sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name=f"pool{i}")
    return sym.SoftmaxOutput(sym.FullyConnected(sym.Flatten(x), num_hidden=10, name="fc"), name="softmax")


def accuracy(net, data, kind, seed, epochs, batch=48, **how):
    """In percent, of the images that training has not seen."""
    train_x, train_y, test_x, test_y = data
    mx.random.seed(seed)
    np.random.seed(seed)
    train = mx.io.NDArrayIter(train_x, train_y, batch, shuffle=True, last_batch_handle="discard")
    module = mx.mod.Module(net, amp=kind, **how)
    steps = epochs * (len(train_x) // batch)
    module.fit(
        train, num_epoch=epochs, initializer=mx.init.Xavier(),
        optimizer_params={
            "learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3,
            "lr_scheduler": mx.lr_scheduler.CosineScheduler(steps, base_lr=0.1),
        },
    )  # fmt: skip
    assert module.measured_bytes == module.memory_plan.peak_bytes
    return 100 * module.score(mx.io.NDArrayIter(test_x, test_y, len(test_x)), "acc")[0][1]


def test_digits_are_learned_as_well_as_in_float32():
    """By two networks, from half of the images; differences of means scatter by 0.15 and 0.1."""
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn (mxlite[examples])")
    parts = mx.io.load_digits()
    x, y = np.concatenate(parts[::2]), np.concatenate(parts[1::2])
    half = x[:960], y[:960], x[960:], y[960:]
    for net, seeds, epochs, least in ((conv_net(), 8, 6, 92), (dense_net(), 8, 8, 92)):
        full, mixed = (
            np.mean([accuracy(net, half, kind, seed, epochs) for seed in range(seeds)])
            for kind in (None, "bf16")
        )
        assert full > least
        assert abs(mixed - full) < 0.5, (mixed, full)


def test_digits_are_learned_in_float16_with_a_dynamic_loss_scale():
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn (mxlite[examples])")
    parts = mx.io.load_digits()
    assert accuracy(conv_net(), parts, "fp16", 0, 5, loss_scale="dynamic") > 95


@pytest.mark.skipif(not Path(FASHION_MNIST).is_dir(), reason="dataset-fashion-mnist is not installed")
def test_fashion_mnist_is_learned_as_well_as_in_float32():
    """From a third of the images: differences of one seed scatter by 0.15, from a tenth by 0.4."""
    train_x, train_y, test_x, test_y = mx.io.load_fashion_mnist()
    data = train_x[:20000], train_y[:20000], test_x, test_y
    full, mixed = (
        np.mean([accuracy(dense_net(), data, kind, seed, 2, batch=64) for seed in range(2)])
        for kind in (None, "bf16")
    )
    assert full > 82 and abs(mixed - full) < 0.5, (mixed, full)


# -- a loss scale inside the step --------------------------------------------------------------


def overflowing(optimizer, scale="dynamic", window=3, **how):
    """An executor whose update is part of the step, and its input."""
    x = sym.FullyConnected(sym.Variable("data"), num_hidden=3, name="fc")
    net = sym.MakeLoss(sym.sum(sym.FullyConnected(x, num_hidden=1, name="score")))
    exe = net.simple_bind(mx.cpu(), data=(2, 4), amp="fp16", loss_scale=scale, optimizer=optimizer, **how)
    rng = np.random.default_rng(0)
    for a in exe.arg_arrays:
        a[:] = rng.standard_normal(a.shape)
    return exe, exe.arg_dict["data"].asnumpy()


def held(exe):
    """Copies of weights and states."""
    own = {n: exe.arg_dict[n] for n in exe.updated} | exe.optimizer_states
    return {n: a.asnumpy().copy() for n, a in own.items()}


def test_a_loss_scale_that_moves_is_that_of_every_shape():
    exe, _ = overflowing(mx.optimizer.SGD())
    exe.loss_scale = 4.0
    other = exe.reshape(data=(1, 4))
    assert other.loss_scale == 4.0
    other.loss_scale = 2.0
    assert exe.loss_scale == 2.0


@pytest.mark.parametrize(
    "optimizer", [mx.optimizer.SGD(momentum=0.9), mx.optimizer.Adam(), mx.optimizer.LAMB()]
)
def test_a_step_that_overflows_leaves_weights_and_states_as_they_are(optimizer):
    exe, data = overflowing(optimizer)
    rates = [[0.1, 0.01, 1.0][: optimizer.update_rule().rates]] * len(exe.updated)
    exe.loss_scale = 4.0
    exe.step(rates)
    assert exe.scale_history == (1, 1, 0) and exe.loss_scale == 4.0
    before = held(exe)
    exe.step(rates, data=data * 6e4)  # beyond float16
    assert exe.scale_history == (0, 1, 1) and exe.loss_scale == 2.0
    for name, value in held(exe).items():
        assert value.tobytes() == before[name].tobytes(), name
    exe.step(rates, data=data)
    assert exe.scale_history == (1, 2, 1)
    assert any(value.tobytes() != before[name].tobytes() for name, value in held(exe).items())


def test_a_number_as_scale_stays_and_its_overflows_are_left_out_too():
    exe, data = overflowing(mx.optimizer.SGD(), scale=8.0)
    before = held(exe)
    exe.step([[0.1, 0.0]] * len(exe.updated), data=data * 6e4)
    assert exe.loss_scale == 8.0 and exe.scale_history == (0, 0, 1)
    assert all(value.tobytes() == before[name].tobytes() for name, value in held(exe).items())


def test_the_scale_in_a_step_goes_the_way_of_the_one_on_the_host(monkeypatch):
    monkeypatch.setattr("mxlite.module.optim.loss_scale.WINDOW", 3)
    host = LossScale.of("dynamic", "float16")
    exe, data = overflowing(mx.optimizer.SGD(), scale=host.asked())
    rng = np.random.default_rng(5)
    seen = 0
    for _ in range(30):
        bad = rng.random() < 0.2
        exe.step([[0.0, 0.0]] * len(exe.updated), data=data * (1e6 if bad else 1))
        good, made, left_out = exe.scale_history
        host.learn(left_out == seen)
        assert not bad or left_out > seen
        assert (exe.loss_scale, good) == (host.value, host.good_steps)
        seen = left_out
    assert made > seen > 5


def test_both_ways_to_scale_train_the_same_bits_and_count_the_same_updates(monkeypatch):
    """Overflow in the first steps, by Adam, whose rate depends on the count."""
    monkeypatch.setattr("mxlite.module.optim.loss_scale.WINDOW", 3)
    found = []
    for fused in (True, False):
        mx.random.seed(3)
        np.random.seed(3)
        x = sym.FullyConnected(sym.Variable("data"), num_hidden=3, name="fc")
        net = sym.MakeLoss(sym.sum(sym.FullyConnected(x, num_hidden=1, name="score")), grad_scale=3.0)
        module = mx.mod.Module(net, label_names=None, amp="fp16", loss_scale="dynamic", fused_update=fused)
        module.bind([("data", (2, 4))])
        module.init_params(mx.init.Xavier())
        module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.01})
        scales = []
        for i in range(12):
            module.train_step(mx.io.DataBatch([mx.nd.ones((2, 4)) * (1 + i % 5)]))
            scales.append(module.loss_scale)
        assert module.is_fused == fused and len(set(scales)) > 2
        module._training.settle(module._binding)
        found.append(
            (
                scales,
                params(module),
                module._training.optimizer.num_update,
                bytes(module._training.updater.get_states()),
            )
        )
    assert found[0][0] == found[1][0] and found[0][2] == found[1][2] < 12
    for name, value in found[0][1].items():
        assert value.tobytes() == found[1][1][name].tobytes(), name


def test_all_gradients_of_a_scaled_step_live_until_the_last():
    """What loss scaling costs: an unscaled step gives each gradient's bytes back at once."""
    x = sym.Variable("data")
    for i in range(6):
        x = sym.FullyConnected(x, num_hidden=64, name=f"fc{i}")
    net = sym.MakeLoss(sym.sum(x))
    bytes_of = [
        net.simple_bind(
            mx.cpu(), data=(2, 64), amp="fp16", optimizer=mx.optimizer.SGD(), loss_scale=scale
        ).memory_plan.arena_bytes
        for scale in (None, "dynamic")
    ]
    assert bytes_of[0] < 4 * 64 * 64 * 4 < 6 * 64 * 64 * 4 < bytes_of[1]
