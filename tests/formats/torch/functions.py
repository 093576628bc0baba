"""Functions of PyTorch that published models call, in groups: name -> (shape, functions of a tensor of it).

Each group is one module, so that one import serves many functions. `modules/` holds what networks call most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Functions = dict[str, Callable[[Any], Any]]

PLACES = torch.tensor([[0, 2], [1, 1], [3, 0], [2, 2]])  # two columns for each of four rows
ROWS, EDGES = torch.tensor([0, 2]), torch.tensor([-1.0, 0.0, 1.0])
CLASSES, SIGNS = PLACES[:, 0], torch.tensor([1.0, -1, 1, -1])
BITS = torch.tensor([1, 2, 4, 8, 16, 32])


class Group(nn.Module):
    """Each function of weight * x, with a weight of its own."""

    def __init__(self, shape: tuple[int, ...], functions: Functions) -> None:
        super().__init__()
        self.functions = functions
        self.weight = nn.ParameterDict({n: torch.rand(shape) + 0.5 for n in functions})

    def forward(self, x: Any) -> tuple[Any, ...]:
        return tuple(call(x * self.weight[name]) for name, call in self.functions.items())


def definite(x: Any) -> Any:
    """Positive definite matrices."""
    return x @ x.mT + 4 * torch.eye(x.shape[-1])


def factor(x: Any) -> Any:
    return torch.linalg.cholesky(definite(x))


def written(x: Any, where: Any, value: Any) -> Any:
    """A copy of `x` that is written in place."""
    out = x.clone()
    out[where] = value
    return out


def grouped(call: Any, *ways: Any, **settings: Any) -> Functions:
    """One function for each way: a dict of arguments by name."""
    return {"-".join(map(str, w.values())): lambda x, w=w: call(x, **settings, **w) for w in ways}


GROUPS: dict[str, tuple[tuple[int, ...], Functions]] = {
    "distances": (
        (4, 6),
        {
            "cdist": lambda x: torch.cdist(x, x.flip(0)[:3] + 1),
            "cdist-one": lambda x: torch.cdist(x, x.flip(0)[:3] + 1, p=1.0),
            "cdist-product": lambda x: torch.cdist(
                x.view(2, 2, 6), x.view(2, 2, 6) + 1, compute_mode="use_mm_for_euclid_dist"
            ),
            "pdist": F.pdist,
            "pairwise": lambda x: F.pairwise_distance(x, x.flip(0)),
            "cosine": lambda x: F.cosine_similarity(x, x.flip(0)),
            "dist": lambda x: torch.dist(x, x.flip(0), 3),
            "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
            "matrix-norm": lambda x: torch.linalg.matrix_norm(x, 1) + torch.linalg.norm(x),
        },
    ),
    "gathered": (
        (4, 6),
        {
            "take": lambda x: x.take(torch.tensor([0, -5, 7])),
            "take-along": lambda x: x.take_along_dim(PLACES, 1),
            "gather-fewer-rows": lambda x: x.gather(1, PLACES[:2]),
            "negative": lambda x: x[torch.tensor([-1, 0])],
            "axes-apart": lambda x: x.view(2, 2, 6)[torch.tensor([0, 1]), :, torch.tensor([1, 3])],
            "bucketize": lambda x: x * torch.bucketize(x, EDGES) + x * torch.bucketize(x, EDGES, right=True),
            "searchsorted": lambda x: (
                x * torch.searchsorted(EDGES.expand(4, 3).contiguous(), x, side="right")
            ),
            "isin": lambda x: x * torch.isin(PLACES.repeat(1, 3), torch.tensor([1, 2])),
            "embedding-bag": lambda x: F.embedding_bag(PLACES, x, mode="mean"),
            "unfold": lambda x: x.unfold(1, 3, 2),
            "repeat-interleave": lambda x: x.repeat_interleave(2, 1),
            "repeat-interleave-of-size": lambda x: x.repeat_interleave(2, 1, output_size=2 * x.shape[1]),
        },
    ),
    "written": (
        (4, 6),
        {
            "index-fill": lambda x: x.index_fill(1, ROWS, 3.0),
            "index-copy": lambda x: x.index_copy(0, ROWS, x[1:3] * 2),
            "index-add": lambda x: x.index_add(1, ROWS, x[:, 1:3], alpha=2),
            "index-reduce": lambda x: x.index_reduce(0, ROWS, x.flip(0)[1:3], "amax", include_self=False),
            "index-put": lambda x: x.index_put((torch.tensor([0, 1]), torch.tensor([2, 3])), x[0, :2]),
            "columns": lambda x: written(x, (slice(None), ROWS), x[:, :2]),
            "slices": lambda x: written(x, (slice(1, 3), slice(None, None, 2)), x[:2, :3]),
            "axes-apart": lambda x: written(
                x.view(2, 2, 6), (torch.tensor([0, 1]), slice(None), torch.tensor([1, 3])), x[:2, :2]
            ),
            "mask": lambda x: written(x, x > 0, 0.0),
            "known-mask": lambda x: written(x, torch.eye(4, 6).bool(), x[0, :4]),
            "masked-scatter": lambda x: x.masked_scatter(x > 0, x.flip(0)),
            "put": lambda x: x.put(torch.tensor([0, -3]), x[0, :2], accumulate=True),
            "diagonal": lambda x: x.diagonal_scatter(x[:, 0], 1),
            "casts": lambda x: x * x.int() + x * x.long().float() + x * x.bool() + x.double().sin().float(),
            "number": lambda x: x.scatter(1, PLACES, 2.0),
            "fewer-rows": lambda x: x.scatter(1, PLACES[:2], x[:2, 2:4]),
            "add": lambda x: x.scatter_add(1, PLACES, x[:, 2:4]),
        },
    ),
    "reduced-scatter": (
        (4, 6),
        grouped(
            lambda x, how, own: x.scatter_reduce(1, PLACES, x.flip(0)[:, 2:4], how, include_self=own),
            *({"how": how, "own": own} for how in "sum prod mean amax amin".split() for own in (True, False)),
        ),
    ),
    "ordered": (
        (4, 6),
        {
            "cummax": lambda x: sum(torch.cummax(x, 1)),
            "cummin": lambda x: sum(torch.cummin(x.round(), 0)) * x,
            "logcumsumexp": lambda x: torch.logcumsumexp(x * 30, 1),
            "median": lambda x: x.median() + sum(x.median(0)),
            "median-of-nan": lambda x: (
                torch.where(x > 1, float("nan"), x).median(1).values.nan_to_num() + x[:, 0]
            ),
            "nanmedian": lambda x: (
                torch.where(x > 0.5, float("nan"), x).nanmedian(1).values.nan_to_num() * x[:, 0]
            ),
            "kthvalue": lambda x: sum(x.kthvalue(2, 1)),
            "quantile": lambda x: x.quantile(0.3, 1) + x.quantile(torch.tensor([0.3, 0.6])).sum(),
            "aminmax": lambda x: sum(torch.aminmax(x, dim=1)),
            "argsort": lambda x: x * x.argsort(1),
            "sorted": lambda x: x.msort() + x.sort(stable=True, descending=True).values,
            "topk": lambda x: x.topk(2, 1, sorted=False).values,
        },
    ),
    "summed": (
        (4, 6),
        {
            "trapezoid": lambda x: torch.trapezoid(x) + torch.cumulative_trapezoid(x).sum(1),
            "gradient": lambda x: torch.gradient(x, dim=1)[0],
            "diff": lambda x: torch.diff(x, dim=1),
            "count": lambda x: x * torch.count_nonzero(x > 0, 1)[:, None],
            "moments": lambda x: sum(torch.std_mean(x, 1)) + sum(torch.var_mean(x, 1)),
            "all": lambda x: x * (x > -3).all(1, keepdim=True) * (x > 0).any(),
        },
    ),
    "pairs": (
        (4, 6),
        {
            "fmax": lambda x: torch.fmax(torch.where(x > 0.5, float("nan"), x), x.flip(0)).nan_to_num(),
            "fmin": lambda x: torch.fmin(x, x.flip(0)),
            "copysign": lambda x: torch.copysign(x, x.flip(0)) + torch.copysign(x, -1.0),
            "ldexp": lambda x: torch.ldexp(x, torch.tensor(2)),
            "xlogy": lambda x: torch.xlogy(x.relu(), x.abs() + 1) + torch.special.xlog1py(x, x.abs()),
            "logaddexp": lambda x: torch.logaddexp(x, x.flip(0)) + torch.logaddexp2(x, x.flip(0)),
            "lerp": lambda x: torch.lerp(x, x.flip(0), x.sigmoid()) + torch.lerp(x, x.flip(0), 0.3),
            "float-power": lambda x: torch.float_power(x.abs() + 0.1, 2.5).float(),
            "fmod": lambda x: torch.fmod(x, x.flip(0).abs() + 3) + torch.remainder(x, 0.7),
            "heaviside": lambda x: x * torch.heaviside(x.detach(), torch.tensor(0.5)),
            "bits": lambda x: x * (((BITS & 6) | (BITS ^ 3)) + (BITS << 1) + (BITS >> 1) + ~BITS),
            "close": lambda x: x * torch.isclose(x, x + 1e-9) + torch.isposinf(x),
        },
    ),
    "elements": (
        (4, 6),
        {
            "logit": lambda x: torch.logit(x.sigmoid()) + torch.logit(x.sigmoid(), 0.2),
            "sinc": torch.sinc,
            "normal": lambda x: torch.special.ndtr(x) + torch.special.ndtri(x.sigmoid()),
            "entropy": lambda x: torch.special.entr(x.sigmoid()),
            "degrees": lambda x: torch.deg2rad(x) + x.rad2deg() + x.frac(),
            "signs": lambda x: x * x.sgn() + x * x.signbit(),
            "multigammaln": lambda x: torch.special.multigammaln(x.abs() + 3, 2),
            "inverse": lambda x: x.tanh().arcsin() + x.arctan() + x.arcsinh() + (x.abs() + 1.1).arccosh(),
        },
    ),
    "activations": (
        (4, 6),
        {
            "elu": lambda x: F.elu(x, 0.7) + torch.ops.aten.elu(x, 0.7, 1.2, 0.9),
            "celu": lambda x: F.celu(x, 0.7),
            "shrink": lambda x: F.hardshrink(x, 0.3) + F.softshrink(x, 0.3) + F.tanhshrink(x),
            "rrelu": lambda x: F.rrelu(x, 0.1, 0.3, training=False),
            "glu": F.glu,
            "prelu": lambda x: F.prelu(x, torch.tensor([0.2])),
            "threshold": lambda x: F.threshold(x, 0.1, 2.0),
            "softmin": lambda x: F.softmin(x, 1),
            "alpha-dropout": lambda x: F.alpha_dropout(x, 0.0, training=True),
            "gelu": lambda x: F.gelu(x, approximate="tanh"),
            "normalize": lambda x: F.normalize(x, p=3, dim=1),
            "local-response": lambda x: F.local_response_norm(x[None], 2),
        },
    ),
    "losses": (
        (4, 6),
        {
            "poisson": lambda x: F.poisson_nll_loss(x, x.flip(0).abs() * 4, full=True),
            "hinge": lambda x: F.hinge_embedding_loss(x[:, :4], SIGNS),
            "cosine": lambda x: F.cosine_embedding_loss(x, x.flip(0), SIGNS, margin=0.1),
            "ranking": lambda x: F.margin_ranking_loss(x[:, 1], x[:, 2], SIGNS, margin=0.1),
            "multilabel": lambda x: F.multilabel_margin_loss(x, torch.tensor([[1, 2, -1, 0, 0, 0]] * 4)),
            "multilabel-soft": lambda x: F.multilabel_soft_margin_loss(x, (x.flip(0) > 0).float()),
            "margin": lambda x: F.multi_margin_loss(x, CLASSES, margin=0.8),
            "soft-margin": lambda x: F.soft_margin_loss(x[:, :4], SIGNS.expand(4, 4)),
            "triplet": lambda x: F.triplet_margin_loss(x, x.flip(0), x.roll(1, 0), swap=True),
            "divergence": lambda x: F.kl_div(x.log_softmax(1), x.flip(0).softmax(1), reduction="batchmean"),
        },
    ),
    "shapes": (
        (4, 6),
        {
            "diag": lambda x: torch.diag(x) + torch.diag(x[0])[:4, 0],
            "diag-embed": lambda x: torch.diag_embed(x, 1),
            "diagflat": lambda x: torch.diagflat(x[0]),
            "block-diag": lambda x: torch.block_diag(x, x[:2]),
            "rot90": torch.rot90,
            "rolled": lambda x: x.roll((1, 2), (0, 1)).fliplr().flipud(),
            "atleast": lambda x: torch.atleast_3d(x) + torch.atleast_1d(x)[..., None],
            "splits": lambda x: x.hsplit(2)[1] + x.tensor_split((1, 4), 1)[1] + x[:, :3].narrow_copy(1, 0, 3),
            "row-stack": lambda x: torch.row_stack((x, x)).squeeze().adjoint(),
            "tiles": lambda x: x.tile(2, 1, 2) + x[:, :1].expand_as(x).repeat(1, 2),
        },
    ),
    "products": (
        (4, 6),
        {
            "kron": lambda x: torch.kron(x, x[:2, :2]),
            "inner": lambda x: torch.inner(x, x) + torch.tensordot(x, x, ([1], [1])),
            "vdot": lambda x: torch.vdot(x[0], x[1]) + torch.linalg.vecdot(x, x.flip(0)).sum(),
            "chain": lambda x: torch.linalg.multi_dot([x, x.T, x]) + torch.chain_matmul(x, x.T, x),
            "addr": lambda x: torch.addr(x, x[:, 0], x[0], alpha=2) + torch.ger(x[:, 0], x[0]),
            "addbmm": lambda x: torch.addbmm(torch.ones(4, 4), x[None], x.T[None], beta=2),
        },
    ),
    "matrices": (
        (2, 3, 3),
        {
            "det": lambda x: torch.det(definite(x)) + torch.logdet(definite(x)),
            "slogdet": lambda x: torch.slogdet(x)[1] * torch.slogdet(x)[0] + torch.det(x[0]),
            "inverse": lambda x: torch.inverse(definite(x)) + torch.linalg.matrix_power(definite(x), -1),
            "solve": lambda x: (
                torch.linalg.solve(definite(x), x) + torch.linalg.solve(definite(x), x, left=False)
            ),
            "solve-vectors": lambda x: torch.linalg.solve(definite(x), x[:, 0]),
            "cholesky": lambda x: (
                torch.linalg.cholesky(definite(x), upper=True) + torch.linalg.cholesky_ex(definite(x))[0]
            ),
            "cholesky-solve": lambda x: (
                torch.cholesky_solve(x, factor(x)) + torch.cholesky_inverse(factor(x))
            ),
            "triangular": lambda x: torch.linalg.solve_triangular(factor(x), x, upper=False),
            "triangular-right": lambda x: torch.linalg.solve_triangular(
                factor(x).mT, x[0], upper=True, left=False
            ),
            "qr": lambda x: torch.linalg.qr(definite(x))[1],
            "eigenvalues": lambda x: torch.linalg.eigvalsh(definite(x)),
            "power": lambda x: torch.linalg.matrix_power(x, 3),
        },
    ),
    "pools": (
        (2, 3, 6, 7),
        {
            "max-dilated": lambda x: F.max_pool2d(x, 2, 1, 1, dilation=2),
            "max-places": lambda x: sum(F.max_pool2d(x, 3, 2, 1, return_indices=True)),
            "unpooled": lambda x: F.max_unpool2d(
                *F.max_pool2d(x, 2, return_indices=True), 2, output_size=(6, 7)
            ),
            "mean-to-the-end": lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True),
            "mean-of-pads": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            "mean-without-pads": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            "divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
            "power": lambda x: F.lp_pool2d(x.abs(), 2, 2),
            "adaptive-max": lambda x: F.adaptive_max_pool2d(x, (4, 3)),
            "adaptive-mean": lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
        },
    ),
    "pictures": (
        (2, 3, 6, 7),
        {
            "columns": lambda x: F.unfold(x, 3, padding=1, stride=2),
            "folded": lambda x: F.fold(F.unfold(x, 2), (6, 7), 2),
            "affine": lambda x: F.grid_sample(
                x,
                F.affine_grid(torch.eye(2, 3).expand(2, 2, 3) * x.mean(), [2, 3, 4, 4], False),
                align_corners=False,
            ),
            "area": lambda x: F.interpolate(x, size=(3, 4), mode="area"),
            "antialias": lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
            "pads": lambda x: (
                F.pad(x, (1, 2, 1, 0), mode="circular") + F.pad(x, (1, 2, 1, 0), mode="replicate")
            ),
            "shuffled": lambda x: F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2),
            "instance": lambda x: F.instance_norm(x) + F.group_norm(x, 3),
            "even-kernel": lambda x: F.conv2d(x, torch.ones(2, 3, 2, 2), padding="same"),
            "transposed": lambda x: F.conv_transpose2d(
                x, torch.ones(3, 2, 3, 3), dilation=2, output_padding=0
            ),
        },
    ),
}
