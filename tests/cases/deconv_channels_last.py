"""Rows of `conformance.py` for transposed convolution of arrays with their channels last. See `cases.py`."""

from __future__ import annotations

from typing import Any

from mxlite import ops
from tests.conformance.case import Case


def _torch(a: Any, data: Any, weight: Any, bias: Any = None) -> Any:
    import torch

    rank = len(a.kernel)
    call = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    ones, zeros = (1,) * rank, (0,) * rank
    out = call(
        data.movedim(-1, 1), weight, bias, a.stride or ones, a.pad or zeros, a.adj or zeros, a.num_group,
        a.dilate or ones,
    )  # fmt: skip
    return out.movedim(1, -1)


def _deconv(data: tuple[int, ...], peer: bool = True, **attrs: Any) -> Case:
    attrs = {"no_bias": True, **attrs}
    weight = (data[-1], attrs["num_filter"] // attrs.get("num_group", 1), *attrs["kernel"])
    shapes = [data, weight] if attrs["no_bias"] else [data, weight, (attrs["num_filter"],)]
    return Case(
        ops.DeconvolutionChannelsLast, attrs, shapes, tolerance32=2e-4, torch=_torch if peer else None
    )


_ROWS = {
    "3x3": _deconv((3, 5, 6, 4), kernel=(3, 3), num_filter=3),
    "bias": _deconv((3, 5, 6, 4), kernel=(4, 4), num_filter=3, stride=(2, 2), pad=(1, 1), no_bias=False),
    "adj": _deconv((2, 5, 4, 3), kernel=(3, 2), num_filter=2, stride=(2, 3), adj=(1, 2), no_bias=False),
    "groups": _deconv((2, 5, 4, 6), kernel=(3, 3), num_filter=4, num_group=2, dilate=(2, 1)),
    "depthwise": _deconv((2, 5, 4, 4), kernel=(4, 4), num_filter=4, num_group=4, stride=(2, 2), pad=(1, 1)),
    "1x1": _deconv((3, 4, 5, 4), kernel=(1, 1), num_filter=5, no_bias=False),
    "1d": _deconv((3, 6, 4), kernel=(3,), num_filter=2, stride=(2,), no_bias=False),
    "3d": _deconv((2, 3, 2, 3, 2), kernel=(2, 3, 2), num_filter=3, stride=(2, 1, 2), pad=(0, 1, 0)),
    "target": _deconv(
        (2, 4, 5, 3), False, kernel=(3, 3), num_filter=2, stride=(2, 2), target_shape=(8, 9)
    ),
    "wide": _deconv((2, 6, 6, 32), kernel=(3, 3), num_filter=48, pad=(1, 1), no_bias=False),
}  # fmt: skip

ROWS = {f"_deconvolution_channels_last-{name}": row for name, row in _ROWS.items()}
