"""Networks written as ONNX files compute there what they compute here."""

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx

import mxlite as mx
from mxlite.formats.onnx import backend
from tests.tools.test_models import SMALL

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

ZOO = {
    "mlp": 1, "lenet": 1, "unet": 3, "resnet20_cifar": 3, "resnet164_cifar_v2": 3, "resnet18": 3,
    "resnet50": 3, "resnet18_v2": 3, "resnet50_memonger": 1, "vgg11_bn": 1,
    "inception_bn": 3, "mobilenet_v1": 3, "mobilenet_v2": 3, "densenet121": 3,
    "lstm": 2, "lstm_unrolled": 1, "bert_base": 1, "gpt2": 1, "transformer": 1,
}  # fmt: skip
"""One network of each builder, as small as SMALL makes it, and how many lengths of its inputs are free."""

GLUON = {
    "mobilenet0.25": 32, "mobilenetv2_0.25": 32, "resnet18_v1": 32, "squeezenet1.1": 224,
}  # fmt: skip
"""Networks whose operators those above do not have in the same way, and the side of pictures."""


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


def compare(symbol, params, inputs, path, longer=lambda length: 2 * length + 1, axes=None):
    """The names of the free axes of a file that computes what the symbol does, for other lengths of them too.

    By onnxruntime, else by our reader.
    """
    states, labels = (
        set(symbol.list_auxiliary_states()),
        {n for n in symbol.list_arguments() if n[-5:] == "label"},
    )
    stored = {n: a for n, a in params.items() if n not in inputs and n not in labels}
    shapes = {n: x.shape for n, x in inputs.items()}
    types = {n: x.dtype for n, x in inputs.items()}
    written = mx.onnx.export_model(
        symbol, stored, shapes, types, str(path), dynamic=True, dynamic_input_shapes=axes
    )
    model = onnx.load(written)
    onnx.checker.check_model(model, full_check=True)
    declared = {i.name: [d.dim_param for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    session = None if onnxruntime is None else session_of(written)
    for change in (lambda length: length, longer):
        fed = {
            n: np.resize(x, [change(d) if name else d for d, name in zip(x.shape, declared[n])])
            for n, x in inputs.items()
        }
        executor = symbol.simple_bind(mx.cpu(), grad_req="null", **{n: x.shape for n, x in fed.items()})
        args = {n: mx.nd.array(a) for n, a in stored.items() if n not in states}
        executor.copy_params_from(args, {n: mx.nd.array(a) for n, a in stored.items() if n in states})
        ours = executor.forward(is_train=False, **{n: mx.nd.array(x) for n, x in fed.items()})
        theirs = backend.prepare(model).run(fed) if session is None else session.run(None, fed)
        for o, t in zip(ours, theirs, strict=True):
            assert o.shape == t.shape
            assert np.abs(o.asnumpy() - t).max() <= 1e-4 * np.abs(t).max()
    return {name for names in declared.values() for name in names if name}


def session_of(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def test_every_builder_of_the_zoo_is_here():
    builders = {mx.models.about(n).build for n in mx.models.list_models()}
    assert {mx.models.about(n).build for n in ZOO} == builders and set(ZOO) <= set(SMALL)


@pytest.mark.parametrize("name", ZOO)
def test_networks_of_the_zoo(name, tmp_path):
    symbol, shapes = mx.models.get(name, **SMALL[name]), mx.models.shapes_of(name, 2, **SMALL[name])
    rng = np.random.default_rng(1)
    is_text = name in ("bert_base", "gpt2", "transformer", "lstm")
    inputs = {n: rng.normal(size=s).astype("float32") for n, s in shapes.items()}
    for n, s in shapes.items():
        if is_text and "state" not in n:
            inputs[n] = rng.integers(0 if len(s) > 1 else 3, 2 if n == "segment" else 5, s).astype("float32")
    free = compare(symbol, drawn(symbol, **shapes), inputs, tmp_path / "net.onnx", lambda length: 2 * length)
    assert len(free) == ZOO[name]


@pytest.mark.parametrize("name", GLUON)
def test_networks_of_gluon(name, tmp_path):
    side = GLUON[name]
    symbol = mx.gluon.model_zoo.vision.get_model(name, classes=10)(mx.sym.Variable("data"))
    inputs = {"data": np.random.default_rng(1).normal(size=(1, 3, side, side)).astype("float32")}
    params = drawn(symbol, data=(1, 3, side, side))
    assert len(compare(symbol, params, inputs, tmp_path / "net.onnx", lambda length: 2 * length)) == 3


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
    axes = {n: ("batch", s[1], "positions", s[3]) for n, s in sizes.items()} | {"length": ("batch",)}
    compare(symbol, {}, inputs, tmp_path / "net.onnx", axes=axes)


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


def test_free_axes_have_names_or_are_refused(tmp_path):
    symbol, shape = mx.models.get("lenet"), (2, 1, 28, 28)
    params = {n: a for n, a in drawn(symbol, data=shape).items() if n not in ("data", "softmax_label")}
    path = str(tmp_path / "net.onnx")

    def declared(*axes, **how):
        mx.onnx.export_model(symbol, params, [shape], np.float32, path, False, True, [axes], **how)
        infos = [*onnx.load(path).graph.input, *onnx.load(path).graph.output]
        return [[d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in infos]

    assert declared("batch", 1, 28, 28) == [["batch", 1, 28, 28], ["batch", 10]]
    assert declared(2, 1, 28, 28) == [[2, 1, 28, 28], [2, 10]]
    assert not onnx.load(path).graph.value_info
    assert declared(None, 1, 28, 28, run_shape_inference=True)[1] == ["data_axis0", 10]
    assert onnx.load(path).graph.value_info
    wanted = (
        r"Axis 2 of 'data' cannot be free: with another length for 28, FullyConnected 'fc1'.*'fc1_weight'"
    )
    with pytest.raises(mx.core.ShapeError, match=wanted):
        declared("batch", 1, "height", 28)
    with pytest.raises(
        mx.core.ArgumentError, match=r"has \('batch', 3, 28, 28\) for 'data'.*\(2, 1, 28, 28\)"
    ):
        declared("batch", 3, 28, 28)
    with pytest.raises(mx.core.ArgumentError, match="needs dynamic=True"):
        mx.onnx.export_model(symbol, params, [shape], dynamic_input_shapes=[("batch", 1, 28, 28)])
    sum_ = mx.sym.elemwise_add(DATA, mx.sym.Variable("other"), name="sum")
    with pytest.raises(
        mx.core.ShapeError, match=r"Axis 0 of 'data' cannot be free: with another length for 2, .*'sum'"
    ):
        mx.onnx.export_model(
            sum_, {}, [(2, 3), (2, 3)], onnx_file_path=path, dynamic=True,
            dynamic_input_shapes=[("rows", 3), ("others", 3)],
        )  # fmt: skip
    mean = mx.sym.Pooling(
        DATA, kernel=(3,), stride=(2,), pooling_convention="full", pool_type="avg", name="p"
    )
    with pytest.raises(mx.MXLiteError, match=r"Pooling 'p': an average over windows beyond"):
        mx.onnx.export_model(mean, {}, [(1, 2, 7)], onnx_file_path=path, dynamic=True)


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
