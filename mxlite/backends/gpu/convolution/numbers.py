"""Kernel arguments of one convolution: the struct `Convolution` of cuda/convolution.cuh."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ....graph.ir import Shape
from ....ops.nn.conv_kernels import Geometry
from ..compiler.source import structure
from ..handwritten.layout import divisor

_i, _l, _u = ctypes.c_int, ctypes.c_int64, ctypes.c_uint32

MOST = 2**31 - 1
"""Limit of lengths, channels, positions and blocks, which kernels count in 32 bits."""


Numbers: Any = structure("convolution", "Convolution")


@dataclass(frozen=True)
class Side:
    """An array of activations: its channels, the lengths of its axes, and its strides in elements."""

    channels: int
    size: Shape
    last: bool

    @property
    def axes(self) -> Shape:
        """The three lengths."""
        return three(self.size, 1)

    @property
    def sample(self) -> int:
        return self.channels * prod(self.size)

    @property
    def channel(self) -> int:
        """Stride from one channel to the next."""
        return 1 if self.last else prod(self.size)

    @property
    def position(self) -> int:
        """Stride from one position to the next."""
        return self.channels if self.last else 1

    @property
    def strides(self) -> Shape:
        """Strides along the three axes."""
        _, height, width = self.axes
        return height * width * self.position, width * self.position, self.position


def three(values: Sequence[int], fill: int) -> Shape:
    """Values for depth, height and width, filled up where there are fewer axes."""
    return (*(fill,) * (3 - len(values)), *values)


def sides(g: Geometry, last: bool) -> tuple[Side, Side]:
    """Sides of data and of output."""
    return Side(g.c, g.size, last), Side(g.f, g.out, last)


def numbers(g: Geometry, read: Side, made: Side) -> Numbers:
    """Arguments that do not depend on tiles; `read` is the side of the windows, `made` the other."""
    n = Numbers()
    for name, side in (("x", read), ("y", made)):
        setattr(n, f"{name}_sample", side.sample)
        setattr(n, f"{name}_channel", side.channel)
        setattr(n, f"{name}_axis", (_l * 3)(*side.strides))
    setattr(n, "from", (_i * 3)(*read.axes))
    n.to = (_i * 3)(*made.axes)
    for name, fill in (("kernel", 1), ("stride", 1), ("dilate", 1), ("pad", 0)):
        setattr(n, name, (_i * 3)(*three(getattr(g, name), fill)))
    n.samples, n.groups = g.n, g.groups
    n.made, n.summed = made.channels // g.groups, read.channels // g.groups
    n.w_tap = 1
    n.w_group = (g.f // g.groups) * (g.c // g.groups) * g.taps
    for axis, length in enumerate(made.axes):
        n.divisor[axis] = (_u * 2)(*divisor(max(1, length)))
    return n


def fits(g: Geometry) -> bool:
    """True if kernels can count everything in 32 bits."""
    reach = [(k - 1) * d + p + s for k, d, p, s in zip(g.kernel, g.dilate, g.pad, g.stride)]
    lengths = (*g.size, *g.out, *reach, *(n * s for n, s in zip(g.out, g.stride)))
    if any(v >= 2**29 for v in lengths):
        return False
    counts = (g.n * prod(g.out), g.n * prod(g.size), g.c * g.taps, g.f * g.taps, prod(g.stride) * g.groups)
    return all(v <= MOST for v in counts)
