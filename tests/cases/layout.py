"""Rows of `conformance.py` for layouts and what works on arrays with their channels last. See `cases.py`."""

from __future__ import annotations

from mxlite import ops
from mxlite.backends.elementwise.epilogue import RECTIFIER
from mxlite.ops.nn.conv_channels_last import EpilogueAttrs
from tests.conformance.case import Case

_MOVE = {"moves": True}


def _torch_convolution(a, data, weight, *rest):
    import torch

    scale = getattr(a, "scale", False)
    factor, rest = (rest[0], rest[1:]) if scale else (1, rest)
    bias = None if a.no_bias else rest[0]
    addend = rest[-1] if getattr(a, "add", False) else None
    rank = len(a.kernel)
    convolve = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}[rank]
    out = convolve(
        data.movedim(-1, 1),
        weight,
        None if scale else bias,
        a.stride or 1,
        a.pad or 0,
        a.dilate or 1,
        a.num_group,
    ).movedim(1, -1)
    if scale:
        out = out * factor + (0 if bias is None else bias)
    if addend is not None:
        out = out + addend
    return out.relu() if getattr(a, "epilogue", None) is not None else out


def _convolution(attrs, shapes, op=ops.ConvolutionChannelsLast):
    return Case(op, attrs, shapes, torch=_torch_convolution)


_ROWS_OF_CONVOLUTION = {
    "3x3": _convolution(
        dict(kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=True), [(2, 5, 6, 3), (4, 3, 3, 3)]
    ),
    "bias": _convolution(dict(kernel=(3, 3), num_filter=4), [(2, 5, 6, 3), (4, 3, 3, 3), (4,)]),
    "stride": _convolution(
        dict(kernel=(3, 2), num_filter=4, stride=(2, 2), pad=(1, 0), no_bias=True),
        [(2, 7, 6, 2), (4, 2, 3, 2)],
    ),
    "1x1": _convolution(dict(kernel=(1, 1), num_filter=5), [(2, 3, 4, 3), (5, 3, 1, 1), (5,)]),
    "dilate": _convolution(
        dict(kernel=(2, 2), num_filter=2, dilate=(2, 1), no_bias=True), [(2, 5, 4, 2), (2, 2, 2, 2)]
    ),
    "groups": _convolution(
        dict(kernel=(3, 3), num_filter=4, num_group=2, pad=(1, 1)), [(2, 4, 4, 6), (4, 3, 3, 3), (4,)]
    ),
    "depthwise": _convolution(
        dict(kernel=(3, 3), num_filter=4, num_group=4, pad=(1, 1), no_bias=True), [(2, 4, 4, 4), (4, 1, 3, 3)]
    ),
    "1d": _convolution(dict(kernel=(3,), num_filter=4, pad=(1,)), [(2, 6, 3), (4, 3, 3), (4,)]),
    "3d": _convolution(
        dict(kernel=(2, 2, 2), num_filter=3, no_bias=True), [(1, 3, 4, 3, 2), (3, 2, 2, 2, 2)]
    ),
    "wide": _convolution(
        dict(kernel=(3, 3), num_filter=32, pad=(1, 1)), [(2, 8, 8, 16), (32, 16, 3, 3), (32,)]
    ),
    "epilogue": _convolution(
        EpilogueAttrs(kernel=(3, 3), num_filter=4, pad=(1, 1), add=True, epilogue=RECTIFIER),
        [(2, 5, 6, 3), (4, 3, 3, 3), (4,), (2, 5, 6, 4)],
        ops.ConvolutionEpilogue,
    ),
    "scale": _convolution(
        EpilogueAttrs(kernel=(3, 3), num_filter=4, pad=(1, 1), scale=True, add=True, epilogue=RECTIFIER),
        [(2, 5, 6, 3), (4, 3, 3, 3), (4,), (4,), (2, 5, 6, 4)],
        ops.ConvolutionEpilogue,
    ),
    "scale-winograd": _convolution(
        EpilogueAttrs(kernel=(3, 3), num_filter=32, pad=(1, 1), scale=True, epilogue=RECTIFIER),
        [(2, 8, 8, 16), (32, 16, 3, 3), (32,), (32,)],
        ops.ConvolutionEpilogue,
    ),
    "scale-only": _convolution(
        dict(kernel=(1, 1), num_filter=4, scale=True, no_bias=True),
        [(2, 5, 6, 3), (4, 3, 1, 1), (4,)],
        ops.ConvolutionEpilogue,
    ),
    "add": _convolution(
        dict(kernel=(1, 1), num_filter=4, add=True, no_bias=True),
        [(2, 5, 6, 3), (4, 3, 1, 1), (2, 5, 6, 4)],
        ops.ConvolutionEpilogue,
    ),
}

ROWS = {
    "_channels_last": Case(ops.ChannelsLast, {}, [(2, 3, 4, 5)], torch=lambda a, x: x.movedim(1, -1)),
    "_channels_last-1d": Case(ops.ChannelsLast, {}, [(2, 3, 4)], torch=lambda a, x: x.movedim(1, -1)),
    "_channels_last-none": Case(ops.ChannelsLast, {}, [(2, 3)], torch=lambda a, x: x.movedim(1, -1)),
    "_channels_last-still": Case(
        ops.ChannelsLast, {"moves": False}, [(2, 3, 1, 1)], torch=lambda a, x: x.movedim(1, -1)
    ),
    "_channels_first": Case(ops.ChannelsFirst, {}, [(2, 4, 5, 3)], torch=lambda a, x: x.movedim(-1, 1)),
    "_channels_first-still": Case(
        ops.ChannelsFirst, {"moves": False}, [(2, 5, 1)], torch=lambda a, x: x.movedim(-1, 1)
    ),
    **{f"_convolution_channels_last-{n}": row for n, row in _ROWS_OF_CONVOLUTION.items()},
}
