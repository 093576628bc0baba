"""Losses put on networks that have none."""

import numpy as np
import pytest

import mxlite as mx
from mxlite.formats.building.losses import with_loss


def trained(network, label, steps=30, **data):
    """The first and the last outputs of some steps."""
    executor = network.simple_bind(mx.cpu(), **{n: x.shape for n, x in data.items()})
    rng = np.random.default_rng(1)
    inputs = {**data, network.list_arguments()[-1]: label}
    weights = [n for n in network.list_arguments() if n not in inputs]
    for n in weights:
        executor.arg_dict[n][:] = rng.normal(0, 0.3, executor.arg_dict[n].shape).astype("float32")
    outs = []
    for _ in range(steps):
        (out,) = executor.forward(is_train=True, **{n: mx.nd.array(x) for n, x in inputs.items()})
        outs.append(out.asnumpy())
        executor.backward()
        for n in weights:
            executor.arg_dict[n][:] = executor.arg_dict[n] - 0.1 * executor.grad_dict[n]
    return outs[0], outs[-1]


@pytest.mark.parametrize(
    ("shape", "axis"), [((6, 5), 1), ((2, 3, 5), 2), ((2, 5, 3, 3), 1)], ids=["rows", "tokens", "pictures"]
)
@pytest.mark.parametrize("end", [None, mx.sym.softmax, mx.sym.log_softmax], ids=["plain", "softmax", "logs"])
def test_softmax_is_over_the_classes_and_takes_in_one_that_is_there(shape, axis, end):
    data = mx.sym.Variable("data")
    scale = mx.sym.Variable("scale", shape=(1, *shape[1:]))
    net = mx.sym.broadcast_mul(data, scale)
    net = with_loss(net if end is None else end(net, axis=axis), "softmax", {"data": shape})
    assert sum("softmax" in n for n in net.list_outputs()) == 1
    assert len([n for n in net.get_internals().list_outputs() if "softmax" in n and "label" not in n]) == 1
    label = np.random.default_rng(0).integers(0, 5, shape[:axis] + shape[axis + 1 :]).astype("float32")
    shown = label.reshape(len(label), -1) if label.ndim > 2 else label
    first, last = trained(net, shown, data=np.random.default_rng(2).normal(size=shape).astype("float32"))
    np.testing.assert_allclose(first.sum(axis), 1, rtol=1e-5)
    places = np.expand_dims(label.astype(int), axis)

    def loss(chances):
        return -np.log(np.take_along_axis(chances, places, axis)).mean()

    assert loss(last) < loss(first)


def test_a_softmax_over_another_axis_stays():
    net = mx.sym.softmax(mx.sym.Variable("data"), axis=1, name="weights")
    assert "weights_output" in with_loss(net, "softmax", {"data": (2, 3, 4)}).get_internals().list_outputs()


def test_mse_reaches_the_numbers():
    net = with_loss(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2), "mse")
    rng = np.random.default_rng(3)
    label = rng.normal(size=(4, 2)).astype("float32")
    first, last = trained(net, label, 200, data=rng.normal(size=(4, 3)).astype("float32"))
    assert np.abs(last - label).mean() < np.abs(first - label).mean() / 2


def test_what_has_no_place_for_a_loss_is_refused():
    data = mx.sym.Variable("data")
    with pytest.raises(mx.MXLiteError, match="'hinge' is none of softmax, mse"):
        with_loss(data * 2, "hinge")
    with pytest.raises(mx.MXLiteError, match="there are 2"):
        with_loss(mx.sym.Group([data * 2, data + 1]), "mse")
    with pytest.raises(mx.MXLiteError, match="a SoftmaxOutput: the network has a loss already"):
        with_loss(mx.sym.SoftmaxOutput(data, name="end"), "mse")
