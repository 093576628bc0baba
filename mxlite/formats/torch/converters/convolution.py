"""Convolutions and their transposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....core import FormatError
from ...building import GraphValue, NotSupportedError
from ...building.moves import padded
from ..node import TorchNode


def per_axis(value: Any, rank: int) -> tuple[int, ...]:
    """One number for each axis: of a number or a list with one, the same for all."""
    numbers = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    numbers = numbers * rank if len(numbers) == 1 else numbers
    if len(numbers) != rank:
        raise FormatError(f"needs {rank} numbers, got {numbers}.")
    return tuple(int(v) for v in numbers)


def convolution(n: TorchNode) -> GraphValue:
    """conv1d, conv2d, conv3d; a batch is added where there is none."""
    b, x, weight, bias = n.builder, n["input"], n["weight"], n.get("bias")
    rank = weight.rank - 2
    kernel = weight.shape[2:]
    alone = x.rank == rank + 1
    x = b.reshape(x, (1, *x.shape)) if alone else x
    stride, dilate = per_axis(n.plain("stride", 1), rank), per_axis(n.plain("dilation", 1), rank)
    pads = n.plain("padding", 0)
    if pads == "same":
        total = [(k - 1) * d for k, d in zip(kernel, dilate)]
        if any(t % 2 for t in total):
            x = padded(x, [(0, 0), (0, 0), *((t // 2, t - t // 2) for t in total)])
            pads = 0
        else:
            pads = tuple(t // 2 for t in total)
    inputs = [x, weight] if bias is None else [x, weight, bias]
    out = b.op(
        "Convolution",
        *inputs,
        kernel=kernel,
        num_filter=weight.shape[0],
        stride=stride,
        dilate=dilate,
        pad=per_axis(0 if pads == "valid" else pads, rank),
        num_group=n.plain("groups", 1),
        no_bias=bias is None,
    )
    return b.reshape(out, out.shape[1:]) if alone else out


def transposed_convolution(n: TorchNode) -> GraphValue:
    b, x, weight, bias = n.builder, n["input"], n["weight"], n.get("bias")
    rank, group = weight.rank - 2, n.plain("groups", 1)
    if x.rank != rank + 2:
        raise NotSupportedError("a transposed convolution without a batch axis")
    inputs = [x, weight] if bias is None else [x, weight, bias]
    return b.op(
        "Deconvolution",
        *inputs,
        kernel=weight.shape[2:],
        num_filter=weight.shape[1] * group,
        stride=per_axis(n.plain("stride", 1), rank),
        dilate=per_axis(n.plain("dilation", 1), rank),
        pad=per_axis(n.plain("padding", 0), rank),
        adj=per_axis(n.plain("output_padding", 0), rank),
        num_group=group,
        no_bias=bias is None,
    )


def any_convolution(n: TorchNode) -> GraphValue:
    return transposed_convolution(n) if n.plain("transposed") else convolution(n)


def shuffled(n: TorchNode) -> GraphValue:
    """pixel_shuffle: (N, C r^2, H, W) -> (N, C, H r, W r)"""
    b, x, r = n.builder, n["self"], n.plain("upscale_factor")
    *batch, channels, height, width = x.shape
    rank, c = len(batch), channels // r**2
    x = b.reshape(x, (*batch, c, r, r, height, width))
    x = b.transpose(x, (*range(rank), rank, rank + 3, rank + 1, rank + 4, rank + 2))
    return b.reshape(x, (*batch, c, height * r, width * r))


def unshuffled(n: TorchNode) -> GraphValue:
    """pixel_unshuffle: (N, C, H r, W r) -> (N, C r^2, H, W)"""
    b, x, r = n.builder, n["self"], n.plain("downscale_factor")
    *batch, c, height, width = x.shape
    rank = len(batch)
    x = b.reshape(x, (*batch, c, height // r, r, width // r, r))
    x = b.transpose(x, (*range(rank), rank, rank + 2, rank + 4, rank + 1, rank + 3))
    return b.reshape(x, (*batch, c * r * r, height // r, width // r))


def channel_shuffled(n: TorchNode) -> GraphValue:
    b, x, groups = n.builder, n["self"], n.plain("groups")
    batch, channels, *rest = x.shape
    x = b.reshape(x, (batch, groups, channels // groups, *rest))
    x = b.transpose(x, (0, 2, 1, *range(3, x.rank)))
    return b.reshape(x, (batch, channels, *rest))


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    "channel_shuffle": channel_shuffled,
    "conv1d": convolution,
    "conv2d": convolution,
    "conv3d": convolution,
    "conv_transpose1d": transposed_convolution,
    "conv_transpose2d": transposed_convolution,
    "conv_transpose3d": transposed_convolution,
    "convolution": any_convolution,
    "native_channel_shuffle": channel_shuffled,
    "pixel_shuffle": shuffled,
    "pixel_unshuffle": unshuffled,
}
