"""Small networks of each kind, and a few steps of training them."""

import hashlib
from typing import NamedTuple

import numpy as np

import mxlite as mx

sym = mx.sym


def _loss(data, classes=10):
    return sym.SoftmaxOutput(sym.FullyConnected(data, num_hidden=classes, name="last"), name="softmax")


def _conv():
    data = sym.Variable("data")
    for i, filters in enumerate((16, 32)):
        data = sym.Convolution(data, num_filter=filters, kernel=(3, 3), pad=(1, 1), name=f"c{i}")
        data = sym.Activation(sym.BatchNorm(data, name=f"b{i}"), act_type="relu")
        data = sym.Pooling(data, kernel=(2, 2), stride=(2, 2), pool_type="max")
    data = sym.Convolution(data, num_filter=32, kernel=(3, 3), pad=(1, 1), name="c2")
    return _loss(sym.Flatten(data)), dict(data=(16, 3, 16, 16), softmax_label=(16,))


def _dense():
    data = sym.Variable("data")
    for i in range(4):
        data = sym.Activation(sym.FullyConnected(data, num_hidden=128, name=f"f{i}"), act_type="relu")
    return _loss(data), dict(data=(64, 100), softmax_label=(64,))


def _rnn():
    states = [sym.Variable(n) for n in ("p", "s", "c")]
    data = sym.RNN(sym.Variable("data"), *states, mode="lstm", state_size=64, num_layers=2, name="rnn")
    net = _loss(sym.Reshape(data, shape=(-1, 64)))
    return net, dict(data=(12, 16, 32), softmax_label=(192,), s=(2, 16, 64), c=(2, 16, 64))


def _attention():
    data = sym.Variable("data")
    for i in range(2):
        normed = sym.LayerNorm(data, name=f"l{i}")
        heads = [
            sym.Reshape(
                sym.FullyConnected(normed, num_hidden=64, flatten=False, name=f"{n}{i}"), shape=(0, 0, 4, 16)
            )
            for n in "qkv"
        ]
        heads = [sym.transpose(h, axes=(0, 2, 1, 3)) for h in heads]
        data = data + sym.Reshape(
            sym.transpose(sym.scaled_dot_product_attention(*heads), axes=(0, 2, 1, 3)), shape=(0, 0, -1)
        )
    return _loss(sym.Reshape(data, shape=(-1, 64))), dict(data=(8, 32, 64), softmax_label=(256,))


def _norm():
    data = sym.Variable("data")
    for i in range(3):
        data = sym.LayerNorm(sym.FullyConnected(data, num_hidden=64, name=f"f{i}"), name=f"l{i}")
        data = sym.Activation(sym.BatchNorm(data, name=f"b{i}"), act_type="tanh")
    return _loss(data), dict(data=(128, 64), softmax_label=(128,))


NETWORKS = {"conv": _conv, "dense": _dense, "rnn": _rnn, "attention": _attention, "norm": _norm}


class Trained(NamedTuple):
    """The plan, the bytes that the program took, and a digest of what two steps made."""

    plan: mx.memplan.MemoryPlan
    measured: int
    bits: str


def trained(name, budget):
    """Two steps of a network within a budget."""
    net, shapes = NETWORKS[name]()
    sgd = mx.optimizer.SGD(learning_rate=0.1, momentum=0.9)
    executor = net.simple_bind(mx.cpu(), optimizer=sgd, memory_budget=budget, **shapes)
    rng = np.random.default_rng(0)
    for array in executor.arg_dict.values():
        array[:] = rng.standard_normal(array.shape) * 0.1
    feed = {
        n: rng.standard_normal(s) if n != "softmax_label" else rng.integers(0, 10, s)
        for n, s in shapes.items()
    }
    rates = np.tile([0.1, 0.0], (len(executor.updated), 1))
    for _ in range(2):
        outputs = executor.step(rates, **feed)
    digest = hashlib.sha256(outputs[0].asnumpy().tobytes())
    for n in sorted(executor.arg_dict):
        digest.update(executor.arg_dict[n].asnumpy().tobytes())
    return Trained(executor.memory_plan, executor.measured_bytes, digest.hexdigest())
