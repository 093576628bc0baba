"""A training step of Gluon as one program: it gives the numbers of calls by themselves, whatever is read."""

import copy

import numpy as np
import pytest

import mxlite as mx
from mxlite import gluon
from mxlite.gluon import nn
from mxlite.gluon.blocks import joined_program
from tests.gluon.test_hybridize import network, X, Y

OPTIMIZERS = {
    "sgd": {"learning_rate": 0.1},
    "momentum": {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01},
    "adam": {"learning_rate": 0.01},
    "scheduled": {"learning_rate": 0.1, "lr_scheduler": mx.lr_scheduler.FactorScheduler(2, 0.5)},
}


class Training:
    """A network of residual blocks with a hybridized loss, and its trainer."""

    def __init__(self, optimizer="momentum", dropout=0.0, trainer=gluon.Trainer, **options):
        self.net = network(4, dropout)
        self.net(mx.nd.array(X))
        self.net.hybridize(**options)
        self.loss = gluon.loss.SoftmaxCELoss()
        self.loss.hybridize()
        name = {"momentum": "sgd", "scheduled": "sgd"}.get(optimizer, optimizer)
        self.trainer = trainer(self.net.collect_params(), name, copy.deepcopy(OPTIMIZERS[optimizer]))
        self.steps = 0

    def forward(self, x=X):
        mx.random.seed(self.steps)  # two of these take turns
        self.steps += 1
        with mx.autograd.record():
            out = self.net(mx.nd.array(x))
            loss = self.loss(out, mx.nd.array(Y[: len(x)]))
        return out, loss

    def step(self, read=lambda out, loss: None, x=X):
        out, loss = self.forward(x)
        read(out, loss)
        loss.backward()
        self.trainer.step(len(x))
        return out.asnumpy(), loss.asnumpy()

    def values(self):
        return {n: p.data().asnumpy() for n, p in self.net.collect_params().items()}

    @property
    def gradients(self):
        return self.net.memory_plan.problem.fixed_bytes.get("gradients", 0)


def first(out, loss):
    loss.asnumpy()


def equal(one, other):
    for name, value in one.values().items():
        assert np.array_equal(value, other.values()[name]), name


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_gives_the_bits_of_programs_by_themselves_and_keeps_no_gradient(optimizer):
    whole, apart = Training(optimizer, 0.3), Training(optimizer, 0.3)
    for _ in range(4):
        for a, b in zip(whole.step(), apart.step(first)):
            assert np.array_equal(a, b)
    equal(whole, apart)
    assert apart.gradients > 0 == whole.gradients
    plan = whole.net.memory_plan
    assert whole.net.executor.measured_bytes == plan.peak_bytes
    assert whole.trainer.learning_rate == apart.trainer.learning_rate


def test_a_budget_holds_for_the_whole_step_and_changes_no_bit():
    free = Training()
    for _ in range(3):
        free.step()
    without = free.net.memory_plan.peak_bytes
    small = Training(memory_budget=1)
    with pytest.raises(mx.MemoryBudgetError) as caught:
        small.step()
    least = caught.value.least_feasible_bytes
    assert least < without
    small.net.hybridize(memory_budget=least)  # the step that did not fit has changed nothing
    for _ in range(3):
        small.step()
    assert small.net.executor.measured_bytes == small.net.memory_plan.peak_bytes <= least
    equal(free, small)


@pytest.mark.parametrize("what", ["output", "loss", "wait", "operation", "gradient", "plan"])
def test_what_is_read_before_the_step_makes_it_run_by_itself(what):
    whole, apart = Training(), Training()
    reads = {
        "output": lambda out, loss: out.asnumpy(),
        "loss": first,
        "wait": lambda out, loss: loss.wait_to_read(),
        "operation": lambda out, loss: (out * 2).sum().asnumpy(),
        "plan": lambda out, loss: apart.net.memory_plan,
    }
    for _ in range(3):
        whole.step()
        out, loss = apart.forward()
        if what != "gradient":
            reads[what](out, loss)
        loss.backward()
        if what == "gradient":
            assert np.abs(apart.net[0].weight.grad().asnumpy()).max() > 0
        apart.trainer.step(len(X))
    equal(whole, apart)
    assert apart.gradients > 0


def test_gradients_that_are_clipped_are_those_of_the_step():
    clipped, plain = Training(), Training()
    plain.loss.hybridize(False)
    for t in (clipped, plain):
        for _ in range(2):
            _, loss = t.forward()
            loss.backward()
            t.trainer.allreduce_grads()
            grads = [p.grad() for p in t.net.collect_params().values() if p.grad_req != "null"]
            gluon.utils.clip_global_norm(grads, 0.01)
            t.trainer.update(len(X))
    for name, value in clipped.values().items():
        np.testing.assert_allclose(value, plain.values()[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_steps_that_are_no_such_steps_run_by_themselves():
    class Own(gluon.Trainer):
        pass

    def mean(t):
        _, loss = t.forward()
        with mx.autograd.record():
            loss = loss.mean() * len(X)
        loss.backward()

    def twice(t):
        _, loss = t.forward()
        loss.backward()
        _, loss = t.forward()
        loss.backward()

    def retained(t):
        _, loss = t.forward()
        loss.backward(retain_graph=True)
        loss.backward()

    def weighted(t):
        _, loss = t.forward()
        loss.backward(mx.nd.ones(len(X)))

    whole = Training()
    for _ in range(2):
        whole.step()
    for back, trainer in (
        (mean, gluon.Trainer), (twice, gluon.Trainer), (retained, gluon.Trainer), (weighted, gluon.Trainer),
        (lambda t: t.forward()[1].backward(), Own),
    ):  # fmt: skip
        apart = Training(trainer=trainer)
        for _ in range(2):
            back(apart)
            apart.trainer.step(len(X))
        for name, value in whole.values().items():
            if back is not twice or "running" not in name:  # whose averages move twice
                np.testing.assert_allclose(value, apart.values()[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_trainer_may_keep_gradients():
    t = Training(trainer=lambda *args: gluon.Trainer(*args, update_on_kvstore=False))
    t.step()
    assert t.gradients > 0 and np.abs(t.net[0].weight.grad().asnumpy()).max() > 0


def test_a_batch_size_that_changes_each_time_costs_few_plans(monkeypatch):
    made = []
    bind = joined_program.simple_bind
    monkeypatch.setattr(joined_program, "simple_bind", lambda *a, **k: made.append(a) or bind(*a, **k))
    whole, apart = Training(), Training()
    for k in range(8):
        for t in (whole, apart):
            _, loss = t.forward()
            if t is apart:
                loss.asnumpy()
            loss.backward()
            t.trainer.step(8 + k)
    assert len(made) == 4
    equal(whole, apart)


def test_an_optimizer_of_ones_own_is_called():
    class Lazy(mx.optimizer.SGD):
        def update(self, index, weight, grad, state):
            pass

    t = Training(trainer=lambda params, name, options: gluon.Trainer(params, Lazy()))
    before = t.net[0].weight.data().asnumpy()
    t.step()
    assert np.array_equal(before, t.net[0].weight.data().asnumpy())


def test_gradients_that_are_added_are_kept():
    t = Training()
    t.net.collect_params().setattr("grad_req", "add")
    for times in (1, 2):
        _, loss = t.forward()
        loss.backward()
        now = t.net[0].weight.grad().asnumpy()
        if times == 1:
            once = now
    np.testing.assert_allclose(now, 2 * once, rtol=1e-3, atol=1e-5)


def test_a_gradient_has_died_in_the_step_and_says_so():
    t = Training()
    t.step()
    weight = t.net[0].weight
    with pytest.raises(mx.StateError, match=r"died inside the trainer's step.* update_on_kvstore=False"):
        weight.grad().asnumpy()
    with pytest.raises(mx.StateError, match="was not written by backward since the last step"):
        t.trainer.step(len(X))
    weight.zero_grad()
    assert (weight.grad().asnumpy() == 0).all()
    t.step()
    t.loss.hybridize(False)
    t.step()
    assert np.abs(weight.grad().asnumpy()).max() > 0


def test_what_is_written_to_inputs_after_the_call_is_not_seen():
    whole, other = Training(), Training()
    whole.step()
    x, y = mx.nd.array(X), mx.nd.array(Y)
    with mx.autograd.record():
        loss = other.loss(other.net(x), y)
    x[:] = 0
    y[:] = 0
    loss.backward()
    other.trainer.step(len(X))
    equal(whole, other)


def test_a_parameter_that_is_written_before_the_call_has_run_is_refused():
    t = Training()
    _, loss = t.forward()
    t.net[0].weight.data()[:] = 0
    with pytest.raises(mx.StateError, match="'net_conv0_weight' was written between the call of 'net' and"):
        loss.asnumpy()
    t.step()


def test_a_call_of_which_nothing_is_read_has_the_effects_of_a_call():
    whole, apart = Training(), Training()
    whole.forward()
    out, _ = apart.forward()
    out.asnumpy()
    for t in (whole, apart):
        t.net(mx.nd.array(X))
    equal(whole, apart)


def test_batches_of_other_sizes_share_the_states_of_the_optimizer():
    whole, apart = Training(), Training()
    held = set()
    for x in (X, X[:4], X, X[:4]):
        whole.step(x=x)
        assert whole.gradients == 0
        held.add(id(whole.trainer.updater.states[0].storage))
        apart.step(first, x)
    equal(whole, apart)
    assert len(held) == 1


def test_training_goes_on_from_saved_states(tmp_path):
    one, two = Training("adam"), Training("adam")
    for t in (one, two):
        t.step()
        t.step()
    two.trainer.save_states(str(tmp_path / "states"))
    two.net.save_parameters(str(tmp_path / "net"))
    two.step()  # which the loaded states undo
    three = Training("adam")
    for t in (two, three):
        t.net.load_parameters(str(tmp_path / "net"))
        t.trainer.load_states(str(tmp_path / "states"))
    for t in (one, two, three):
        t.step()
        assert t.gradients == 0
    equal(one, two)
    equal(one, three)


def test_rates_multipliers_and_frozen_parameters_may_change_between_steps():
    whole, apart = Training(), Training()
    for read, t in ((lambda out, loss: None, whole), (first, apart)):
        t.step(read)
        t.trainer.set_learning_rate(0.01)
        t.net[0].weight.lr_mult = 3.0
        t.step(read)
        t.net[0].weight.grad_req = "null"
        t.step(read)
        t.net[0].weight.grad_req = "write"
        t.step(read)
    equal(whole, apart)
    assert whole.gradients == 0


def test_a_loss_may_have_weights_and_networks_share_it():
    def run(read):
        mx.random.seed(3)
        loss = gluon.loss.L2Loss()
        loss.hybridize()
        found = []
        nets = [nn.Dense(3, in_units=4, prefix=f"net{i}_") for i in range(2)]
        for net in nets:
            net.initialize(mx.init.Xavier())
            net.hybridize()
        trainers = [gluon.Trainer(net.collect_params(), "adam") for net in nets]
        for k in range(3):
            losses = []
            for net in nets:
                with mx.autograd.record():
                    x, y = mx.nd.array(X[:, 0, k, :4]), mx.nd.array(X[:, 1, k, :3])
                    losses.append(loss(net(x), y * (1 + len(losses)), mx.nd.ones((8, 1)) * 0.5))
            for value, trainer in zip(losses, trainers):
                if read:
                    value.asnumpy()
                value.backward()
                trainer.step(8)
        for net in nets:
            found += [p.data().asnumpy() for p in net.collect_params().values()]
        return found

    for a, b in zip(run(False), run(True)):
        assert np.array_equal(a, b)


def test_a_gradient_takes_no_memory_before_it_is_used():
    x = mx.nd.ones((3, 4))
    x.attach_grad()
    assert (x.grad.shape, x.grad.dtype, x.grad.context) == ((3, 4), np.float32, mx.cpu())
    assert x.grad.away.is_computed
    assert (x.grad.asnumpy() == 0).all() and not hasattr(x.grad, "away")


@pytest.mark.parametrize("what", ["two calls", "two networks"])
def test_outputs_of_several_calls_in_one_loss(what):
    def run(read):
        mx.random.seed(3)
        loss = gluon.loss.L2Loss()
        loss.hybridize()
        nets = [nn.Dense(3, in_units=4, prefix=f"net{i}_") for i in range(2)]
        trainers = []
        for net in nets:
            net.initialize(mx.init.Xavier())
            net.hybridize()
            trainers.append(gluon.Trainer(net.collect_params(), "sgd"))
        one, other = (nets[0], nets[0]) if what == "two calls" else nets
        for k in range(3):
            with mx.autograd.record():
                outs = []
                for i, net in enumerate((one, other)):
                    outs.append(net(mx.nd.array(X[:, i, k, :4])))
                    if read:
                        outs[-1].asnumpy()
                value = loss(*outs)
            value.backward()
            for trainer in trainers if one is not other else trainers[:1]:
                trainer.step(8)
        return [p.data().asnumpy() for net in nets for p in net.collect_params().values()]

    for a, b in zip(run(False), run(True)):
        assert np.array_equal(a, b)


def test_a_step_that_fails_changes_nothing_for_the_next():
    whole, other = Training(), Training()
    with pytest.raises(mx.ShapeError, match="index must be"), mx.autograd.record():
        other.loss(other.net(mx.nd.array(X)), mx.nd.zeros((8, 4, 4)))
    with pytest.raises(mx.ShapeError, match="'net_conv0_weight' to be"), mx.autograd.record():
        other.net(mx.nd.array(X[:, :2]))
    _, loss = other.forward()
    loss.backward()
    with pytest.raises(mx.RangeError, match="divided by batch_size, which is 0"):
        other.trainer.step(0)
    with pytest.raises(mx.StateError, match="was freed by an earlier backward"):
        loss.backward()
    assert np.abs(other.net[0].weight.grad().asnumpy()).max() > 0
    other.steps = 0
    for t in (whole, other):
        t.step()
    for name, value in whole.values().items():
        if "running" not in name:  # whose averages have moved with the first backward pass
            assert np.array_equal(value, other.values()[name]), name


def test_a_batch_without_samples_runs_by_itself():
    t = Training()
    t.step()
    before = t.net[0].weight.data().asnumpy()
    with mx.autograd.record():
        loss = t.loss(t.net(mx.nd.zeros((0, 3, 12, 12))), mx.nd.zeros((0,)))
    assert loss.shape == (0,)
    t.step()
    assert not np.array_equal(before, t.net[0].weight.data().asnumpy())


def test_gradients_that_are_set_to_0_take_no_memory_for_it():
    whole, other = Training(), Training()
    for _ in range(3):
        whole.step()
        other.net.collect_params().zero_grad()
        other.step()
    equal(whole, other)
    other.net.collect_params().zero_grad()
    weight = other.net[0].weight
    assert weight.grad().away.is_computed and (weight.grad().asnumpy() == 0).all()
    _, loss = other.forward()
    loss.backward()
    other.net.collect_params().zero_grad()
    assert (weight.grad().asnumpy() == 0).all()
    before = weight.data().asnumpy()
    other.trainer._optimizer.momentum = other.trainer._optimizer.wd = 0.0
    other.trainer.step(8)
    loss.asnumpy()
    assert np.array_equal(weight.data().asnumpy(), before) and (weight.grad().asnumpy() == 0).all()
