"""Export, SymbolBlock, and files of MXNet 1.9.1."""

from pathlib import Path

import numpy as np
import pytest

import mxlite as mx
from mxlite import gluon
from mxlite.gluon import nn

X = np.random.default_rng(4).standard_normal((2, 3, 8, 8)).astype("f")
GOLDEN = Path(__file__).parents[1] / "golden"


def network():
    mx.random.seed(2)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    with mx.autograd.record():
        loss = net(mx.nd.array(X)).sum()
    loss.backward()  # so that the averages are not those at the start
    return net


def test_export_writes_what_imports_and_module_read(tmp_path):
    net = network()
    expected = net(mx.nd.array(X)).asnumpy()
    files = net.export(str(tmp_path / "net"), epoch=3)
    assert [Path(f).name for f in files] == ["net-symbol.json", "net-0003.params"]
    names = set(mx.nd.load(files[1]))
    assert {"arg:net_conv0_weight", "aux:net_batchnorm0_running_mean"} <= names
    block = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    np.testing.assert_allclose(block(mx.nd.array(X)).asnumpy(), expected, atol=1e-5)
    symbol, args, states = mx.model.load_checkpoint(str(tmp_path / "net"), 3)
    assert symbol.list_outputs() == ["net_dense0_fwd_output"]
    module = mx.mod.Module(symbol, label_names=None)
    module.bind([("data", X.shape)], for_training=False)
    module.set_params(args, states)
    module.forward(mx.io.DataBatch([mx.nd.array(X)]), is_train=False)
    np.testing.assert_allclose(module.get_outputs()[0].asnumpy(), expected, atol=1e-5)


def test_a_symbol_block_trains_and_shares_parameters():
    net = network()
    data = mx.sym.Variable("data")
    out = net(data)
    features = gluon.SymbolBlock(
        out.get_internals()["net_relu0_fwd_output"], data, params=net.collect_params()
    )
    assert features(mx.nd.array(X)).shape == (2, 4, 6, 6)
    whole = gluon.SymbolBlock(out, data, params=net.collect_params())
    assert whole.collect_params()["net_conv0_weight"] is net[0].weight
    with mx.autograd.record():
        loss = (whole(mx.nd.array(X)) ** 2).sum()
    loss.backward()
    bound = net[0].weight.grad().asnumpy()
    with mx.autograd.record():
        loss = (net(mx.nd.array(X)) ** 2).sum()
    loss.backward()
    np.testing.assert_allclose(bound, net[0].weight.grad().asnumpy(), rtol=2e-3, atol=1e-4)


def test_a_symbol_block_of_its_own_defers_shapes_and_is_part_of_a_network():
    data = mx.sym.Variable("data")
    hidden = mx.sym.FullyConnected(data, num_hidden=5, name="fc")
    net = nn.HybridSequential()
    net.add(
        gluon.SymbolBlock([mx.sym.relu(hidden), hidden], data),
        nn.HybridLambda(lambda F, a, b: F.concat(a, b)),
    )
    net.initialize()
    assert net(mx.nd.ones((2, 3))).shape == (2, 10)
    assert net.collect_params()["fc_weight"].shape == (5, 3)
    net.hybridize()
    assert net(mx.nd.ones((2, 3))).shape == (2, 10)


def test_mistakes_are_told(tmp_path):
    net = nn.Dense(2)
    with pytest.raises(mx.StateError, match=r"export: .* has not run yet"):
        net.export(str(tmp_path / "net"))
    with pytest.raises(TypeError, match="inputs are variables"):
        gluon.SymbolBlock(mx.sym.relu(mx.sym.Variable("x")), mx.sym.relu(mx.sym.Variable("x")))
    block = gluon.SymbolBlock(mx.sym.relu(mx.sym.Variable("x")), mx.sym.Variable("x"))
    with pytest.raises(TypeError, match="SymbolBlock takes 1 inputs, x, but got 2"):
        block(mx.nd.ones(2), mx.nd.ones(2))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(mx.FormatError):
        gluon.SymbolBlock.imports(str(tmp_path / "bad.json"), "data")


def test_a_checkpoint_of_mxnet_gives_mxnets_outputs():
    file = str(GOLDEN / "mxnet" / "lenet-symbol.json")
    block = gluon.SymbolBlock.imports(
        file, ["data", "softmax_label"], str(GOLDEN / "mxnet" / "lenet-0001.params")
    )
    x, y, expected = (np.load(GOLDEN / "mxnet" / f"lenet-{n}.npy") for n in ("input", "label", "output"))
    np.testing.assert_allclose(block(mx.nd.array(x), mx.nd.array(y)).asnumpy(), expected, atol=1e-5)


def test_an_initializer_in_the_attributes_of_a_call_is_not_that_of_its_parameters():
    """GluonCV writes `attr={"__init__": mx.init.Xavier()}`; MXNet fills both by the usual rules."""
    data = mx.sym.Variable("data")
    scale = mx.sym.Variable("scale", init=mx.init.Constant(5), shape=(1,))
    out = mx.sym.FullyConnected(data, num_hidden=2, name="fc", attr={"__init__": mx.init.Xavier()})
    block = gluon.SymbolBlock(mx.sym.broadcast_mul(out, scale), data)
    block.initialize(mx.init.Constant(3))
    # What a variable says of itself counts.
    np.testing.assert_array_equal(block(mx.nd.ones((1, 4))).asnumpy(), [[5 * (4 * 3 + 3)] * 2])
