"""Networks that PyTorch's two exporters write train as they do in PyTorch."""

import copy
import functools

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch", reason="PyTorch is where these networks come from")

import torch

import mxlite as mx
from mxlite.formats.onnx import import_model
from tests.formats import onnx_peer
from tests.formats.onnx_peer import older, settled, trained_as
from tests.formats.torch.modules import NETWORKS
from tests.formats.torch.peer import error_of

pytestmark = pytest.mark.torch

NO_MODEL = {
    "attention-clip": "a parameter without axes is read as a constant",
    "dense-raft": "detach is not in the file",
    "language-bert": "padding_idx, a rule about gradients, is not in the file",
    "losses-smoothed": "label_smoothing is not in the file",
    "losses-shares": "a loss of probabilities is written as one of class numbers",
    "operators-no-grad": "detach is not in the file",
    "sequence-temporal": "detach is not in the file",
    "vision-frozen": "the file does not tell which normalization is held in evaluation mode",
}
"""Networks of which neither exporter writes all that training needs, and why."""

NOT_LEGACY = {
    "attention-perceiver": "mT", "language-llama": "enable_gqa", "losses-l1": "l1_loss",
    "losses-smooth-l1": "smooth_l1_loss", "losses-huber": "huber_loss", "losses-bce": "binary_cross_entropy",
    "operators-index-put": "index_put of a row", "operators-adaptive": "adaptive_avg_pool2d",
    "operators-unshuffle": "channel_shuffle", "sequence-graph": "index_add",
}  # fmt: skip
"""Networks that the older exporter refuses or writes wrongly, and the function it lacks."""

NOT_NEWER = {"video-r2plus1d": "a convolution of volumes without a bias gets one of a wrong shape"}
"""Networks that the newer exporter writes wrongly, and why."""

ALIKE = set(
    "attention-maxvit attention-mixer attention-multihead dense-deeplab dense-retinanet language-gpt "
    "vision-alexnet vision-efficientnet vision-inception vision-mnasnet vision-regnet vision-resnet "
    "vision-resnext vision-squeezenet vision-vgg".split()
)
"""Networks for which the newer exporter writes no operator with attributes or inputs that others lack."""

OLDER = [n for n in NETWORKS if n not in NO_MODEL and n not in NOT_LEGACY]
NEWER = [n for n in NETWORKS if n not in NO_MODEL and n not in NOT_NEWER and n not in ALIKE]
NEWER = [n for n in NEWER if not n.startswith(("losses-", "operators-"))]


@pytest.fixture(scope="module", autouse=True)
def one_registry():
    """The newer exporter parses the source of some 500 functions at each export: here once for each opset."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:
        yield  # as in another version of PyTorch: it takes longer
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ONNXRegistry, "from_torchlib", staticmethod(functools.cache(ONNXRegistry.from_torchlib))
        )
        yield


def newer(module, inputs, opset=None, optimize=False):
    pytest.importorskip("onnxscript", reason="PyTorch's newer exporter is written in it")
    return onnx_peer.newer(module, inputs, opset, optimize)


def assert_trains_as(module, inputs, model):
    """Equal outputs, equal gradients of all parameters, and equal outputs after a step along them."""
    errors = trained_as(module, inputs, model)
    assert max(errors.outputs, errors.gradients, errors.after / 2) < 1e-4, errors


def test_both_exporters_write_thirty_networks_and_more():
    assert len(OLDER) >= 30 and len(NEWER) >= 30


@pytest.mark.parametrize("name", OLDER)
def test_a_model_of_the_older_exporter_trains_as_in_pytorch(name):
    module, inputs = settled(name)
    assert_trains_as(module, inputs, older(copy.deepcopy(module), inputs))


@pytest.mark.parametrize("name", NEWER)
def test_a_model_of_the_newer_exporter_trains_as_in_pytorch(name):
    module, inputs = settled(name)
    assert_trains_as(module, inputs, newer(copy.deepcopy(module), inputs))


class Changed(torch.nn.Module):
    """Operators whose definitions differ between the opsets."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.conv, self.norm = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.0)
        self.rnn, self.query = nn.GRU(6, 6, batch_first=True), nn.Linear(6, 4)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        F = torch.nn.functional
        x = F.relu(self.norm(self.conv(F.pad(x, (1, 1, 0, 0)))))
        x = F.avg_pool2d(F.pad(F.max_pool2d(x, 2), (0, 0, 1, 1)), 3, 1, 1)
        x = (x[:, :, :, 1:].mean(1) * 0.5).clamp(0.1, 0.4)
        x = self.drop(self.rnn(x.transpose(1, 2))[0])
        left, right = self.query(x).split(2, 2)
        weights = torch.softmax(left.matmul(right.transpose(1, 2)) / 1.4, 2)
        x = weights.matmul(x).sum(1).unsqueeze(1).squeeze(1)
        return F.log_softmax(self.head(x), 1), torch.cat([x, x.pow(2.0)], 1).amax(1)


@pytest.mark.parametrize("opset", range(7, 24))
def test_every_opset_trains(opset):
    torch.manual_seed(7)
    module, inputs = Changed().train(), (torch.randn(2, 3, 10, 14),)
    export = older if opset <= 20 else newer
    model = export(copy.deepcopy(module), inputs, opset)
    assert [o.version for o in model.opset_import if not o.domain] == [opset]
    assert_trains_as(module, inputs, model)


class Segmenter(torch.nn.Module):
    """A fully convolutional network with a second head, both at the size of the image."""

    def __init__(self, mode):
        super().__init__()
        nn = torch.nn
        self.fine, self.coarse = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(6, 8, 3, 2, 1)
        self.head, self.second = nn.Conv2d(8, 3, 1), nn.Conv2d(6, 3, 1)
        self.mode = mode

    def forward(self, x):
        fine = torch.relu(self.fine(x))
        maps = self.head(torch.relu(self.coarse(fine))), self.second(fine)
        return tuple(torch.nn.functional.interpolate(y, size=x.shape[-2:], mode=self.mode) for y in maps)


@pytest.mark.parametrize("opset", [9, 10])
def test_a_segmentation_network_of_an_old_opset_has_the_size_of_its_image(opset):
    """Scales are computed in the file, in float32: 13 / 7 of 7 rows are 13."""
    torch.manual_seed(7)
    module, inputs = Segmenter("nearest").train(), (torch.randn(2, 3, 13, 15),)
    assert_trains_as(module, inputs, older(copy.deepcopy(module), inputs, opset))


def test_an_old_bilinear_interpolation_is_that_of_the_file():
    """Before opset 11 it starts at the first element, which PyTorch's does not: its exporter says so."""
    runtime = pytest.importorskip("onnxruntime")
    torch.manual_seed(7)
    module, x = Segmenter("bilinear"), torch.randn(2, 3, 13, 15)
    model = older(module, (x,), 10)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    symbol, args, aux = import_model(model)
    ours = symbol.eval(x=mx.nd.array(x.numpy()), **args, **aux)
    for out, wanted in zip(ours, session.run(None, {"x": x.numpy()}), strict=True):
        assert error_of(out.asnumpy(), wanted) < 1e-5


def test_attention_of_the_newest_opset_trains():
    module, inputs = settled("language-llama")
    assert_trains_as(module, inputs, newer(copy.deepcopy(module), inputs, 23))


def test_a_model_exported_for_training_moves_its_averages_and_is_run_for_inference():
    module, inputs = settled("vision-resnet")
    symbol, args, aux = import_model(older(copy.deepcopy(module), inputs))
    assert set(aux) == {n for n, _ in module.named_buffers() if "running" in n}
    executor = symbol.simple_bind(mx.cpu(), x=tuple(inputs[0].shape))
    executor.copy_params_from(args, aux)
    x = mx.nd.array(inputs[0].numpy())
    executor.forward(is_train=True, x=x)[0].asnumpy()
    mx.torch.load_into(module, {}, executor.aux_dict)
    with torch.no_grad():
        wanted = module.eval()(*inputs).numpy()
    assert error_of(executor.forward(is_train=False, x=x)[0].asnumpy(), wanted) < 1e-4


@pytest.mark.parametrize(("loss", "label"), [("softmax", (4,)), ("mse", (4, 3))])
def test_a_model_gets_a_loss(loss, label):
    x = torch.randn(4, 5)
    model = older(torch.nn.Sequential(torch.nn.Linear(5, 3)), (x,))
    symbol, args, aux = import_model(model, loss=loss)
    assert symbol.list_arguments()[-1] == f"{loss}_label"
    data = mx.io.NDArrayIter({"input": x.numpy()}, {f"{loss}_label": np.ones(label, np.float32)}, 4)
    net = mx.mod.Module(symbol, data_names=["input"], label_names=[f"{loss}_label"])
    metric = mx.metric.Accuracy() if loss == "softmax" else mx.metric.MSE()
    rate = {"learning_rate": 0.3}
    net.fit(data, eval_metric=metric, num_epoch=60, arg_params=args, aux_params=aux, optimizer_params=rate)
    got = dict(net.score(data, metric))
    assert got.get("accuracy") == 1 or got.get("mse") < 0.05


class Block(torch.nn.Module):
    """A block of a causal transformer."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        nn = torch.nn
        self.heads, self.norm, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.unit = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, input):
        x = input
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).split(width, 2)
        q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.unit(self.norm2(x))


def recurrent(kind):
    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.head = kind(8, 16, 2, batch_first=True), torch.nn.Linear(16, 3)

        def forward(self, input):
            return self.head(self.net(input)[0])

    return Last()


def step_peak(symbol, **inputs):
    said = symbol.attr_dict()
    fixed = {n for n in symbol.list_arguments() if said.get(n, {}).get("__lr_mult__") == "0.0"} | set(inputs)
    requests = {n: "null" if n in fixed else "write" for n in symbol.list_arguments()}
    return symbol.memory_plan(mx.cpu(), grad_req=requests, **inputs).peak_bytes


TRANSFORMER = {"LayerNorm", "scaled_dot_product_attention", "gelu"}


@pytest.mark.parametrize(
    ("make", "shape", "expected"),
    [
        (lambda: torch.nn.Sequential(Block(), Block()), (2, 128, 32), TRANSFORMER),
        (lambda: recurrent(torch.nn.LSTM), (4, 20, 8), {"RNN"}),
        (lambda: recurrent(torch.nn.GRU), (4, 20, 8), {"RNN"}),
    ],
    ids=["attention", "lstm", "gru"],
)
@pytest.mark.parametrize(
    "export",
    [lambda m, x: older(m, x, 14), older, newer, lambda m, x: newer(m.eval(), x, optimize=True)],
    ids=["opset 14", "older", "newer", "optimized"],
)
def test_a_step_takes_little_more_than_that_of_the_module_itself(make, shape, expected, export):
    module, x = make().train(), torch.randn(shape)
    direct, _, _ = mx.from_torch(module, x)
    symbol, _, _ = import_model(export(copy.deepcopy(module), (x,)))
    assert step_peak(symbol, input=shape) <= 1.5 * step_peak(direct, input=shape)
    made = {n.op.op_name for n in symbol.graph.nodes if n.op is not None}
    assert expected <= made
