"""One import of a module runs and trains at several sizes of the batch."""

import pytest

pytest.importorskip("torch", reason="PyTorch is where these networks come from")

import torch
from torch import nn
from torch.nn import functional as F

import mxlite as mx
from mxlite.core import ShapeError
from mxlite.formats.building import NotSupportedError
from tests.formats.torch.modules import NETWORKS
from tests.formats.torch.peer import compare

pytestmark = pytest.mark.torch

NAMES = (
    "vision-resnet", "vision-efficientnet2", "attention-vit", "attention-swin", "attention-clip",
    "dense-unet", "dense-retinanet", "language-gpt-loss", "language-t5", "sequence-lstm", "sequence-dlrm",
)  # fmt: skip


class Calling(nn.Module):
    def __init__(self, work):
        super().__init__()
        self.work, self.fc = work, nn.Linear(4, 4)

    def forward(self, x):
        return self.work(self.fc(x))


def resized(inputs, batch, axis=0):
    return tuple(torch.cat([x] * batch, axis).narrow(axis, 0, batch) for x in inputs)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_pytorch_at_other_sizes(name):
    torch.manual_seed(7)
    module, inputs = NETWORKS[name]()
    symbol, args, aux = mx.from_torch(module, inputs, dynamic_batch=True)
    symbol = mx.sym.load_json(symbol.tojson())
    assert len(set(symbol.get_internals().list_outputs())) == len(symbol.get_internals().list_outputs())
    for batch in (2, 5):
        compare(module, resized(inputs, batch), imported=(symbol, args, aux))


def test_the_batch_is_the_axis_that_is_named():
    module, inputs = NETWORKS["sequence-gru"]()  # (time, batch, width)
    imported = mx.from_torch(module, inputs, dynamic_batch={"x": 1})
    compare(module, resized(inputs, 7, 1), imported=imported)
    translated, (x, y) = NETWORKS["attention-multihead"]()
    imported = mx.from_torch(translated, (x,), {"y": y}, dynamic_batch=["x", "y"])
    compare(translated, resized((x, y), 3), imported=imported)


def test_pairs_of_samples_are_compared():
    module = Calling(lambda x: ((x @ x.t()).unsqueeze(0) * torch.arange(x.shape[0])).softmax(-1))
    imported = mx.from_torch(module, torch.randn(3, 4), dynamic_batch=True)
    compare(module, (torch.randn(6, 4),), imported=imported)


def test_drawn_numbers_follow_the_batch():
    symbol, args, aux = mx.from_torch(
        Calling(lambda x: x * 0 + torch.randn_like(x)), torch.ones(2, 4), dynamic_batch="x"
    )
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", x=(500, 4))
    executor.copy_params_from(args, aux)
    drawn = executor.forward(is_train=True, x=mx.nd.ones((500, 4)))[0].asnumpy()
    assert drawn.shape == (500, 4) and abs(drawn.std() - 1) < 0.1


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda x: x.view(3, 4).sum(), r"times as long, torch.export cannot trace Calling .*test_batch\.py"),
        (lambda x: x.sum() / x.shape[0], r"_div_scalar .* fixes it, scalar=33.0 and .* scalar=39.0"),
        (lambda x: torch.stack(x.unbind(0)[::-1]), r"SliceChannel .* fixes it"),
        (
            lambda x: (x @ x.t()).view(1, 1, x.shape[0], -1),
            r"the lengths \[2, 3\] of its shape \(1, 1, 33, 33\)",
        ),
        (
            lambda x: x[torch.arange(x.shape[0]) ** 2 % 3],
            r"numbers that depend on the batch, of shape \(33,\)",
        ),
    ],
)
def test_a_module_that_fixes_the_batch_is_refused_by_name(work, said):
    with pytest.raises(NotSupportedError, match=f"The batch cannot be free.*{said}"):
        mx.from_torch(Calling(work), torch.randn(3, 4), dynamic_batch=True)


def test_inputs_without_a_batch_are_named():
    multihead, (x, y) = NETWORKS["attention-multihead"]()
    with pytest.raises(ShapeError, match="'x' has 2, 'y' has 7: name its inputs"):
        mx.from_torch(multihead, (x, y), dynamic_batch={"x": 0, "y": 1})
    with pytest.raises(ShapeError, match=r"names \['z'\], and forward was given x, y"):
        mx.from_torch(multihead, (x, y), dynamic_batch="z")
    with pytest.raises(ShapeError, match=r"'y' has shape \(2, 7, 16\), and no axis 3"):
        mx.from_torch(multihead, (x, y), dynamic_batch={"y": 3})
    with pytest.raises(ShapeError, match="no tensor with an axis"):
        mx.from_torch(Calling(F.relu), torch.tensor(1.0), dynamic_batch=True)
