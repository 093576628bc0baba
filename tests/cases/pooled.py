"""Rows of `conformance.py` for convolutions with the max pooling behind them. See `cases.py`."""

from __future__ import annotations

from math import prod
from typing import Any

from mxlite import ops
from tests.conformance.case import Case


def _torch(a: Any, data: Any, weight: Any, bias: Any = None) -> Any:
    import torch

    rank = len(a.kernel)
    convolve = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}[rank]
    made = convolve(data.movedim(-1, 1), weight, bias, a.stride or 1, a.pad or 0, a.dilate or 1, a.num_group)
    pool = getattr(torch.nn.functional, f"max_pool{rank}d")
    full = a.pooling_convention == "full"
    pooled = pool(made, a.pool_kernel, a.pool_stride or 1, a.pool_pad or 0, ceil_mode=full)
    return pooled.movedim(1, -1)


def _pooled(data: tuple[int, ...], weight: tuple[int, ...], *, peer: bool = True, **attrs: Any) -> Case:
    attrs = dict(kernel=weight[2:], num_filter=weight[0]) | attrs
    shapes = [data, weight, *([] if attrs.get("no_bias") else [weight[:1]])]
    # Large samples, not many: each is a call.
    large = [(data[0], 150_000 // prod((data[0], *data[2:])), *data[2:]), *shapes[1:]]
    return Case(ops.PooledConvolution, attrs, shapes, large=large, torch=_torch if peer else None)


_HALF = dict(pool_kernel=(2, 2), pool_stride=(2, 2))
_WIDE = dict(pool_kernel=(3, 3), pool_stride=(2, 2))

_ROWS = {
    "2x2": _pooled((3, 6, 8, 3), (4, 3, 3, 3), pad=(1, 1), **_HALF),
    "two-at-a-time": _pooled((5, 6, 7, 3), (4, 3, 3, 3), samples=2, no_bias=True, **_HALF),
    "one-band": _pooled((3, 6, 7, 3), (4, 3, 3, 3), samples=8, **_HALF),
    "one-sample": _pooled((1, 6, 7, 3), (4, 3, 2, 3), **_HALF),
    "overlap-padded": _pooled((3, 7, 6, 2), (4, 2, 3, 3), pad=(1, 1), pool_pad=(1, 1), **_WIDE),
    "full": _pooled((2, 8, 7, 2), (3, 2, 2, 2), pooling_convention="full", **_WIDE),
    "same": _pooled(
        (2, 8, 7, 2), (3, 2, 2, 2), peer=False, pool_kernel=(3, 2), pool_stride=(2, 3),
        pooling_convention="same",
    ),
    "apart": _pooled((2, 9, 8, 2), (3, 2, 2, 2), pool_kernel=(2, 1), pool_stride=(3, 2)),
    "stride": _pooled((2, 11, 9, 2), (4, 2, 3, 2), stride=(2, 1), pad=(1, 0), **_HALF),
    "dilate": _pooled((2, 9, 7, 2), (2, 2, 2, 2), dilate=(2, 1), **_HALF),
    "groups": _pooled((3, 6, 6, 4), (6, 2, 3, 3), num_group=2, pad=(1, 1), samples=2, **_HALF),
    "1x1": _pooled((3, 4, 6, 3), (5, 3, 1, 1), **_HALF),
    "1d": _pooled((3, 9, 3), (4, 3, 3), pool_kernel=(3,), pool_stride=(2,), pool_pad=(1,), samples=2),
    "3d": _pooled((2, 4, 5, 4, 2), (3, 2, 2, 2, 1), pool_kernel=(1, 2, 2), pool_stride=(1, 2, 2)),
    "winograd": _pooled((3, 9, 8, 16), (32, 16, 3, 3), pad=(1, 1), samples=2, **_HALF),
    "many-filters": _pooled((3, 6, 8, 3), (67, 3, 3, 3), pad=(1, 1), samples=2, **_WIDE),
}  # fmt: skip

ROWS = {f"_pooled_convolution-{name}": row for name, row in _ROWS.items()}
