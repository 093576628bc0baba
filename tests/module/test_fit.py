"""What `fit` and Module promise beyond learning: stops, resumes, states, sharing, input order."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import mxlite as mx
from tests.networks.small_networks import mlp, same, weights

PARAMS = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}


@pytest.fixture(autouse=True)
def ctrl_c():
    """As in a terminal, also where a shell has started the tests with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    after = signal.signal(signal.SIGINT, before)
    assert after is signal.default_int_handler


def iterator(n=32, batch=8):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, n)
    x = rng.standard_normal((n, 8)) + y[:, None]
    return mx.io.NDArrayIter(x.astype("float32"), y.astype("float32"), batch, shuffle=True)


def fit(module, epochs=2, train=None, **options):
    mx.random.seed(1)
    np.random.seed(1)
    options = {"optimizer_params": PARAMS, "initializer": mx.init.Xavier(), **options}
    module.fit(train or iterator(), num_epoch=epochs, **options)
    return module


def stop_after(batches):
    left = batches

    def callback(param):
        nonlocal left
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGINT)

    return callback


# -- stopping and going on -------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [True, False])
def test_a_run_stopped_twice_in_one_epoch_goes_on_to_the_same_bits(tmp_path, fused):
    whole = fit(mx.mod.Module(mlp(), fused_update=fused), epochs=3)
    prefix = str(tmp_path / "run")
    seen = []
    for batches in (1, 2, 3):
        module = mx.mod.Module(mlp(), fused_update=fused)
        callbacks = [lambda p: seen.append((p.epoch, p.nbatch)), stop_after(batches)]
        with pytest.raises(KeyboardInterrupt):
            fit(module, 3, batch_end_callback=callbacks, checkpoint_prefix=prefix, resume=True)
    last = mx.mod.Module(mlp(), fused_update=fused)
    fit(
        last,
        3,
        checkpoint_prefix=prefix,
        resume=True,
        batch_end_callback=lambda p: seen.append((p.epoch, p.nbatch)),
    )
    assert seen == [(e, b) for e in range(3) for b in range(4)]
    assert same(weights(last), weights(whole))


def test_resuming_a_finished_run_trains_no_more(tmp_path):
    prefix = str(tmp_path / "run")
    done = fit(mx.mod.Module(mlp()), checkpoint_prefix=prefix)
    seen = []
    again = fit(mx.mod.Module(mlp()), checkpoint_prefix=prefix, resume=True, batch_end_callback=seen.append)
    assert seen == []
    assert same(weights(again), weights(done))
    assert same(
        weights(fit(again, 3, checkpoint_prefix=prefix, resume=True)), weights(fit(mx.mod.Module(mlp()), 3))
    )


def test_a_second_ctrl_c_stops_at_once_and_writes_nothing(tmp_path):
    def twice(param):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second one interrupts")

    with pytest.raises(KeyboardInterrupt):
        fit(mx.mod.Module(mlp()), batch_end_callback=twice, checkpoint_prefix=str(tmp_path / "run"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_in_a_callback_gives_ctrl_c_back(error):
    def fail(param):
        raise error

    with pytest.raises(error):
        fit(mx.mod.Module(mlp()), batch_end_callback=fail)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_a_prefix_ctrl_c_still_ends_after_the_batch():
    module = mx.mod.Module(mlp())
    seen = []
    with pytest.raises(KeyboardInterrupt):
        fit(module, batch_end_callback=[stop_after(2), lambda p: seen.append(p.nbatch)])
    assert seen == [0, 1]


# -- optimizers ------------------------------------------------------------------------------------------


def test_an_optimizer_object_is_told_the_names_of_the_parameters():
    """By which a bias has no weight decay, as in one that is made by its name."""
    by_name = fit(mx.mod.Module(mlp()), optimizer_params={**PARAMS, "rescale_grad": 0.125})
    made = mx.optimizer.SGD(rescale_grad=0.125, **PARAMS)
    by_object = fit(mx.mod.Module(mlp()), optimizer=made)
    assert same(weights(by_name), weights(by_object))
    free = fit(mx.mod.Module(mlp()), optimizer_params={**PARAMS, "wd": 0.0, "rescale_grad": 0.125})
    assert not same(weights(by_name), weights(free))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_fixed_parameters_shift_no_rates_and_take_no_states(optimizer):
    params = {"learning_rate": 0.05, "wd": 0.1, **({"momentum": 0.9} if optimizer == "sgd" else {})}
    modules = []
    for fused in (True, False):
        module = mx.mod.Module(mlp(), fixed_param_names=["fc1_weight"], fused_update=fused)
        modules.append(fit(module, optimizer=optimizer, optimizer_params=params))
        sizes = {n: 4 * a.size for n, a in module.get_params()[0].items()}
        per_weight = 1 if optimizer == "sgd" else 2
        states = per_weight * (sum(sizes.values()) - sizes["fc1_weight"])
        rates = 3 * 2 * 8 if fused else 0
        assert module.memory_plan.breakdown["optimizer"] == states + rates
        assert module.measured_bytes == module.memory_plan.peak_bytes
    assert same(*map(weights, modules))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_states_go_between_fused_and_separate_updates(optimizer, tmp_path):
    """Saved, loaded into the other kind, trained and saved again: the same bytes all along."""
    params = {"learning_rate": 0.05, **({"momentum": 0.9} if optimizer == "sgd" else {})}
    path = str(tmp_path / "states")

    def make(fused):
        return fit(mx.mod.Module(mlp(), fused_update=fused), 1, optimizer=optimizer, optimizer_params=params)

    def states(module):
        module.save_optimizer_states(path + "2")
        with open(path + "2", "rb") as file:
            return file.read()

    source = fit(make(True), 1, optimizer=optimizer, optimizer_params=params)
    source.save_optimizer_states(path)
    wanted = None
    for fused in (True, False):
        module = make(fused)
        module.set_params(*source.get_params())
        module.load_optimizer_states(path)
        assert states(module) == states(source)
        for batch in mx.io.NDArrayIter(np.ones((16, 8), "float32"), np.zeros(16, "float32"), 8):
            module.train_step(batch)
        found = (states(module), weights(module))
        wanted = wanted or found
        assert found[0] == wanted[0]
        assert same(found[1], wanted[1])
    assert wanted[0] != states(source)


def test_a_new_optimizer_starts_with_new_states():
    found = []
    for fused in (True, False):
        module = fit(mx.mod.Module(mlp(), fused_update=fused), 1)
        other = {**PARAMS, "learning_rate": 0.03}
        module.init_optimizer(optimizer_params=other, force_init=True)
        fresh = mx.mod.Module(mlp(), fused_update=fused)
        train = iterator()
        fresh.bind(train.provide_data, train.provide_label)
        fresh.set_params(*module.get_params())
        fresh.init_optimizer(optimizer_params=other)
        for batch in mx.io.NDArrayIter(np.ones((8, 8), "float32"), np.zeros(8, "float32"), 8):
            for m in (module, fresh):
                m.train_step(batch)
        assert same(weights(module), weights(fresh))
        found.append(weights(module))
    assert same(*found)


def test_a_budget_refused_to_a_fused_module_names_one_that_works():
    """The refusal must speak of the whole step, not of the forward pass that is bound at first."""
    with pytest.raises(mx.MemoryBudgetError) as caught:
        fit(mx.mod.Module(mlp(), memory_budget="1kB"))
    module = fit(mx.mod.Module(mlp(), memory_budget=caught.value.least_feasible_bytes))
    assert module.is_fused
    assert module.memory_plan.peak_bytes <= caught.value.least_feasible_bytes


# -- calls in and out of order ---------------------------------------------------------------------------


def test_update_belongs_to_a_backward():
    module = fit(mx.mod.Module(mlp()), 1)
    batch = next(iter(iterator()))
    module.forward(batch, is_train=True)
    with pytest.raises(mx.StateError, match="forward and backward first"):
        module.update()
    module.backward()
    module.update()


def test_input_gradients_are_there_although_fusing_was_asked_for():
    module = mx.mod.Module(mlp(), fused_update=True)
    train = iterator()
    module.bind(train.provide_data, train.provide_label, inputs_need_grad=True)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer_params=PARAMS)
    module.forward_backward(next(iter(train)))
    module.update()
    assert np.abs(module.get_input_grads()[0].asnumpy()).sum() > 0


def test_binding_anew_keeps_parameters_and_changes_shapes():
    module = fit(mx.mod.Module(mlp()), 1)
    before = weights(module)
    module.bind([("data", (3, 8))], [("softmax_label", (3,))], force_rebind=True)
    assert module.output_shapes[0][1] == (3, 5)
    assert same(weights(module), before)


def test_a_module_bound_to_another_shares_its_parameters():
    first = fit(mx.mod.Module(mlp()), 1)
    second = mx.mod.Module(mlp())
    second.bind([("data", (2, 8))], for_training=False, shared_module=first)
    before = weights(second)
    assert same(before, weights(first))
    fit(first, 1)
    assert same(weights(second), weights(first))
    assert not same(weights(second), before)


def test_training_at_another_batch_size_keeps_states_and_rates():
    """A last batch of another size does not start momentum anew."""
    found = []
    for fused in (True, False):
        module = fit(mx.mod.Module(mlp(), fused_update=fused), 1)
        for n in (8, 3, 8):
            batch = mx.io.DataBatch([mx.nd.ones((n, 8))], [mx.nd.zeros((n,))])
            module.train_step(batch)
            assert module.get_outputs()[0].shape == (n, 5)
        found.append(weights(module))
    assert same(*found)


# -- evaluating ------------------------------------------------------------------------------------------


def test_score_starts_from_the_beginning_and_ends_where_it_is_told():
    module = fit(mx.mod.Module(mlp()))
    data = iterator()
    first = module.score(data, "acc")
    assert module.score(data, "acc") == first
    assert module.score(data, mx.metric.Accuracy()) == first
    metric = mx.metric.Accuracy()
    module.score(data, metric, num_batch=1)
    assert metric.num_inst == 8
    module.score(data, metric, num_batch=2, reset=False)
    assert metric.num_inst == 16


def test_validation_has_a_metric_of_its_own():
    seen = []
    fit(
        mx.mod.Module(mlp()), 1, eval_data=iterator(), validation_metric="ce",
        eval_end_callback=lambda p: seen.append(p.eval_metric.get_name_value()),
    )  # fmt: skip
    assert seen[0][0][0] == "cross-entropy"
