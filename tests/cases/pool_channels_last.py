"""Rows of `conformance.py` for pooling of arrays with their channels last. See `cases.py`."""

from __future__ import annotations

from math import prod
from typing import Any

from mxlite import ops
from tests.conformance.case import apart, Case, integers, positive


def _torch_pool(a: Any, data: Any) -> Any:
    import torch

    rank = data.ndim - 2
    data = data.movedim(-1, 1)
    kernel = tuple(data.shape[2:]) if a.global_pool else a.kernel
    stride, pad = (1, 0) if a.global_pool else (a.stride or 1, a.pad or 0)
    ceil = a.pooling_convention == "full"
    if a.pool_type == "max":
        call = getattr(torch.nn.functional, f"max_pool{rank}d")
        return call(data, kernel, stride, pad, ceil_mode=ceil).movedim(1, -1)
    if a.pool_type == "lp":
        return torch.nn.functional.lp_pool2d(data, a.p_value, a.kernel, stride).movedim(1, -1)
    call = getattr(torch.nn.functional, f"avg_pool{rank}d")
    found = call(
        data, kernel, stride, pad, ceil_mode=ceil, count_include_pad=a.count_include_pad is not False
    )
    return (found * prod(kernel) if a.pool_type == "sum" else found).movedim(1, -1)


def _pool(data: tuple[int, ...], *, peer: bool = True, make: Any = apart, **attrs: Any) -> Case:
    many = (max(data[0], 400_000 // prod(data[1:])), *data[1:])
    torch = _torch_pool if peer else None
    return Case(ops.PoolingChannelsLast, attrs, [data], make={"data": make}, large=[many], torch=torch)


_ROWS = {
    "max": _pool((2, 6, 7, 3), kernel=(2, 2), stride=(2, 2)),
    "max-3x3": _pool((2, 8, 7, 5), kernel=(3, 3), stride=(2, 2), pad=(1, 1)),
    "max-overlap": _pool((2, 6, 7, 3), kernel=(3, 2), stride=(2, 1), pad=(1, 0)),
    "max-apart": _pool((2, 7, 9, 3), kernel=(2, 1), stride=(3, 2)),
    "max-full": _pool((2, 6, 7, 3), kernel=(3, 3), stride=(2, 2), pooling_convention="full"),
    "max-global": _pool((2, 4, 5, 3), global_pool=True),
    "max-1d": _pool((2, 9, 3), kernel=(3,), stride=(2,), pad=(1,)),
    "max-3d": _pool((2, 4, 3, 4, 2), kernel=(2, 3, 2), stride=(2, 1, 2), pad=(1, 0, 1)),
    "max-many-channels": _pool((1, 4, 5, 67), kernel=(3, 3), stride=(1, 1), pad=(1, 1)),
    "max-large-window": _pool((1, 18, 17, 2), kernel=(16, 16), stride=(1, 1)),
    "max-large-image": _pool((1, 200, 170, 4), kernel=(3, 3), stride=(2, 2), pad=(1, 1)),
    "avg": _pool((2, 6, 7, 3), kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="avg"),
    "avg-inside": _pool(
        (2, 6, 7, 3), kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="avg", count_include_pad=False
    ),
    "avg-full": _pool(  # PyTorch drops a last window that starts in the padding
        (2, 6, 7, 3),
        peer=False,
        kernel=(2, 2),
        stride=(2, 2),
        pad=(1, 1),
        pool_type="avg",
        pooling_convention="full",
    ),
    "avg-global": _pool((2, 4, 5, 3), global_pool=True, pool_type="avg"),
    "avg-global-wide": _pool((2, 3, 3, 70), global_pool=True, pool_type="avg"),
    "avg-large-image": _pool((1, 200, 170, 4), kernel=(3, 2), stride=(2, 1), pad=(1, 1), pool_type="avg"),
    "avg-3d": _pool((2, 4, 3, 4, 2), kernel=(2, 2, 2), pool_type="avg"),
    "sum-1d": _pool((2, 9, 3), kernel=(3,), stride=(2,), pool_type="sum"),
    "same": _pool(
        (2, 6, 7, 3), peer=False, kernel=(3, 2), stride=(2, 3), pooling_convention="same", pool_type="max"
    ),
    "lp": _pool(
        (2, 4, 5, 3), make=positive, kernel=(2, 2), stride=(1, 2), pool_type="lp", p_value=2
    ),
    "lp-large-image": _pool(
        (1, 200, 170, 4), make=positive, peer=False, kernel=(2, 3), stride=(2, 2), pool_type="lp", p_value=3
    ),
}  # fmt: skip

ROWS = {f"_pooling_channels_last-{name}": row for name, row in _ROWS.items()}


def _torch_chosen(a: Any, data: Any, index: Any) -> Any:
    """The elements by their numbers, out of all windows side by side, with 0 behind each."""
    import torch

    x, rank = data.movedim(-1, 1), data.ndim - 2
    pads = [
        p for n in reversed(a.pad or (0,) * rank) for p in (n, n + 16)
    ]  # enough for windows beyond the end
    x = torch.nn.functional.pad(x, pads)
    for axis, (k, stride) in enumerate(zip(a.kernel, a.stride or (1,) * rank), 2):
        x = x.unfold(axis, k, stride)
    places = index.movedim(-1, 1).long()
    x = x[tuple(slice(0, n) for n in places.shape)].reshape(*places.shape, -1)
    x = torch.cat([x, torch.zeros_like(x[..., :1])], -1)
    return x.gather(-1, places[..., None])[..., 0].movedim(1, -1)


def _chosen(data: tuple[int, ...], out: tuple[int, ...], **attrs: Any) -> Case:
    count, rows = prod(attrs["kernel"]), 400_000 // prod(data[1:])
    return Case(
        ops.ChosenPoolingChannelsLast,
        attrs,
        [data, out],
        dtypes={"index": "uint8"},
        make={"index": integers(0, count + 1)},
        large=[(rows, *data[1:]), (rows, *out[1:])],
        torch=_torch_chosen,
    )


def _torch_extreme(a: Any, data: Any, gamma: Any) -> Any:
    import torch

    sign = torch.where(gamma < 0, -1.0, 1.0).to(data.dtype)
    pool = {1: torch.nn.functional.max_pool1d, 2: torch.nn.functional.max_pool2d}[data.ndim - 2]
    found = pool((data * sign).movedim(-1, 1), a.kernel, a.stride or 1, a.pad or 0)
    return found.movedim(1, -1) * sign


def _extreme(data: tuple[int, ...], **attrs: Any) -> Case:
    large = [(400_000 // prod(data[1:]), *data[1:]), data[-1:]]
    return Case(
        ops.ExtremePoolingChannelsLast, attrs, [data, data[-1:]], make={"data": apart}, large=large,
        torch=_torch_extreme, empty=False,
    )  # fmt: skip


ROWS |= {
    "extreme-pooling": _extreme((2, 6, 8, 67), kernel=(3, 3), stride=(2, 2), pad=(1, 1)),
    "extreme-pooling-1d": _extreme((3, 9, 5), kernel=(3,), stride=(2,)),
    "chosen-pooling": _chosen((2, 6, 8, 3), (2, 3, 4, 3), kernel=(2, 2), stride=(2, 2)),
    "chosen-pooling-1d": _chosen((2, 9, 35), (2, 4, 35), kernel=(3,), stride=(2,)),
    "chosen-pooling-3d": _chosen((2, 4, 3, 4, 2), (2, 2, 2, 3, 2), kernel=(2, 2, 2), stride=(2, 1, 1)),
}
