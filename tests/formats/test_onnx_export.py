"""Networks written as ONNX files compute there what they compute here."""

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx

import mxlite as mx
from mxlite.formats.onnx import backend

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

TEXT = dict(layers=2, width=16, heads=2, vocabulary=30, length=6)
SMALL = {
    "lstm": dict(hidden=8, vocabulary=20, steps=5),
    "lstm_unrolled": dict(hidden=8, features=4, steps=3, layers=2),
    "bert_base": TEXT, "gpt2": TEXT, "transformer": dict(TEXT, source_length=5), "unet": dict(width=4),
}  # fmt: skip
"""Options that make networks of the zoo small."""

SIDES = {
    "mlp": 0, "lenet": 28, "unet": 64, "resnet20_cifar": 32, "resnet56_cifar_v2": 32, "resnet18": 64,
    "mobilenet_v1": 64, "mobilenet_v2": 64, "densenet121": 64,
    "lstm": 0, "lstm_unrolled": 0, "bert_base": 0, "gpt2": 0, "transformer": 0,
}  # fmt: skip
"""Networks of the zoo of few parameters, and the side of their pictures, 0 without any."""


def drawn(symbol, **shapes):
    """Random parameters, and inputs that are whole numbers where the network looks rows up."""
    rng = np.random.default_rng(0)
    arg_shapes, _, aux_shapes = symbol.infer_shape(**shapes)
    params = {}
    for name, shape in zip(symbol.list_arguments(), arg_shapes):
        params[name] = rng.normal(0, 0.5 / max(1, np.prod(shape[1:])) ** 0.5, shape).astype("float32")
    for name, shape in zip(symbol.list_auxiliary_states(), aux_shapes):
        params[name] = rng.uniform(0.5, 1.5, shape).astype("float32")
    return params


def compare(symbol, params, inputs, path, tolerance=1e-4):
    """Assert that the file's outputs are the symbol's, by onnxruntime, else by our reader."""
    states = set(symbol.list_auxiliary_states())
    stored = {n: a for n, a in params.items() if n not in inputs}
    shapes = {n: x.shape for n, x in inputs.items()}
    types = {n: x.dtype for n, x in inputs.items()}
    labels = {n for n in symbol.list_arguments() if n.endswith("label")}
    stored = {n: a for n, a in stored.items() if n not in labels}
    written = mx.onnx.export_model(symbol, stored, shapes, types, str(path))
    onnx.checker.check_model(written, full_check=True)
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", **shapes)
    args = {n: mx.nd.array(a) for n, a in stored.items() if n not in states}
    executor.copy_params_from(args, {n: mx.nd.array(a) for n, a in stored.items() if n in states})
    ours = executor.forward(is_train=False, **{n: mx.nd.array(x) for n, x in inputs.items()})
    if onnxruntime is None:
        theirs = backend.prepare(onnx.load(written)).run(inputs)
    else:
        session = onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])
        theirs = session.run(None, inputs)
    for o, t in zip(ours, theirs, strict=True):
        assert o.shape == t.shape
        np.testing.assert_allclose(o.asnumpy(), t, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SIDES)
def test_networks_of_the_zoo(name, tmp_path):
    options = SMALL.get(name, {})
    symbol, shapes = mx.models.get(name, **options), mx.models.shapes_of(name, 2, **options)
    if SIDES[name]:
        shapes = {n: (*s[:2], SIDES[name], SIDES[name]) for n, s in shapes.items()}
    rng = np.random.default_rng(1)
    is_text = name in ("bert_base", "gpt2", "transformer", "lstm")
    inputs = {n: rng.normal(size=s).astype("float32") for n, s in shapes.items()}
    for n, s in shapes.items():
        if is_text and "state" not in n:
            inputs[n] = rng.integers(0 if len(s) > 1 else 3, 2 if n == "segment" else 5, s).astype("float32")
    compare(symbol, drawn(symbol, **shapes), inputs, tmp_path / "net.onnx")


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("resnet18_v2", 32), ("squeezenet1_1", 224), ("mobilenet0_25", 32), ("mobilenet_v2_0_25", 32),
    ],
)  # fmt: skip
def test_networks_of_gluon(name, side, tmp_path):
    symbol = getattr(mx.gluon.model_zoo.vision, name)()(mx.sym.Variable("data"))
    inputs = {"data": np.random.default_rng(1).normal(size=(1, 3, side, side)).astype("float32")}
    compare(symbol, drawn(symbol, data=(1, 3, side, side)), inputs, tmp_path / "net.onnx")


DATA = mx.sym.Variable("data")


@pytest.mark.parametrize(
    ("symbol", "shape"),
    [
        (mx.sym.LeakyReLU(DATA, act_type="prelu", name="p"), (2, 3, 4)),
        (mx.sym.LeakyReLU(DATA, act_type="elu", slope=0.5) + mx.sym.LeakyReLU(DATA, act_type="gelu"), (2, 3)),
        (mx.sym.mean(DATA, axis=1) * 2 - 3 / (mx.sym.exp(DATA).sum(axis=(1,)) + 1), (2, 3)),
        (mx.sym.broadcast_div(DATA, mx.sym.max(DATA, axis=2, keepdims=True) + 3), (2, 3, 4)),
        (mx.sym.dot(DATA, mx.sym.transpose(DATA)), (2, 3)),
        (mx.sym.batch_dot(DATA, DATA, transpose_b=True), (2, 3, 4)),
        (mx.sym.Pooling(DATA, kernel=(3, 2), stride=(2, 2), pooling_convention="full"), (1, 2, 6, 7)),
        (mx.sym.Pooling(DATA, kernel=(3,), pad=(1,), pool_type="avg", count_include_pad=False), (1, 2, 6)),
        (mx.sym.Deconvolution(DATA, kernel=(3, 3), stride=(2, 2), adj=(1, 1), num_filter=3), (1, 2, 4, 5)),
        (mx.sym.FullyConnected(DATA, num_hidden=3, flatten=False), (2, 3, 4)),
        (mx.sym.SliceChannel(DATA, num_outputs=3, axis=1, squeeze_axis=True)[1], (2, 3, 4)),
        (mx.sym.slice_axis(DATA, axis=-1, begin=-3, end=-1), (2, 3, 4)),
        (mx.sym.log_softmax(mx.sym.expand_dims(DATA, axis=1), axis=2), (2, 3)),
        (mx.sym.LogisticRegressionOutput(mx.sym.clip(DATA, 0, 1), name="out"), (2, 3)),
        (mx.sym.InstanceNorm(DATA, name="norm"), (2, 3, 4)),
    ],
)  # fmt: skip
def test_operators(symbol, shape, tmp_path):
    inputs = {"data": np.random.default_rng(3).normal(size=shape).astype("float32")}
    compare(symbol, drawn(symbol, data=shape), inputs, tmp_path / "net.onnx")


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("sides", [1, 2])
def test_recurrent_layers(mode, sides, tmp_path):
    names = ("state", "cell") if mode == "lstm" else ("state",)
    states = dict.fromkeys(names, (2 * sides, 3, 4))
    variables = [mx.sym.Variable(n) for n in ("data", "parameters", *states)]
    symbol = mx.sym.RNN(
        *variables, state_size=4, num_layers=2, mode=mode, bidirectional=sides == 2, state_outputs=True
    )
    shapes = {"data": (5, 3, 6), **states}
    rng = np.random.default_rng(4)
    inputs = {n: rng.normal(size=s).astype("float32") for n, s in shapes.items()}
    compare(symbol, drawn(symbol, **shapes), inputs, tmp_path / "net.onnx")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_attention_of_grouped_heads(causal, groups, tmp_path):
    variables = [mx.sym.Variable(n) for n in ("query", "key", "value", "length")]
    symbol = mx.sym.scaled_dot_product_attention(*variables, causal=causal, use_length=True)
    rng = np.random.default_rng(5)
    sizes = dict(query=(2, 4, 5, 3), key=(2, groups, 5, 3), value=(2, groups, 5, 6))
    inputs = {n: rng.normal(size=s).astype("float32") for n, s in sizes.items()}
    inputs["length"] = np.array([3, 5], "float32")
    compare(symbol, {}, inputs, tmp_path / "net.onnx")


def test_what_cannot_be_written_is_named_all_at_once(tmp_path):
    net = mx.sym.Correlation(mx.sym.topk(DATA), mx.sym.sort(DATA))
    with pytest.raises(mx.MXLiteError, match="Correlation, sort, topk"):
        mx.onnx.export_model(net, {}, [(1, 2, 3, 3)], onnx_file_path=str(tmp_path / "net.onnx"))
    with pytest.raises(mx.MXLiteError, match=r"'p'.*pooling"):
        net = mx.sym.Pooling(DATA, kernel=(2,), pool_type="sum", name="p")
        mx.onnx.export_model(net, {}, [(1, 2, 3)], onnx_file_path=str(tmp_path / "net.onnx"))
    with pytest.raises(mx.MXLiteError, match=r"in_shapes must have one for each of .'data'., got 2"):
        mx.onnx.export_model(mx.sym.relu(DATA), {}, [(1, 2), (3, 4)])
    assert not list(tmp_path.iterdir())


def test_files_are_taken_as_mxnet_takes_them(tmp_path):
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(DATA, num_hidden=3, name="fc"), name="softmax")
    params = drawn(net, data=(2, 4))
    arrays = {n: mx.nd.array(params[n]) for n in ("fc_weight", "fc_bias")}
    mx.model.save_checkpoint(str(tmp_path / "net"), 1, net, arrays, {})
    path = mx.contrib.onnx.export_model(
        str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0001.params"),
        input_shape=[(2, 4)], onnx_file_path=str(tmp_path / "net.onnx"),
    )  # fmt: skip
    symbol, args, _ = mx.onnx.import_model(path)
    assert set(args) == {"fc_weight", "fc_bias"} and symbol.list_arguments()[0] == "data"
    assert [o.name for o in onnx.load(path).graph.output] == ["softmax_output"]
