"""Block.save and Block.load, and what op hooks are shown."""

import json

import numpy as np
import pytest

import mxlite as mx
from mxlite import autograd, gluon, nd
from mxlite.gluon import nn


class Row(nn.Block):
    """Blocks one after another, which are known by names that follow from counters."""

    def add(self, block):
        self._children[block.name + str(len(self._children))] = block
        return self

    def forward(self, x):
        for block in self._children.values():
            x = block(x)
        return x


def network():
    return Row().add(Row().add(nn.Dense(4, activation="relu"))).add(nn.HybridSequential()).add(nn.Dense(2))


def saved(prefix):
    net = network()
    net._children[list(net._children)[1]].add(nn.BatchNorm(), nn.Dense(3))
    net.initialize()
    net.hybridize()
    x = nd.array(np.random.default_rng(0).standard_normal((2, 5)))
    y = net(x).asnumpy()
    net.save(str(prefix))
    return x, y


def like():
    net = network()
    net._children[list(net._children)[1]].add(nn.BatchNorm(), nn.Dense(3))
    return net


def test_a_network_that_the_same_code_made_gets_names_values_and_programs(tmp_path):
    x, y = saved(tmp_path / "net")
    net = like()
    before = list(net._structured())
    net.load(str(tmp_path / "net"))
    assert (net(x).asnumpy() == y).all()
    assert list(net._structured()) != before  # those of the file
    assert list(net._children.values())[1].memory_plan.peak_bytes > 0  # hybridized as it was


def test_damaged_files_and_other_networks_are_refused_before_anything_changes(tmp_path):
    saved(tmp_path / "net")
    file = tmp_path / "net-model.json"
    good = json.loads(file.read_text())
    ((top, about),) = good.items()
    last = list(about)[-1]
    net = like()
    names = list(net._structured())
    for bad, why in (
        (file.read_text()[:-9], "cut short"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "top must be an object.*list"),
        (json.dumps({"dense0": about}), "another network: it has dense0 where this one has 'row0'"),
        (json.dumps({top: [1]}), "'row0' must be an object"),
        (json.dumps({top: {**about, "children": 3}}), "'children' of 'row0' must be an object"),
        (json.dumps({top: {**about, "children": {"a": "b"}}}), "'row0' has 1 children, and 3 here"),
        (json.dumps({top: {k: v for k, v in about.items() if k != last}}), f"where this one has '{last}'"),
    ):
        file.write_text(bad)
        with pytest.raises(mx.FormatError, match=why):
            net.load(str(tmp_path / "net"))
    assert list(net._structured()) == names
    with pytest.raises(mx.MissingFileError, match=r"none-model\.json"):
        net.load(str(tmp_path / "none"))


def test_an_op_hook_sees_what_operators_compute_in_every_call():
    net, loss_of = nn.HybridSequential(prefix="net_"), gluon.loss.L2Loss()
    with net.name_scope():
        net.add(nn.Dense(2, in_units=3), nn.Activation("relu"))
    net.initialize("ones")
    net.hybridize()
    loss_of.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    x = nd.array([[1, 2, 3]])
    net(x)
    seen = []
    nn.Sequential().register_op_hook(print)  # of blocks that are not hybrid, those below
    net.register_op_hook(lambda name, operator, array: seen.append((name, operator, array.asnumpy().sum())))
    with autograd.record():  # which would be deferred
        loss = loss_of(net(x), nd.zeros((1, 2)))
    loss.backward()
    assert seen[:2] == [
        ("net_dense0_fwd_output", "FullyConnected", 12),
        ("net_relu0_fwd_output", "Activation", 12),
    ]
    assert "net_relu0_fwd_backward_output" in {name for name, *_ in seen[2:]}  # what dense's output gets
    trainer.step(1)
    net.hybridize()
    net.register_op_hook(lambda name, operator, array: seen.append(name), monitor_all=True)
    del seen[:]
    net(x)
    assert seen == [
        *(f"net_dense0_fwd_{n}" for n in ("data", "weight", "bias", "output")),
        "net_relu0_fwd_input0",
        "net_relu0_fwd_output",
    ]
