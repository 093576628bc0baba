"""MXNet's private names and habits on which GluonNLP, GluonTS and Sockeye rely."""

import subprocess
import sys

import numpy as np
import pytest

import mxlite as mx
from mxlite import gluon
from mxlite.gluon import nn


def test_modules_have_the_names_that_libraries_import():
    program = """
from mxlite.core.alias import stand_in
stand_in("mxnet")
import multiprocessing
import mxnet as mx
from mxnet.gluon.block import _flatten, Block, HybridBlock
from mxnet.gluon.contrib.rnn import LSTMPCell
from mxnet.gluon.contrib.rnn.rnn_cell import dynamic_unroll
from mxnet.gluon.data.dataloader import _as_in_context, ForkingPickler
from mxnet.gluon.nn.activations import Activation
from mxnet.gluon.utils import replace_file
from mxnet.metric import ndarray
assert multiprocessing.pool.Pool and ndarray is mx.nd
assert mx.gluon.parameter.Parameter is mx.gluon.Parameter and mx.gluon.block.Block is mx.gluon.Block
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_nested_lists_are_flattened():
    a, b = mx.nd.ones((2,)), mx.sym.Variable("b")
    found, _ = gluon.block.flattened([a, [b, None]], "input")
    assert found == [a, b]
    with pytest.raises(ValueError, match="input: nested lists of NDArrays or Symbols, got int"):
        gluon.block.flattened([a, 3], "input")


def test_a_batch_moves_to_a_device():
    a = mx.nd.ones((2,))
    moved = gluon.data.loader.as_in_context([a, (a, 3)], mx.cpu(1))
    assert [moved[0].context, moved[1][0].context] == [mx.cpu(1)] * 2 and moved[1][1] == 3


def test_a_file_is_moved_over_another(tmp_path):
    for name in ("new", "old"):
        (tmp_path / name).write_text(name)
    gluon.utils.replace_file(str(tmp_path / "new"), str(tmp_path / "old"))
    assert (tmp_path / "old").read_text() == "new" and not (tmp_path / "new").exists()


class Doubled(nn.Dense):
    """A layer that does something before the forward pass of its base, as Sockeye's output layer does."""

    def forward(self, x, other):
        assert other is None
        return super().forward(x * 2)


@pytest.mark.parametrize("outside", [False, True])
def test_a_forward_of_a_subclass_runs_at_each_call_and_once(outside):
    net = Doubled(3, in_units=4)
    net.initialize()
    x = mx.nd.array(np.arange(8).reshape(2, 4))
    expected = net(x, None).asnumpy()
    if outside:

        class Outside(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.inner = net

            def hybrid_forward(self, F, x):
                return self.inner(x, None)

        net = Outside()
    net.hybridize()
    for _ in range(2):
        found = net(x) if outside else net(x, None)
        np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-6)


def test_states_that_begin_with_an_open_batch_are_chosen_before_the_first_place():
    """GluonTS resets states by `where` with those of the beginning, whose batch size no symbol knows."""

    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.cell = gluon.rnn.LSTMCell(4, input_size=3)

        def hybrid_forward(self, F, x, padded):
            batch = 0 if F is mx.sym else len(x)
            begin = self.cell.begin_state(func=F.zeros, batch_size=batch)
            states = [F.where(padded.repeat(4, axis=1), b, b) for b in begin]
            return self.cell(x, states)[0]

    net = Net()
    net.initialize()
    x, padded = mx.nd.ones((2, 3)), mx.nd.zeros((2, 1))
    expected = net(x, padded).asnumpy()
    net.hybridize()
    np.testing.assert_allclose(net(x, padded).asnumpy(), expected, rtol=1e-6)


def test_where_passes_lengths_on_between_all_its_arrays():
    names = ("c", "x", "y")
    out = mx.sym.where(*map(mx.sym.Variable, names))
    for shapes in (
        {"c": (2, 3), "x": (0, 3), "y": (0, 0)},
        {"c": (2,), "x": (0, 3), "y": (0, 0)},
        {"c": (2, 3), "x": (0, 3), "y": (2, 0)},
    ):
        arguments, outputs, _ = out.infer_shape(**shapes)
        assert arguments[1:] == [(2, 3)] * 2 and outputs == [(2, 3)]
    with pytest.raises(mx.MXNetError, match="where"):
        out.infer_shape(c=(4, 3), x=(2, 3), y=(2, 3))


def test_an_array_tells_a_dtype():
    label = mx.nd.zeros((2,), dtype="int32")
    assert mx.nd.ones((2,)).astype(label).dtype == np.int32
    same = mx.nd.ones((2,), dtype="int32")
    assert same.astype(label, copy=False) is same


def test_a_range_of_axes_takes_the_shape_of_another():
    a = mx.nd.array(np.arange(12).reshape(6, 2))
    other = mx.nd.zeros((2, 3, 5))
    a.attach_grad()
    with mx.autograd.record():
        found = a.reshape_like(other, lhs_end=1, rhs_end=2)
        (found * found).sum().backward()
    assert found.shape == (2, 3, 2)
    np.testing.assert_array_equal(a.grad.asnumpy(), 2 * a.asnumpy())
    with pytest.raises(mx.MXNetError, match=r"cannot reshape \(6, 2\) like \(2, 3, 5\)"):
        a.reshape_like(other)


def test_states_may_be_written_without_the_optimizer(tmp_path):
    """Sockeye writes them itself, as MXNet's Trainer does where it updates."""

    def step(net, trainer):
        with mx.autograd.record():
            loss = (net(mx.nd.ones((2, 3))) ** 2).sum()
        loss.backward()
        trainer.step(2)

    nets = [nn.Dense(2, in_units=3, prefix="net_") for _ in range(2)]
    trainers = []
    for net in nets:
        net.initialize(mx.init.One())
        trainers.append(gluon.Trainer(net.collect_params(), "adam"))
    one, other = trainers
    assert one._kv_initialized and not one._params_to_init and not one._update_on_kvstore
    step(nets[0], one)
    (tmp_path / "states").write_bytes(one._updaters[0].get_states(dump_optimizer=False))
    other.load_states(str(tmp_path / "states"))
    nets[1].weight.set_data(nets[0].weight.data())
    nets[1].bias.set_data(nets[0].bias.data())
    for net, trainer in zip(nets, trainers):
        step(net, trainer)
    np.testing.assert_array_equal(nets[0].weight.data().asnumpy(), nets[1].weight.data().asnumpy())


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8"])
@pytest.mark.parametrize("hybrid", [False, True])
def test_relu_takes_whole_numbers_as_a_beam_search_does(dtype, hybrid):
    net = nn.HybridLambda(lambda F, x: F.relu(x) + 1)
    if hybrid:
        net.hybridize()
    values = np.array([3, 0, -1 if dtype != "uint8" else 200, 2]).astype(dtype)
    found = net(mx.nd.array(values, dtype=dtype))
    assert found.dtype == np.dtype(dtype).type
    np.testing.assert_array_equal(found.asnumpy(), np.maximum(values, 0) + 1)


def test_a_numpy_type_names_a_dtype_among_choices():
    drawn = mx.nd.sample_multinomial(mx.nd.array([[0, 1.0]]), dtype=np.int32)
    assert drawn.dtype == np.int32 and drawn.asscalar() == 1


def test_an_optimizer_tells_the_rates_of_several_weights():
    optimizer = mx.optimizer.SGD(learning_rate=0.5, wd=0.25, param_idx2name={0: "a_weight", 1: "b_bias"})
    optimizer.set_lr_mult({0: 0.1})
    assert optimizer._get_lrs([0, 1]) == [0.05, 0.5] and optimizer._get_wds((0, 1)) == [0.25, 0.0]
