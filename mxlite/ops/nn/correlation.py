"""Correlation of two feature maps."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..scratch import accumulator, carve, Piece, scratch_bytes


@record
class _Places:
    """Positions of the patches of padded (C, H, W) maps."""

    channels: int
    padded: Shape
    out: Shape
    reach: int  # displacements on either side
    a: Any

    @property
    def displacements(self) -> list[tuple[int, int]]:
        """The displacement of data2's patch from data1's, down and right, for each output channel."""
        steps = range(-self.reach, self.reach + 1)
        return [(i * self.a.stride2, j * self.a.stride2) for i in steps for j in steps]

    @property
    def elements(self) -> int:
        """Numbers in a patch."""
        return self.a.kernel_size**2 * self.channels

    def patches(self, x: Any, down: int, right: int) -> Iterator[Any]:
        """The patches' elements for each position of the kernel: views (C, OH, OW) of a padded map."""
        s, start = self.a.stride1, self.a.max_displacement
        h, w = self.out
        for i in range(self.a.kernel_size):
            for j in range(self.a.kernel_size):
                top, left = start + down + i, start + right + j
                yield x[:, top : top + (h - 1) * s + 1 : s, left : left + (w - 1) * s + 1 : s]

    def pieces(self, dtype: DType, backward: bool) -> list[Piece]:
        """Scratch: both maps padded; a product, a plane; backward: both gradients."""
        acc = accumulator(dtype)
        map_: Piece = ((self.channels, *self.padded), acc)
        part: Piece = ((self.channels, *self.out), acc)
        return [map_, map_, part, (self.out, acc), *[map_] * (2 * backward)]


@lru_cache(maxsize=1024)
def correlation_places(a: Any, data: Shape) -> _Places:
    padded = tuple(n + 2 * a.pad_size for n in data[2:])
    border = a.max_displacement + (a.kernel_size - 1) // 2
    out = tuple(-(-(n - 2 * border) // a.stride1) for n in padded)
    if min(out) < 1:
        raise ShapeError(
            f"displacements of {a.max_displacement} and a kernel of {a.kernel_size} leave nothing of data "
            f"{data} padded by {a.pad_size}."
        )
    return _Places(data[1], padded, out, a.max_displacement // a.stride2, a)


class Correlation(Op):
    """Similarity of the patches of two maps, for each displacement of the second.

    data1, data2: (N, C, H, W)  ->  out: (N, D * D, OH, OW), D = 2 * (max_displacement // stride2) + 1,
    OH = ceil((H + 2 * pad_size - 2 * (max_displacement + (kernel_size - 1) / 2)) / stride1).

    out[n, d, i, j] = mean over a patch of kernel_size**2 * C numbers of data1 * data2, or with
    `is_multiply=False` of |data1 - data2|, where the patch of data2 lies d further. A. Dosovitskiy et al.,
    2015, "FlowNet: learning optical flow with convolutional networks". The padded maps are not kept. Where
    numbers are equal the gradient of their difference is 1, as in MXNet.
    """

    inputs = ("data1", "data2")
    accepts = "float"

    @record
    class Attrs:
        kernel_size: int = 1
        max_displacement: int = 1
        stride1: int = 1
        stride2: int = 1
        pad_size: int = 0
        is_multiply: bool = True

        def __post_init__(self) -> None:
            if self.kernel_size < 1 or self.kernel_size % 2 == 0:
                raise OpAttributeError(f"kernel_size must be odd, got {self.kernel_size}.")
            for name, least in (("max_displacement", 0), ("stride1", 1), ("stride2", 1), ("pad_size", 0)):
                if getattr(self, name) < least:
                    raise OpAttributeError(f"{name} must be at least {least}, got {getattr(self, name)}.")

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        first, second = shapes
        if len(first) != 4 or first != second:
            raise ShapeError(f"data1 and data2 must be of one shape (N, C, H, W), got {first} and {second}.")
        p = correlation_places(a, first)
        return shapes, ((first[0], len(p.displacements), *p.out),)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * prod(outputs[0]) * a.kernel_size**2 * inputs[0][1]

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(correlation_places(a, inputs[0]).pieces(dtype, False))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(correlation_places(a, inputs[0]).pieces(dtype, True))

    @staticmethod
    def forward(xp: Any, a: Any, data1: Any, data2: Any, *, out: Any, work: Any) -> None:
        if out is None:
            return
        p = correlation_places(a, data1.shape)
        first, second, part, plane = carve(work, p.pieces(data1.dtype, False))
        for n in range(len(data1)):
            _pad(xp, a, data1[n], first)
            _pad(xp, a, data2[n], second)
            for d, (down, right) in enumerate(p.displacements):
                plane.fill(0)
                for x, y in zip(p.patches(first, 0, 0), p.patches(second, down, right)):
                    if a.is_multiply:
                        xp.multiply(x, y, out=part)
                    else:
                        xp.subtract(x, y, out=part)
                        xp.absolute(part, out=part)
                    for term in part:
                        xp.add(plane, term, out=plane)
                xp.divide(plane, p.elements, out=plane)
                xp.copyto(out[n, d], plane, casting="unsafe")

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, data1: Any, data2: Any, *, d_data1: Any, d_data2: Any, work: Any
    ) -> None:
        p = correlation_places(a, data1.shape)
        first, second, part, plane, d_first, d_second = carve(work, p.pieces(data1.dtype, True))
        inside = slice(None), *(slice(a.pad_size, a.pad_size + n) for n in data1.shape[2:])
        for n in range(len(data1)):
            _pad(xp, a, data1[n], first)
            _pad(xp, a, data2[n], second)
            d_first.fill(0)
            d_second.fill(0)
            for d, (down, right) in enumerate(p.displacements):
                xp.divide(d_out[n, d], p.elements, out=plane, dtype=plane.dtype)
                for x, y, d_x, d_y in zip(
                    p.patches(first, 0, 0),
                    p.patches(second, down, right),
                    p.patches(d_first, 0, 0),
                    p.patches(d_second, down, right),
                ):
                    if a.is_multiply:
                        xp.multiply(plane, y, out=part)
                        xp.add(d_x, part, out=d_x)
                        xp.multiply(plane, x, out=part)
                        xp.add(d_y, part, out=d_y)
                    else:
                        xp.greater_equal(x, y, out=part)
                        xp.multiply(part, 2, out=part)
                        xp.subtract(part, 1, out=part)
                        xp.multiply(part, plane, out=part)
                        xp.add(d_x, part, out=d_x)
                        xp.subtract(d_y, part, out=d_y)
            for d_data, d_map in ((d_data1, d_first), (d_data2, d_second)):
                if d_data is not None:
                    xp.copyto(d_data[n], d_map[inside], casting="unsafe")


def _pad(xp: Any, a: Any, x: Any, padded: Any) -> None:
    """Copy `x`, with zeros around it, into `padded`."""
    padded.fill(0)
    p = a.pad_size
    xp.copyto(padded[:, p : p + x.shape[1], p : p + x.shape[2]], x)
