"""Rows of `conformance.py` for transposed convolution, resampling, sampling and detection. See `cases.py`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from case import apart, Case, constant, integers, positive

from mxlite import ops


def _many(data: tuple[int, ...]) -> tuple[int, ...]:
    """`data` with more samples, for the allocation check."""
    return (400_000 // prod(data[1:]), *data[1:])


def _torch_deconv(a: Any, data: Any, weight: Any, bias: Any = None) -> Any:
    import torch

    rank = len(a.kernel)
    whole = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(data.shape[2:], a.stride or (1,) * rank, a.kernel, a.dilate or (1,) * rank)
    ]
    pad, adj = a.pad or (0,) * rank, a.adj or (0,) * rank
    if a.target_shape:
        pad = tuple((n - t + 1) // 2 for n, t in zip(whole, a.target_shape))
        adj = tuple((n - t) % 2 for n, t in zip(whole, a.target_shape))
    call = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    return call(
        data, weight, bias, a.stride or 1, pad, tuple(adj), a.num_group, a.dilate or 1
    )  # fmt: skip


def _deconv(data: tuple[int, ...], torch: bool = True, **attrs: Any) -> Case:
    op = ops.Deconvolution
    shapes, _ = op.infer_shape(op.Attrs(**attrs), data, None, None)
    shapes = shapes if attrs.get("no_bias") is False else shapes[:2]
    call = _torch_deconv if torch else None
    return Case(op, attrs, shapes, large=[_many(data), *shapes[1:]], torch=call)


def _conv_gradients(kind: str, data: tuple[int, ...], **attrs: Any) -> dict[str, Case]:
    """Rows for the operators that are gradients of a convolution."""
    op = ops.Convolution if kind == "convolution" else ops.Deconvolution
    (_, weight, *_), (out,) = op.infer_shape(op.Attrs(**attrs), data, None)
    by_data, by_weight = ops.find_op(f"_{kind}_d_data"), ops.find_op(f"_{kind}_d_weight")
    many = _many(data)
    _, (many_out,) = op.infer_shape(op.Attrs(**attrs), many, None)
    private = "MXNet has no operator of that name"
    name = "-".join(str(v) for v in attrs["kernel"])
    return {
        f"{kind}-d-data-{name}": Case(
            by_data, attrs, [out, weight, data], large=[many_out, weight, many], mxnet=private
        ),
        f"{kind}-d-weight-{name}": Case(by_weight, attrs, [out, data], large=[many_out, many], mxnet=private),
    }


def _pool_gradients(data: tuple[int, ...], **attrs: Any) -> dict[str, Case]:
    op = ops.Pooling
    _, (out, *index) = op.infer_shape(op.Attrs(**attrs), data)
    many = _many(data)
    _, (many_out, *_) = op.infer_shape(op.Attrs(**attrs), many)
    kind = attrs.get("pool_type", "max")
    private = "MXNet has no operator of that name"
    if kind != "max":
        return {
            f"pool-d-data-{kind}": Case(
                ops._pooling_d_data, attrs, [out, data], large=[many_out, many], mxnet=private
            )
        }
    which, make = {"index": "uint8"}, {"index": integers(0, prod(attrs["kernel"]) + 1)}
    return {
        "pool-d-data-max": Case(
            ops._max_pooling_d_data, attrs, [out, data, out], dtypes=which, make=make,
            large=[many_out, many, many_out], mxnet=private,
        ),
        "pool-chosen": Case(
            ops._chosen_pooling, attrs, [data, out], dtypes=which, make=make,
            large=[many, many_out], mxnet=private,
        ),
    }  # fmt: skip


ROWS: dict[str, Case] = {
    "deconv": _deconv((3, 4, 5, 6), kernel=(3, 3), num_filter=3),
    "deconv-stride-bias": _deconv(
        (3, 4, 4, 5), kernel=(4, 3), num_filter=6, stride=(2, 3), pad=(1, 0), adj=(1, 2), no_bias=False
    ),
    "deconv-group-dilate": _deconv(
        (3, 4, 4, 5), kernel=(3, 2), num_filter=6, stride=(1, 2), dilate=(2, 2), pad=(1, 1), num_group=2
    ),
    "deconv-depthwise": _deconv((3, 4, 4, 5), kernel=(4, 4), num_filter=4, stride=(2, 2), pad=(1, 1), num_group=4),
    "deconv-1x1": _deconv((3, 4, 4, 5), kernel=(1, 1), num_filter=5),
    "deconv-1d": _deconv((3, 4, 6), kernel=(3,), num_filter=2, stride=(2,)),
    "deconv-3d": _deconv((2, 2, 3, 2, 3), kernel=(2, 3, 2), num_filter=3, stride=(2, 1, 2), pad=(0, 1, 0)),
    "deconv-target": _deconv((2, 3, 4, 5), kernel=(3, 3), num_filter=2, stride=(2, 2), target_shape=(8, 9)),
    "deconv-target-odd": _deconv((2, 3, 5, 5), False, kernel=(3, 3), num_filter=2, target_shape=(4, 5)),
    **_conv_gradients("convolution", (3, 4, 5, 6), kernel=(3, 3), num_filter=6, pad=(1, 1), num_group=2, no_bias=True),
    **_conv_gradients("convolution", (3, 4, 6), kernel=(3,), num_filter=2, stride=(2,), pad=(1,), no_bias=True),
    **_conv_gradients("convolution", (3, 4, 6, 2), kernel=(1, 1), num_filter=3, no_bias=True),
    **_conv_gradients("deconvolution", (3, 4, 5, 6), kernel=(3, 3), num_filter=6, pad=(1, 1), num_group=2),
    **_conv_gradients("deconvolution", (3, 4, 6), kernel=(4,), num_filter=2, stride=(3,), target_shape=(15,)),
    **_pool_gradients((3, 2, 5, 6), kernel=(3, 2), stride=(2, 2), pad=(1, 0), pool_type="avg"),
    **_pool_gradients((3, 2, 5, 6), kernel=(2, 2), stride=(2, 1), pool_type="sum"),
    **_pool_gradients((3, 2, 5, 6), kernel=(3, 2), stride=(2, 2), pad=(1, 0)),
}
