"""Rows of `conformance.py` for gradients of first layers for images. See `cases.py`."""

from __future__ import annotations

from math import isqrt, prod
from typing import Any

from mxlite import ops
from mxlite.ops.nn import pooled_convolution
from tests.conformance.case import Case, integers, positive

Shape = tuple[int, ...]


def _patches(a: Any, data: Any) -> Any:
    """(N, C * K, positions), as torch has them."""
    import torch

    return torch.nn.functional.unfold(data.movedim(-1, 1), a.kernel, padding=a.pad or 0, stride=a.stride or 1)


def _torch_sums(a: Any, made: Any, data: Any, mean: Any) -> Any:
    import torch

    patches = _patches(a, data)
    away = (made - mean).flatten(1, -2)
    sums = torch.einsum("npf,nkp->fk", away, patches)
    shape = (data.shape[-1], *a.kernel)
    return sums.reshape(-1, *shape), patches.sum((0, 2)).reshape(shape)


def _torch_gradient(a: Any, grad: Any, chosen: Any, *more: Any) -> Any:
    import torch

    gamma, beta, mean, var, _, _, index, data, sums, patches = more
    n, ph, pw, f = grad.shape
    out = [
        (s + 2 * p - k) // t + 1
        for s, p, k, t in zip(data.shape[1:3], a.pad or (0, 0), a.kernel, a.stride or (1, 1))
    ]
    factor = gamma * var
    seen = chosen * factor + beta - mean * factor
    d = torch.where(seen > 0, grad, 0.0) if a.relu else grad
    full = torch.zeros(n, out[0], out[1], f, dtype=grad.dtype)
    pad, stride = a.pool_pad or (0, 0), a.pool_stride or (1, 1)
    for y in range(ph):
        for x in range(pw):
            for number in range(prod(a.pool_kernel)):
                ky, kx = divmod(number, a.pool_kernel[1])
                at = (y * stride[0] - pad[0] + ky, x * stride[1] - pad[1] + kx)
                if 0 <= at[0] < out[0] and 0 <= at[1] < out[1]:
                    full[:, at[0], at[1]] += torch.where(index[:, y, x] == number, d[:, y, x], 0.0)
    count = n * out[0] * out[1]
    by_one, by_x = d.sum((0, 1, 2)), (d * (chosen - mean) * var).sum((0, 1, 2))
    weight = torch.einsum("npf,nkp->fk", full.flatten(1, -2), _patches(a, data)).reshape(sums.shape)
    rows = (-1, 1, 1, 1)
    weight = weight - by_one.reshape(rows) / count * patches - (by_x * var).reshape(rows) / count * sums
    return factor.reshape(rows) * weight, by_x, by_one


_HALF: dict[str, Any] = dict(pool_kernel=(2, 2), pool_stride=(2, 2))


def _shapes(data: Shape, weight: Shape, attrs: dict[str, Any]) -> tuple[Any, Any]:
    """Of what the convolution makes, and of that pooled."""
    attrs = {"kernel": weight[2:], "num_filter": weight[0], "no_bias": True} | _HALF | attrs
    own = ops.ImageGradient.Attrs(**attrs)
    _, outs = ops.PooledConvolution.infer_shape(own, data, weight)
    return (data[0], *pooled_convolution.made_shape(own, data)[1:]), outs[0]


def _case(
    op: Any, torch: Any, data: Shape, weight: Shape, shapes: Any, attrs: dict[str, Any], **own: Any
) -> Case:
    attrs = dict(kernel=weight[2:], num_filter=weight[0], no_bias=True) | attrs
    longer = isqrt(150_000 // prod(data)) + 1  # few large images: the reference goes over them one by one
    large = (data[0], *(longer * n for n in data[1:-1]), data[-1])
    return Case(
        op, attrs, shapes(data, weight, attrs), large=shapes(large, weight, attrs), torch=torch, empty=False,
        **own,
    )  # fmt: skip


def _sums(data: Shape, weight: Shape, **attrs: Any) -> Case:
    def shapes(data: Shape, weight: Shape, attrs: dict[str, Any]) -> list[Shape]:
        return [_shapes(data, weight, attrs)[0], data, weight[:1]]

    return _case(ops.ImageSums, _torch_sums, data, weight, shapes, attrs)


def _gradient(data: Shape, weight: Shape, index: Any = (0, 4), **attrs: Any) -> Case:
    def shapes(data: Shape, weight: Shape, attrs: dict[str, Any]) -> list[Shape]:
        pooled = _shapes(data, weight, attrs)[1]
        return [pooled, pooled, *[weight[:1]] * 6, pooled, data, weight, weight[1:]]

    make = {"var": positive, "moving_var": positive, "index": integers(*index)}
    attrs = _HALF | attrs
    own = dict(make=make, dtypes={"index": "uint8"})
    return _case(ops.ImageGradient, _torch_gradient, data, weight, shapes, attrs, **own)


_APART = dict(pool_kernel=(2, 1), pool_stride=(3, 2))
_WIDE = dict(pool_kernel=(3, 3), pool_stride=(2, 2))

_PADDED = dict(pool_kernel=(3, 3), pool_stride=(2, 2), pool_pad=(1, 1))
_STEM = dict(stride=(2, 2), pad=(3, 3))

ROWS = {
    "_image_sums-3x3": _sums((3, 6, 7, 3), (4, 3, 3, 3), pad=(1, 1)),
    "_image_sums-stem": _sums((2, 13, 12, 3), (20, 3, 7, 7), **_STEM),
    "_image_sums-one-channel": _sums((2, 5, 9, 1), (3, 1, 2, 3)),
    "_image_sums-wide": _sums((2, 5, 6, 9), (3, 9, 2, 5), stride=(1, 2), pad=(0, 2)),
    "_image_gradient-3x3": _gradient((3, 6, 8, 3), (4, 3, 3, 3), pad=(1, 1)),
    "_image_gradient-no-relu": _gradient((3, 6, 8, 3), (4, 3, 3, 3), pad=(1, 1), relu=False, samples=2),
    "_image_gradient-stem": _gradient((2, 14, 13, 3), (20, 3, 7, 7), (4, 5), **_STEM, **_PADDED),
    "_image_gradient-overlap": _gradient((2, 9, 7, 2), (3, 2, 3, 1), (0, 9), **_WIDE),
    "_image_gradient-apart": _gradient((2, 9, 8, 1), (5, 1, 2, 2), (0, 2), **_APART),
}  # fmt: skip
