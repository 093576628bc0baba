"""Positions that deformed windows read, and their pixels: columns of pixels, and their gradients.

A pixel between others is their bilinear mean:

    w0 = (1-fy)(1-fx)   v0 ---- v1   w1 = (1-fy) fx
                        |   fy   |
                        |fx o    |
    w2 = fy (1-fx)      v2 ---- v3   w3 = fy fx
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ...core.dtype import as_dtype
from ..nn.conv_kernels import Geometry
from ..scratch import Piece


def place_pieces(places: int, acc: Any, masked: bool) -> list[Piece]:
    """Scratch: for each position y and x, its four pixels, their weights, a flag for outside, another flag,
    its mask.
    """
    return [
        ((2 * places,), acc),
        ((4 * places,), as_dtype("int64")),
        ((4 * places,), acc),
        ((places,), as_dtype("bool")),
        ((places,), as_dtype("bool")),
        ((places if masked else 0,), acc),
    ]


class Places:
    """The positions that the windows of some outputs of one image read, in scratch of `place_pieces`.

    For D deformable groups, K elements of a window and B outputs  place: (2, D, K, B), the distance of y and
    x from the first of the four pixels;  pixels: (4, D, K, B), their indices in a channel, H * W for 0;
    shares: (4, D, K, B);  mask: (D, K, B) or None. `reach`: how far outside the image pixels still count.
    """

    def __init__(
        self, xp: Any, a: Any, g: Geometry, offset: Any, mask: Any, at: slice, reach: int, scratch: Any
    ) -> None:
        self.xp, self.g, d = xp, g, a.num_deformable_group
        place, pixels, shares, outside, flag, factors = scratch
        self.split = split = d, g.taps, at.stop - at.start
        self.place = shaped(place, 2, *split)
        self.pixels, self.shares = shaped(pixels, 4, *split), shaped(shares, 4, *split)
        outside, flag = shaped(outside, *split), shaped(flag, *split)
        self._move(a, offset.reshape(d, g.taps, 2, -1)[..., at], at)
        outside.fill(False)
        for x, size in zip(self.place, g.size):
            # A position is inside if it passes both tests; nan passes none.
            for test, bound in ((xp.greater if reach else xp.greater_equal, -reach), (xp.less, size)):
                test(x, bound, out=flag)
                xp.logical_not(flag, out=flag)
                xp.logical_or(outside, flag, out=outside)
        for x in self.place:
            xp.copyto(x, 0, where=outside)
        self._find_pixels(outside, flag, reach)
        self._find_shares()
        self.mask = None
        if mask is not None:
            self.mask = shaped(factors, *split)
            xp.copyto(self.mask, mask.reshape(d, g.taps, -1)[..., at])

    def _move(self, a: Any, moves: Any, at: slice) -> None:
        """Compute place: y and x in the image."""
        g, xp = self.g, self.xp
        positions = divmod(np.arange(at.start, at.stop), g.out[1])
        taps = divmod(np.arange(g.taps), g.kernel[1])
        for axis, x in enumerate(self.place):
            start = positions[axis] * g.stride[axis] - g.pad[axis]
            xp.add((taps[axis] * g.dilate[axis])[:, None], start, out=x[0], dtype=x.dtype)
            x[1:] = x[0]
            xp.add(x, moves[:, :, axis], out=x)

    def _find_pixels(self, outside: Any, flag: Any, reach: int) -> None:
        """Compute pixels; place becomes the distance from the first."""
        xp, none = self.xp, -2 * prod(self.g.size)
        for axis, (x, size) in enumerate(zip(self.place, self.g.size)):
            low, high = self.pixels[axis], self.pixels[2 + axis]
            floor = self.shares[0]
            xp.floor(x, out=floor)
            xp.subtract(x, floor, out=x)
            xp.copyto(low, floor, casting="unsafe")
            xp.add(low, 1, out=high)
            if reach:
                for number in (low, high):
                    for test, bound in ((xp.less, 0), (xp.greater_equal, size)):
                        test(number, bound, out=flag)
                        xp.copyto(number, none, where=flag)
            else:  # the last pixel extends to the edge
                xp.minimum(high, size - 1, out=high)
            if axis == 0:
                xp.multiply(low, self.g.size[1], out=low)
                xp.multiply(high, self.g.size[1], out=high)
        # top, left, bottom, right  ->  the four weights, each written over a value that is not read any more.
        first, second, third, fourth = self.pixels
        xp.add(third, fourth, out=fourth)
        xp.add(third, second, out=third)
        xp.add(first, second, out=first)
        xp.add(first, fourth, out=second)
        xp.subtract(second, third, out=second)
        for number in self.pixels:
            xp.less(number, 0, out=flag)
            xp.logical_or(flag, outside, out=flag)
            xp.copyto(number, prod(self.g.size), where=flag)

    def _find_shares(self) -> None:
        xp, (y, x), (first, second, third, fourth) = self.xp, self.place, self.shares
        xp.subtract(1, y, out=first)
        xp.subtract(1, x, out=third)
        xp.multiply(first, x, out=second)
        xp.multiply(y, x, out=fourth)
        xp.multiply(first, third, out=first)
        xp.multiply(y, third, out=third)

    def _groups(self, *arrays: Any) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """For each deformable group its number, and its channels of arrays (C, ...) as (C / D, -1)."""
        d = self.split[0]
        return ((i, tuple(x.reshape(d, self.g.c // d, -1)[i] for x in arrays)) for i in range(d))

    def _take(self, image: Any, q: int, i: int, spare: Any) -> Any:
        """Pixel q of each position of group i, for each of its channels `image` (C / D, H * W + 1)."""
        out = shaped(spare, len(image), prod(self.split[1:]))
        return self.xp.take(image, self.pixels[q, i].reshape(-1), axis=1, out=out, mode="clip")

    def columns(self, image: Any, columns: Any, spare: Any) -> Any:
        """The pixels that the windows read, (G, C / G * K, B)."""
        g, xp = self.g, self.xp
        grouped = shaped(columns, g.c, g.taps, self.split[2])
        for i, (pixels, target) in self._groups(image, grouped):
            for q in range(4):
                read = self._take(pixels, q, i, spare)
                xp.multiply(read, self.shares[q, i].reshape(-1), out=read if q else target)
                if q:
                    xp.add(target, read, out=target)
            if self.mask is not None:
                xp.multiply(target, self.mask[i].reshape(-1), out=target)
        return grouped.reshape(g.groups, -1, self.split[2])

    def slopes(self, image: Any, d_columns: Any, spare: Any, four: Any) -> None:
        """Compute for each of the four pixels the sum over channels of its value times d_columns."""
        self.four = shaped(four, 4, *self.split)
        for i, (pixels, heads) in self._groups(image, d_columns):
            for q in range(4):
                read = self._take(pixels, q, i, spare)
                self.xp.einsum("cp,cp->p", read, heads, out=self.four[q, i].reshape(-1))

    def write_gradients(self, d_offset: Any, d_mask: Any, n: int, at: slice, spare: Any) -> None:
        """d_offset and d_mask of image n at these positions, from `slopes`; overwrites shares."""
        xp, (d, taps, _) = self.xp, self.split
        one, other = shaped(spare, *self.split), self.shares[0]
        if d_mask is not None:
            xp.multiply(self.shares, self.four, out=self.shares)
            xp.add.reduce(self.shares, axis=0, out=one)
            xp.copyto(d_mask[n].reshape(d, taps, -1)[..., at], one, casting="unsafe")
        if d_offset is None:
            return
        target = d_offset[n].reshape(d, taps, 2, -1)[..., at]
        for axis, (low, high) in enumerate((((0, 1), (2, 3)), ((0, 2), (1, 3)))):
            share = self.place[1 - axis]
            # (1 - share) * (first pair) + share * (second pair)
            xp.subtract(self.four[high[0]], self.four[low[0]], out=one)
            xp.multiply(one, share, out=other)
            xp.subtract(one, other, out=one)
            xp.subtract(self.four[high[1]], self.four[low[1]], out=other)
            xp.multiply(other, share, out=other)
            xp.add(one, other, out=one)
            if self.mask is not None:
                xp.multiply(one, self.mask, out=one)
            xp.copyto(target[:, :, axis], one, casting="unsafe")

    def scatter(self, d_columns: Any, spare: Any, d_image: Any) -> None:
        """Add the gradient of the pixels to d_image (C, H * W + 1)."""
        xp = self.xp
        for i, (heads, targets) in self._groups(d_columns, d_image):
            if self.mask is not None:
                xp.multiply(heads, self.mask[i].reshape(-1), out=heads)
            given = shaped(spare, *heads.shape)
            for q in range(4):
                xp.multiply(heads, self.shares[q, i].reshape(-1), out=given)
                at = self.pixels[q, i].reshape(-1)
                for target, values in zip(targets, given):
                    xp.add.at(target, at, values)


def shaped(flat: Any, *shape: int) -> Any:
    """The first elements of a flat array in this shape."""
    return flat[: prod(shape)].reshape(shape)
