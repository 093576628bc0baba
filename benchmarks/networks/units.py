"""A convolution, a norm and an activation, in both frameworks: the unit of networks for images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn, Tensor
from torch.nn import functional as F

import mxlite as mx
from mxlite.symbol import Symbol

ACTIVATIONS: dict[str, tuple[Callable[[Symbol], Symbol], Callable[[Tensor], Tensor]]] = {
    "": (lambda x: x, lambda x: x),
    "relu": (lambda x: mx.sym.Activation(x, act_type="relu"), lambda x: F.relu(x, inplace=True)),
    "relu6": (lambda x: mx.sym.clip(x, a_min=0, a_max=6), lambda x: F.relu6(x, inplace=True)),
    "silu": (mx.sym.silu, lambda x: F.silu(x, inplace=True)),
    "hard_swish": (mx.sym.hard_swish, lambda x: F.hardswish(x, inplace=True)),
}
"""Ours and PyTorch's, by name."""


def pair(kernel: int | tuple[int, int]) -> tuple[int, int]:
    return (kernel, kernel) if isinstance(kernel, int) else kernel


def unit(
    x: Symbol,
    filters: int,
    kernel: int | tuple[int, int],
    name: str,
    stride: int = 1,
    groups: int = 1,
    act: str = "relu",
    pad: int | tuple[int, int] | None = None,
) -> Symbol:
    """Names of parameters: `name`_conv_weight, `name`_bn_gamma, and so on. pad: half a kernel if None."""
    kernel = pair(kernel)
    x = mx.sym.Convolution(
        x,
        num_filter=filters,
        kernel=kernel,
        stride=pair(stride),
        pad=tuple(k // 2 for k in kernel) if pad is None else pair(pad),
        num_group=groups,
        no_bias=True,
        name=f"{name}_conv",
    )
    x = mx.sym.BatchNorm(x, fix_gamma=False, eps=1e-5, momentum=0.9, name=f"{name}_bn")
    return ACTIVATIONS[act][0](x)


class Unit(nn.Module):
    """PyTorch's `unit`."""

    def __init__(
        self,
        inputs: int,
        filters: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        groups: int = 1,
        act: str = "relu",
        pad: int | tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        kernel = pair(kernel)
        pads: Any = tuple(k // 2 for k in kernel) if pad is None else pad
        self.conv = nn.Conv2d(inputs, filters, kernel, stride, pads, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(filters)
        self.act = ACTIVATIONS[act][1]

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


def classes_of(x: Symbol, classes: int) -> Symbol:
    """(N, C, H, W) -> (N, `classes`): the mean over each image and an affine map, called fc."""
    x = mx.sym.Pooling(x, pool_type="avg", kernel=(1, 1), global_pool=True)
    return mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=classes, name="fc")


def mean_over_image(x: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, C)."""
    return F.adaptive_avg_pool2d(x, 1).flatten(1)


def gated(x: Symbol, filters: int, inner: int, name: str, act: str, hard: bool = False) -> Symbol:
    """`x` (N, `filters`, H, W) times gates from the means of its channels: J. Hu et al. 2018,
    "Squeeze-and-excitation networks". hard: a piecewise linear sigmoid."""
    gate = mx.sym.Pooling(x, pool_type="avg", kernel=(1, 1), global_pool=True)
    gate = mx.sym.Convolution(gate, num_filter=inner, kernel=(1, 1), name=f"{name}_squeeze")
    gate = ACTIVATIONS[act][0](gate)
    gate = mx.sym.Convolution(gate, num_filter=filters, kernel=(1, 1), name=f"{name}_excite")
    gate = mx.sym.hard_sigmoid(gate, alpha=1 / 6, beta=0.5) if hard else mx.sym.sigmoid(gate)
    return mx.sym.broadcast_mul(x, gate)


class Gated(nn.Module):
    """PyTorch's `gated`."""

    def __init__(self, filters: int, inner: int, act: str, hard: bool = False) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(filters, inner, 1), nn.Conv2d(inner, filters, 1)
        self.act, self.sigmoid = ACTIVATIONS[act][1], F.hardsigmoid if hard else torch.sigmoid

    def forward(self, x: Tensor) -> Tensor:
        gate = self.excite(self.act(self.squeeze(F.adaptive_avg_pool2d(x, 1))))
        return x * self.sigmoid(gate)
