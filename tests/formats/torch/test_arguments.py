"""Arguments of PyTorch's operators: each changes the network as it changes the module, or is refused."""

import pytest

pytest.importorskip("torch", reason="PyTorch is where these modules come from")

import torch
import torch.nn.functional as F
from torch import nn

import mxlite as mx
from mxlite.formats.building import NotSupportedError
from mxlite.formats.torch.table import CONVERTERS

from .peer import compare

pytestmark = pytest.mark.torch


class Scaled(nn.Module):
    """Calls a function of weight * x."""

    def __init__(self, call, shape):
        super().__init__()
        self.call, self.weight = call, nn.Parameter(torch.ones(shape))

    def forward(self, x):
        return self.call(self.weight * x)


CALLS = {
    "softplus-threshold": lambda x: F.softplus(x, beta=3, threshold=0.2),
    "round-decimals": lambda x: x + torch.round(x, decimals=2),
    "round-tens": lambda x: x + torch.round(x * 100, decimals=-1),
    "norm-least": lambda x: torch.linalg.vector_norm(x, -float("inf"), dim=1),
    "norm-count": lambda x: torch.linalg.vector_norm(torch.relu(x), 0, dim=1) + x.sum(1),
    "interpolate-corners": lambda x: F.interpolate(
        x[None], scale_factor=1.7, mode="linear", align_corners=True, recompute_scale_factor=False
    ),
    "variance-of-a-part": lambda x: torch.var(x, 1, correction=2),
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(0)),
    "fmod": lambda x: torch.fmod(x, 0.3),
    "moveaxis": lambda x: torch.moveaxis(x[None], 0, 2),
    "diagonal": lambda x: torch.diagonal(x, offset=1),
    "cross": lambda x: torch.linalg.cross(x[:, :3], x[:, 1:4]),
    "columns": lambda x: torch.column_stack((x[:, 0], x, x.sum(1))),
    "nan_to_num": lambda x: torch.nan_to_num(torch.where(x > 0.5, float("inf"), x), posinf=2.0) * x,
}


DRAWN = {
    "uniform": (lambda x: x + torch.empty_like(x).uniform_(2, 6), 4.0, 4 / 12**0.5),
    "normal": (lambda x: x + torch.empty_like(x).normal_(3, 0.5), 3.0, 0.5),
    "normal-of-a-size": (lambda x: x + torch.normal(1.0, 2.0, (4000,)), 1.0, 2.0),
    "exponential": (lambda x: x + torch.empty_like(x).exponential_(4.0), 0.25, 0.25),
    "gumbel": (lambda x: F.gumbel_softmax(x.reshape(-1, 2), tau=0.01).reshape(-1), 0.5, 0.5),
}


@pytest.mark.parametrize("name", DRAWN)
def test_numbers_are_drawn_as_pytorch_draws_them(name):
    draw, mean, deviation = DRAWN[name]
    symbol, args, _ = mx.from_torch(Scaled(draw, (4000,)), torch.zeros(4000))
    drawn = symbol.eval(x=mx.nd.zeros(4000), **args)[0].asnumpy()
    assert abs(drawn.mean() - mean) < 0.1 * max(deviation, 1)
    assert abs(drawn.std() - deviation) < 0.1 * deviation


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_does_what_it_does_in_pytorch(name):
    torch.manual_seed(0)
    compare(Scaled(CALLS[name], (4, 6)), (torch.randn(4, 6),))


ZEROS = {
    "norm": lambda x: torch.linalg.vector_norm(x, 2, dim=1),
    "norm-root": lambda x: torch.linalg.vector_norm(x, 0.5, dim=1),
    "normalize": lambda x: F.normalize(x, dim=1),
    "prod": lambda x: torch.prod(x, 1),
    "logsumexp": lambda x: torch.logsumexp(torch.where(x == 0, -float("inf"), x), 1).clamp(min=-9),
    "masked-softmax": lambda x: torch.ops.aten._safe_softmax(x.masked_fill(x == 0, -float("inf")), 1),
}


@pytest.mark.parametrize("name", ZEROS)
def test_gradients_at_zero_are_numbers_as_in_pytorch(name):
    x = torch.randn(4, 3)
    x[0] = 0
    x[1, 1] = 0
    compare(Scaled(ZEROS[name], (4, 3)), (x,))


class Bags(nn.Module):
    """Means of rows that are no padding, of bags of different lengths."""

    def __init__(self, **how):
        super().__init__()
        self.bag = nn.EmbeddingBag(7, 3, **how)
        self.starts = torch.tensor([0, 2, 6])

    def forward(self, x):
        return self.bag(x, self.starts)


@pytest.mark.parametrize(
    "how", [{"mode": "mean", "padding_idx": 2}, {"mode": "sum", "padding_idx": 2}, {"mode": "mean"}]
)
def test_bags_of_different_lengths_leave_out_padding(how):
    compare(Bags(**how), (torch.tensor([1, 2, 3, 2, 5, 6, 2, 2]),))


REFUSED = {
    "scaled by how often": (lambda x: F.embedding(x.long(), torch.ones(5, 2), scale_grad_by_freq=True)),
    "returns result 1 of aten.adaptive_max_pool2d": (
        lambda x: F.adaptive_max_pool2d(x.view(1, 1, 4, 6), 2, return_indices=True)
    ),
    "largest numbers": (
        lambda x: F.embedding_bag(x[0].long(), torch.ones(5, 2), torch.tensor([0, 2]), mode="max")[0]
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_has_no_counterpart_is_refused(said):
    with pytest.raises(NotSupportedError, match=said):
        mx.from_torch(Scaled(REFUSED[said], (4, 6)), torch.ones(4, 6))


def test_an_argument_that_a_converter_does_not_read_is_refused(monkeypatch):
    monkeypatch.setitem(CONVERTERS, "aten.roll", lambda n: n["self"])
    with pytest.raises(NotSupportedError, match=r"does not know what shifts=\[2\], dims=\[1\] does to it"):
        mx.from_torch(Scaled(lambda x: torch.roll(x, 2, 1), (4, 6)), torch.ones(4, 6))


class Loss(nn.Module):
    """Cross-entropy of weight * x."""

    def __init__(self, **how):
        super().__init__()
        self.weight, self.loss = nn.Parameter(torch.ones(6, 5)), nn.CrossEntropyLoss(**how)

    def forward(self, x, target):
        return self.loss(self.weight * x, target)


@pytest.mark.parametrize("weight", [None, torch.tensor([0.5, 2.0, 1.0, 3.0, 0.1])], ids=["plain", "weights"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_smoothed_labels_leave_out_what_is_ignored(weight, reduction, ignored):
    target = torch.tensor([0, 4, ignored, 3, 2, ignored])
    loss = Loss(weight=weight, reduction=reduction, ignore_index=ignored, label_smoothing=0.1)
    compare(loss, (torch.randn(6, 5), target))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_probabilities_are_weighed_by_class(smoothing):
    loss = Loss(weight=torch.tensor([0.5, 2.0, 1.0, 3.0, 0.1]), label_smoothing=smoothing)
    compare(loss, (torch.randn(6, 5), torch.softmax(torch.randn(6, 5), 1)))
