"""Expressions that use operators no network above uses: each is a function of a matrix of parameters."""

import torch
from torch import nn
from torch.nn import functional as F


class Expression(nn.Module):
    def __init__(self, work, *shape):
        super().__init__()
        self.work, self.weight = work, nn.Parameter(torch.rand(*shape) + 0.3)

    def forward(self, x):
        return self.work(x * self.weight)


def of(work, *shape):
    shape = shape or (3, 4)
    return lambda: (Expression(work, *shape), (torch.randn(*shape),))


def written(x):
    y = x.clone()
    y[:, 1] = 2.0
    y[0].mul_(3.0)
    y[:, ::2] += 1
    return y.relu_()


def written_at(x):
    y = torch.zeros_like(x)
    y[torch.tensor([2, 0])] = x[:2]
    return y.index_put((torch.tensor([0, 1]),), x[1], accumulate=True)


def gathered(x):
    return x.gather(1, torch.tensor([[0, 2], [1, 1], [3, 0]])) + x.index_select(1, torch.tensor([1, 3]))


def activated(x):
    works = (F.selu, F.mish, F.hardtanh, F.logsigmoid, F.softsign, F.celu)
    return sum((work(x) for work in works), F.softplus(x, 2.0))


def sampled(x):
    """Positions in and beyond the image, in each mode."""
    grid = torch.linspace(-1.4, 1.3, 12).view(1, 2, 3, 2) + x.mean()
    ways = [("bilinear", "zeros", True), ("bilinear", "border", False), ("bicubic", "reflection", True)]
    found = [F.grid_sample(x, grid, mode, padding, align) for mode, padding, align in ways]
    return sum(found) + F.grid_sample(x, grid.detach(), "nearest", align_corners=False)


def meshed(x):
    a, b = torch.meshgrid(x[0], x[:, 1], indexing="xy")
    c, d, e = torch.meshgrid(x[0], x[:, 1], x[1], indexing="ij")
    return a * b, c * d + e


NETWORKS = {
    "in-place": of(written),
    "index-put": of(written_at),
    "statistics": of(lambda x: torch.cat([x.var(1), x.std(0, correction=0), x.norm(dim=1), x.logsumexp(1)])),
    "extremes": of(lambda x: x.max() + x.min(dim=1).values + x.amin(1) + torch.maximum(x, -x).mean(1)),
    "scalars": of(lambda x: (2 - x) / 3 + 1 / (x * x + 1) + x**3 + (x.abs() + 1) ** 0.5 - torch.rsub(x, 1.0)),
    "rounding": of(
        lambda x: (
            x * torch.floor(x) + x * torch.round(2 * x) + torch.where(x > 0, x, 0.1 * x) + x.clamp(-0.5, 0.5)
        )
    ),
    "order": of(lambda x: torch.sort(x, dim=1)[0] + x.flip(0) + x.roll(1, 1) + x.cumsum(1)),
    "gather": of(
        lambda x: (
            x.gather(1, torch.tensor([[0, 2], [1, 1], [3, 0]])) + x.index_select(1, torch.tensor([1, 3]))
        )
    ),
    "advanced": of(
        lambda x: x[torch.tensor([0, 2]), torch.tensor([1, 3])].sum() + x[:, [0, 0, 2]] + x[-1, 1]
    ),
    "axes": of(
        lambda x: x.unsqueeze(0).movedim(0, 2).squeeze(-1).repeat(2, 1).unfold(0, 2, 2).transpose(0, -1)
    ),
    "swapped": of(lambda x: x.swapaxes(0, 2) @ x.swapdims(-1, 1).swapaxes(axis0=0, axis1=1), 4, 4, 4),
    "meshgrid": of(meshed),
    "grid-sample": of(sampled, 1, 2, 4, 5),
    "einsum": of(lambda x: torch.einsum("ij,kj->ik", x, x) + torch.einsum("...i->...", x)[:, None]),
    "activations": of(
        lambda x: (
            F.softplus(x, 2.0)
            + F.selu(x)
            + F.mish(x)
            + F.hardtanh(x)
            + F.logsigmoid(x)
            + F.softsign(x)
            + F.celu(x)
        )
    ),
    "no-grad": of(lambda x: x * x.detach() + x.sigmoid().log1p() + x.expm1().erf()),
    "adaptive": of(
        lambda x: F.adaptive_avg_pool2d(x, 3) + F.adaptive_max_pool2d(x[..., :6, :3], 3), 2, 2, 7, 5
    ),
    "corners": of(lambda x: F.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True), 1, 2, 4, 5),
    "bicubic": of(lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), 1, 2, 4, 4),
    "pads": of(
        lambda x: (
            F.pad(x, (1, 2, -1, 1), mode="constant", value=0.5) + F.pad(x, (1, 2, 0, 0), mode="replicate")
        ),
        1,
        2,
        4,
        5,
    ),
    "unshuffle": of(lambda x: F.channel_shuffle(F.pixel_unshuffle(x, 2), 2), 1, 2, 4, 4),
}
