"""Programs in the manner of MXNet's Gluon examples train: hybridized, imperative, and both at once."""

import numpy as np
import pytest

import mxlite as mx
from mxlite import autograd, gluon
from mxlite.gluon import nn, rnn

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def seeds():
    mx.random.seed(4)
    np.random.seed(4)


def test_digits_with_a_data_loader_and_a_metric():
    x = RNG.standard_normal((120, 1, 8, 8)).astype("f")
    y = (x[:, 0, :4].sum((1, 2)) > 0).astype("f")
    data = gluon.data.ArrayDataset(x, y).transform_first(lambda a: a * 0.5)
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Dense(32, activation="relu"), nn.Dense(2))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "momentum": 0.9})
    loss_of, metric = gluon.loss.SoftmaxCrossEntropyLoss(), mx.metric.Accuracy()
    for _ in range(6):
        metric.reset()
        for data_x, label in gluon.data.DataLoader(data, 40, shuffle=True):
            with autograd.record():
                out = net(data_x)
                loss = loss_of(out, label)
            loss.backward()
            trainer.step(len(label))
            metric.update([label], [out])
    assert metric.get()[1] > 0.9


def test_super_resolution():
    class Net(gluon.Block):
        def __init__(self, factor, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.conv1 = nn.Conv2D(8, 5, padding=2)
                self.conv2 = nn.Conv2D(factor**2, 3, padding=1)
            self.factor = factor

        def forward(self, x):
            x = self.conv2(nd_relu(self.conv1(x)))
            x = mx.nd.reshape(x, (0, -4, -1, self.factor**2, 0, 0))
            x = mx.nd.reshape(x, (0, 0, -4, self.factor, self.factor, 0, 0))
            x = mx.nd.transpose(x, (0, 1, 4, 2, 5, 3))
            return mx.nd.reshape(x, (0, 0, -3, -3))

    nd_relu = mx.nd.relu
    large = RNG.random((6, 1, 8, 8)).astype("f")
    small = mx.nd.array(large.reshape(6, 1, 4, 2, 4, 2).mean((3, 5)))
    net, loss_of = Net(2), gluon.loss.L2Loss()
    net.initialize(mx.init.Orthogonal())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    losses = []
    for _ in range(25):
        with autograd.record():
            loss = loss_of(net(small), mx.nd.array(large))
        loss.backward()
        trainer.step(6)
        losses.append(float(loss.mean().asscalar()))
    assert losses[-1] < 0.6 * losses[0]


def test_a_generator_and_a_discriminator():
    generator = nn.HybridSequential(prefix="generator_")
    with generator.name_scope():
        generator.add(nn.Conv2DTranspose(8, 4, 1, 0, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
        generator.add(nn.Conv2DTranspose(1, 4, 2, 1, use_bias=False), nn.Activation("tanh"))
    judge = nn.HybridSequential(prefix="judge_")
    with judge.name_scope():
        judge.add(nn.Conv2D(8, 4, 2, 1, use_bias=False), nn.BatchNorm(), nn.LeakyReLU(0.2))
        judge.add(nn.Conv2D(1, 4, 1, 0, use_bias=False))
    for net in (generator, judge):
        net.initialize(mx.init.Normal(0.02))
        net.hybridize()
    loss_of = gluon.loss.SigmoidBinaryCrossEntropyLoss()
    trainers = [
        gluon.Trainer(n.collect_params(), "adam", {"learning_rate": 0.002}) for n in (generator, judge)
    ]
    real, ones, zeros = mx.nd.array(RNG.random((4, 1, 8, 8))), mx.nd.ones(4), mx.nd.zeros(4)
    losses = []
    for _ in range(3):
        noise = mx.nd.random.normal(shape=(4, 5, 1, 1))
        with autograd.record():
            good = loss_of(judge(real).reshape((-3, -3)), ones)
            fake = generator(noise)
            bad = loss_of(judge(fake.detach()).reshape((-3, -3)), zeros)
            loss = good + bad
        loss.backward()
        trainers[1].step(4)
        losses.append(float(loss.mean().asscalar()))
        with autograd.record():
            made = loss_of(judge(generator(noise)).reshape((-3, -3)), ones)
        made.backward()
        trainers[0].step(4)
    assert losses[-1] < losses[0] and np.isfinite(losses).all()


def test_an_actor_and_its_critic():
    class Policy(gluon.Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.dense = nn.Dense(16, in_units=4, activation="relu")
                self.action = nn.Dense(2, in_units=16)
                self.value = nn.Dense(1, in_units=16)

        def forward(self, x):
            x = self.dense(x)
            return mx.nd.softmax(self.action(x)), self.value(x)

    net, loss_of = Policy(), gluon.loss.L1Loss()
    net.initialize(mx.init.Uniform(0.02))
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 3e-2})
    share = []
    for _ in range(12):
        rewards, values, heads, actions = [], [], [], []
        with autograd.record():
            for _ in range(8):
                probabilities, value = net(mx.nd.array(RNG.standard_normal((1, 4))))
                action, logarithm = mx.nd.sample_multinomial(probabilities, get_prob=True)
                actions.append(int(action.asscalar()))
                rewards.append(float(actions[-1]))
                values.append(value)
                heads.append(logarithm)
            loss = sum(loss_of(v, mx.nd.array([r])) for v, r in zip(values, rewards))
            gains = [r - float(v.asscalar()) for r, v in zip(rewards, values)]
            final = [loss, *heads]
        autograd.backward(final, [mx.nd.ones(1), *(mx.nd.array([-g]) for g in gains)])
        trainer.step(8)
        share.append(np.mean(actions))
    assert np.mean(share[-3:]) > np.mean(share[:3])


def test_trees_are_run_node_by_node():
    class TreeCell(gluon.HybridBlock):
        """Child-sum LSTM for a node with two children's states."""

        def __init__(self, size, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.gates = nn.Dense(3 * size)
                self.forget = nn.Dense(size)

        def hybrid_forward(self, F, x, h1, c1, h2, c2):
            i, o, u = F.split(self.gates(F.concat(x, h1 + h2, dim=1)), num_outputs=3, axis=1)
            f1, f2 = (F.sigmoid(self.forget(F.concat(x, h, dim=1))) for h in (h1, h2))
            c = F.sigmoid(i) * F.tanh(u) + f1 * c1 + f2 * c2
            return F.sigmoid(o) * F.tanh(c), c

    def run(hybrid):
        mx.random.seed(1)
        embed, cell, head = nn.Embedding(5, 6), TreeCell(6), nn.Dense(1)
        blocks = (embed, cell, head)
        for b in blocks:
            b.initialize(mx.init.Xavier())
        zero = mx.nd.zeros((1, 6))

        def at(tree):
            word, *children = tree
            states = [at(c) for c in children] + [(zero, zero)] * (2 - len(children))
            return cell(embed(mx.nd.array([word])), *states[0], *states[1])

        trees = [((0, (1,), (2,)), 1.0), ((3, (0, (4,), (1,))), -1.0), ((2,), 0.5)]
        head(at(trees[0][0])[0])
        if hybrid:
            cell.hybridize()
        parameters = [p for b in blocks for p in b.collect_params().values()]
        trainer = gluon.Trainer(parameters, "adagrad", {"learning_rate": 0.1})
        losses = []
        for _ in range(5):
            with autograd.record():
                loss = sum(gluon.loss.L2Loss()(head(at(t)[0]), mx.nd.array([y])) for t, y in trees)
            loss.backward()
            trainer.step(3)
            losses.append(float(loss.asscalar()))
        return losses

    one_by_one, bound = run(False), run(True)
    assert one_by_one[-1] < 0.5 * one_by_one[0]
    np.testing.assert_allclose(one_by_one, bound, rtol=1e-3)


def test_house_prices_with_weight_decay_and_dropout():
    x = mx.nd.array(RNG.standard_normal((60, 12)))
    price = mx.nd.exp(x[:, 0:1] * 0.3 + 1)
    net = nn.Sequential()
    with net.name_scope():
        net.add(nn.Dense(24, activation="relu"), nn.Dropout(0.1), nn.Dense(1))
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.02, "wd": 0.1})
    square = gluon.loss.L2Loss()

    def error():
        out = mx.nd.log(mx.nd.clip(net(x), 1, float("inf")))
        return float(mx.nd.sqrt(2 * mx.nd.mean(square(out, mx.nd.log(price)))).asscalar())

    before = error()
    for _ in range(40):
        with autograd.record():
            loss = square(net(x), price)
        loss.backward()
        trainer.step(60)
    assert error() < 0.5 * before


def test_a_tagger_of_both_directions_with_several_lengths():
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Embedding(9, 8), rnn.LSTM(8, bidirectional=True, layout="NTC"), nn.Dense(2, flatten=False))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.03})
    loss_of, losses = gluon.loss.SoftmaxCELoss(), []
    for step in range(12):
        words = mx.nd.array(RNG.integers(0, 9, (5, 4 + step % 3)))
        with autograd.record():
            loss = loss_of(net(words), words > 4)
        loss.backward()
        trainer.step(5)
        losses.append(float(loss.mean().asscalar()))
    assert losses[-1] < 0.6 * losses[0]
