"""Blocks: names, children, files, hooks."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import mxlite as mx
from mxlite import gluon
from mxlite.gluon import nn


@pytest.fixture(autouse=True)
def names_start_at_0():
    with mx.name.NameManager():
        yield


class Net(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            with self.body.name_scope():
                self.body.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.Conv2D(2, 1))
            self.out = nn.Dense(3, activation="tanh")

    def hybrid_forward(self, F, x):
        return self.out(self.body(x))


def test_names_are_those_of_mxnet():
    net, second = Net(), Net()
    assert list(net.collect_params()) == [
        "net0_hybridsequential0_conv0_weight",
        "net0_hybridsequential0_conv0_bias",
        "net0_hybridsequential0_batchnorm0_gamma",
        "net0_hybridsequential0_batchnorm0_beta",
        "net0_hybridsequential0_batchnorm0_running_mean",
        "net0_hybridsequential0_batchnorm0_running_var",
        "net0_hybridsequential0_conv1_weight",
        "net0_hybridsequential0_conv1_bias",
        "net0_dense0_weight",
        "net0_dense0_bias",
    ]
    assert second.name == "net1" and Net(prefix="mine_").out.weight.name == "mine_dense0_weight"
    assert net.body[2].name == "net0_hybridsequential0_relu0" and net.out.act.prefix == "net0_dense0_tanh_"


def test_blocks_outside_of_a_scope_count_on_their_own():
    net = nn.HybridSequential()
    net.add(nn.Dense(2), nn.Dense(2))
    assert [b.name for b in net] == ["dense0", "dense1"]
    assert nn.Dense(2).name == "dense2" and nn.Embedding(3, 2).weight.name == "embedding0_weight"


def test_an_empty_prefix_leaves_names_to_the_scope_around():
    outer = nn.HybridSequential(prefix="a_")
    with outer.name_scope():
        inner = nn.HybridSequential(prefix="")
        with inner.name_scope():
            inner.add(nn.Dense(1))
        outer.add(inner, nn.Dense(1))
    assert list(outer.collect_params(".*weight")) == ["a_dense0_weight", "a_dense1_weight"]


def test_parameters_are_shared_through_params():
    first = nn.Dense(3, in_units=4)
    second = nn.Dense(3, in_units=4, params=first.params)
    assert second.weight is first.weight and second.collect_params().keys() == first.collect_params().keys()
    first.initialize()
    x = mx.nd.ones((2, 4))
    assert np.array_equal(first(x).asnumpy(), second(x).asnumpy())


def test_parameters_are_selected_by_a_regular_expression():
    net = Net()
    assert list(net.collect_params(".*gamma|.*dense0_bias")) == [
        "net0_hybridsequential0_batchnorm0_gamma",
        "net0_dense0_bias",
    ]


def test_files_name_parameters_by_their_place(tmp_path):
    file = str(tmp_path / "net.params")
    net, other = Net(), Net(prefix="other_")
    net.initialize(mx.init.Xavier())
    x = mx.nd.random.normal(shape=(2, 3, 6, 6))
    y = net(x).asnumpy()
    net.save_parameters(file)
    assert list(mx.nd.load(file)) == [
        "body.0.weight", "body.0.bias", "body.1.gamma", "body.1.beta", "body.1.running_mean",
        "body.1.running_var", "body.3.weight", "body.3.bias", "out.weight", "out.bias",
    ]  # fmt: skip
    other.load_parameters(file)
    assert np.array_equal(other(x).asnumpy(), y)
    net.collect_params().save(file)
    by_name = Net(prefix="net0_")
    by_name.load_parameters(file)
    assert np.array_equal(by_name(x).asnumpy(), y)
    smaller = nn.HybridSequential()
    smaller.add(nn.Dense(3))
    smaller.initialize()
    smaller(mx.nd.ones((1, 2)))
    smaller.save_parameters(file)
    with pytest.raises(mx.UnknownNameError, match=r"'body\.0\.weight' is not in .*, nor are 9 others"):
        net.load_parameters(file)
    with pytest.raises(mx.UnknownNameError, match=r"has '0\.weight' and 1 others that are no parameters"):
        net.load_parameters(file, allow_missing=True)
    net.load_parameters(file, allow_missing=True, ignore_extra=True)
    mx.nd.save(file, [mx.nd.ones(2)])
    with pytest.raises(mx.FormatError, match="holds 1 arrays without names"):
        net.load_parameters(file)


def test_a_shared_parameter_is_saved_once_if_asked(tmp_path):
    file = str(tmp_path / "net.params")
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2))
    net.add(nn.Dense(2, in_units=2, params=net[0].params))
    net.initialize()
    net.save_parameters(file, deduplicate=True)
    assert list(mx.nd.load(file)) == ["0.weight", "0.bias"]
    net.load_parameters(file)


def test_children_of_hybrid_blocks_are_hybrid():
    net = nn.HybridSequential()
    with pytest.raises(
        TypeError, match=r"must be hybrid blocks, but 'lambda0' is a Lambda\. Sequential takes"
    ):
        net.add(nn.Lambda("tanh"))
    with pytest.raises(TypeError, match="the block must be a Block, got 3"):
        nn.Sequential().add(3)


def test_a_sequence_is_indexed_sliced_and_printed():
    net = nn.Sequential()
    net.add(nn.Dense(4, in_units=2), nn.Dropout(0.5), nn.Flatten())
    assert len(net) == 3 and net[-1] is list(net)[2] and [b.name for b in net[1:]] == ["dropout0", "flatten0"]
    assert repr(net) == (
        "Sequential(\n  (0): Dense(2 -> 4, linear)\n  (1): Dropout(p = 0.5, axes=())\n  (2): Flatten\n)"
    )


def test_an_attribute_of_a_network_is_not_replaced_by_something_else():
    net = Net()
    with pytest.raises(TypeError, match=r"Net\.out is a Dense of the network and cannot become 3"):
        net.out = 3


def test_hooks_are_called_before_and_after_until_they_are_detached():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    seen = []
    before = net.register_forward_pre_hook(lambda block, args: seen.append(args[0].shape))
    with net.register_forward_hook(lambda block, args, out: seen.append(out.shape)):
        net(mx.nd.ones((4, 3)))
    before.detach()
    net(mx.nd.ones((4, 3)))
    assert seen == [(4, 3), (4, 2)]


def test_apply_visits_children_before_their_parents():
    net, seen = Net(), []
    assert net.apply(lambda b: seen.append(b.name.rpartition("_")[2])) is net
    assert seen == ["conv0", "batchnorm0", "relu0", "conv1", "hybridsequential0", "tanh", "dense0", "net0"]


def test_a_summary_counts_parameters(capsys):
    net = Net()
    net.initialize()
    net.summary(mx.nd.ones((2, 3, 6, 6)))
    printed = capsys.readouterr().out
    assert "(2, 4, 4, 4)" in printed and "Dense" in printed
    total = sum(int(np.prod(p.shape)) for p in net.collect_params().values())
    assert f"{total} parameters, {total - 8} of them trained" in printed
    net.hybridize()
    with pytest.raises(mx.StateError, match="the network is hybridized"):
        net.summary(mx.nd.ones((2, 3, 6, 6)))


def test_a_block_may_mix_arrays_and_python():
    class Alternating(gluon.Block):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.a, self.b = nn.Dense(3), nn.Dense(3)

        def forward(self, x, times):
            for i in range(times):
                x = self.a(x) if i % 2 else self.b(x)
            return x

    net = Alternating()
    net.initialize()
    net.hybridize()
    assert net(mx.nd.ones((2, 3)), 3).shape == (2, 3)


def test_cast_converts_parameters_but_batch_norms_stay_float32_beside_float16():
    net = Net()
    net.initialize()
    net.cast("float16")
    x = mx.nd.ones((2, 3, 6, 6), dtype="float16")
    assert net(x).dtype == np.float16 and net.body[0].weight.dtype == "float16"
    assert net.body[1].gamma.data().dtype == np.float32
    net.cast("float64")
    assert net(x.astype("float64")).dtype == np.float64


def test_calls_with_something_else_than_arrays_are_refused():
    net = nn.Dense(2)
    net.initialize()
    with pytest.raises(ValueError, match="Dense 'dense0' takes NDArrays or Symbols, got ndarray"):
        net(np.ones((2, 3), "f"))
    with pytest.raises(ValueError, match="was called without an array"):
        net()


def test_the_names_of_mxnets_modules_give_the_same_objects():
    from mxlite.gluon.block import HybridBlock
    from mxlite.gluon.nn.basic_layers import Dense
    from mxlite.gluon.parameter import DeferredInitializationError, ParameterDict
    from mxlite.gluon.utils import split_and_load

    assert HybridBlock is gluon.HybridBlock and Dense is nn.Dense and ParameterDict is gluon.ParameterDict
    assert issubclass(DeferredInitializationError, mx.MXNetError)
    assert split_and_load is gluon.utils.split_and_load


def test_a_block_that_is_called_twice_is_traced_with_one_variable_for_each_parameter():
    class Twice(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.forget = nn.Dense(3)  # a name that a block of ours must not need

        def hybrid_forward(self, F, x):
            return self.forget(self.forget(x))

    net, x = Twice(), mx.nd.ones((2, 3))
    net.initialize()
    one = net(x).asnumpy()
    assert net(mx.sym.Variable("data")).list_arguments() == ["data", *net.collect_params()]
    net.hybridize()
    np.testing.assert_allclose(net(x).asnumpy(), one, rtol=1e-5)


def test_programs_that_import_mxnet_find_gluon():
    code = """
from mxlite.core.alias import stand_in
stand_in("mxnet")
import mxlite
from mxnet import gluon
from mxnet.gluon import nn, rnn
from mxnet.gluon.block import HybridBlock
from mxnet.gluon.data.dataloader import default_batchify_fn
from mxnet.gluon.data.vision import transforms
from mxnet.gluon.model_zoo import vision
import mxnet.gluon.utils as utils
assert gluon is mxlite.gluon and nn is gluon.nn and HybridBlock is gluon.HybridBlock
assert transforms.HybridSequential is nn.HybridSequential
from mxnet.contrib.io import DataLoaderIter
from mxnet.gluon.contrib.data.sampler import IntervalSampler
from mxnet.gluon.contrib.nn import PixelShuffle2D
assert nn.conv_layers is nn and gluon.block.Block is gluon.parameter.Block is gluon.Block
assert gluon.data.dataloader is gluon.data.loader
assert transforms is gluon.data.vision.transforms and utils.split_data is gluon.utils.split_data
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_errors_of_calls_name_the_block_and_what_would_help():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(2, in_units=3))
    net.initialize()
    x = mx.nd.ones((1, 3))
    with pytest.raises(
        mx.ShapeError, match=r"Dense 'net_dense0': FullyConnected: 'weight' must be .*2, 4.*2, 3"
    ):
        net(mx.nd.ones((1, 4)))
    hint = r"Dense 'net_dense0'.* of float32, the input of float64: x\.astype\('float32'\).*cast\('float64'\)"
    with pytest.raises(mx.DTypeError, match=hint):
        net(x.astype("float64"))
    for is_hybridized in (False, True):
        net.hybridize(is_hybridized)
        with pytest.raises(mx.ArgumentError, match=r"Dense 'net_dense0' takes \(x\), but was given 2 inputs"):
            net(x, x)
    with pytest.raises(mx.RangeError, match=r"inputs are on several devices, cpu\(0\) and cpu\(1\)"):
        loss = gluon.loss.L2Loss()
        loss.hybridize()
        loss(x, x.as_in_context(mx.cpu(1)))
    with pytest.raises(mx.ArgumentError, match=r"set_data wants an array of shape \(2, 3\), got 3"):
        net[0].weight.set_data(3)
    with pytest.raises(mx.RangeError, match="Dense: units must be at least 0, got -1"):
        nn.Dense(-1)
    with pytest.raises(mx.ArgumentError, match="batch_size must be a number, got 'three'"):
        gluon.Trainer(net.collect_params(), "sgd").step("three")
    lstm = gluon.rnn.LSTM(4, prefix="lstm_")
    lstm.initialize()
    with pytest.raises(mx.ShapeError, match=r"LSTM 'lstm' wants 3 axes, TNC, but the input is \(2, 3\)"):
        lstm(mx.nd.ones((2, 3)))


def test_blocks_in_lists_that_are_no_children_are_told_of():
    class Net(gluon.Block):
        def __init__(self, layers, registered):
            super().__init__()
            self.layers = {"a": [layers]}
            self.table = [[0.0] * 3, {"x": "y"}]
            self.table.append(self.table)
            if registered:
                self.register_child(layers)

    with pytest.warns(UserWarning, match=r"Net\.layers of 'net\d+' holds blocks that are not its children"):
        assert not gluon.nn.Sequential().collect_params() and not Net(nn.Dense(2), False).collect_params()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Net(nn.Dense(2), True).collect_params()) == 2
