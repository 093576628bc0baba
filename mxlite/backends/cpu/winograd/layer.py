"""A convolution of 3x3 with stride 1, as described to the kernels here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ....ops.nn.conv_kernels import Geometry
from ....ops.scratch import Piece, scratch_bytes
from ..compiled import storable, usable, width
from .grid import Grid
from .tiles import NBYTES

BYTE = np.dtype("uint8")


@dataclass(frozen=True)
class Layer:
    """data: (n, h, w, c), out: (n, oh, ow, f) with oh = h + 2 pad - 2."""

    name: ClassVar[str] = "compiled winograd"

    n: int
    h: int
    w: int
    c: int
    f: int
    pad: tuple[int, int]
    dtype: str
    grid: Grid
    threads: int

    @property
    def oh(self) -> int:
        return self.h + 2 * self.pad[0] - 2

    @property
    def ow(self) -> int:
        return self.w + 2 * self.pad[1] - 2

    @property
    def products(self) -> int:
        return self.grid.n**2

    @property
    def per_row(self) -> int:
        """Number of tiles in a row of tiles."""
        return -(-self.ow // self.grid.m)

    @property
    def per_column(self) -> int:
        return -(-self.oh // self.grid.m)

    @property
    def unit(self) -> int:
        """Tiles that are not separated: one, or those of an image if they are of several kinds."""
        return self.per_row * self.per_column if len(self.grid.kinds) > 1 else 1

    @property
    def units(self) -> int:
        return self.n * self.per_row * self.per_column // self.unit

    @property
    def itemsize(self) -> int:
        return NBYTES[self.dtype]

    def pieces(self) -> list[Piece]:
        """Pieces of `work`."""
        raise NotImplementedError

    @property
    def workspace(self) -> int:
        return scratch_bytes(self.pieces())

    def slots(self) -> dict[str, int]:
        """Slots common to all kernels."""
        return {
            "units": self.units, "unit": self.unit, "per_image": self.per_row * self.per_column,
            "per_column": self.per_column, "per_row": self.per_row, "h": self.h, "w": self.w,
            "oh": self.oh, "ow": self.ow, "pad_y": self.pad[0],
            "pad_x": self.pad[1], "c": self.c, "f": self.f,
        }  # fmt: skip


def fits(g: Geometry) -> bool:
    """True if there are kernels for this convolution of 3x3, fast or not."""
    if not usable() or 0 in (g.n, *g.size, g.c, g.f) or width() < 8:
        return False
    if g.c % width() or g.f % width() or not all(0 <= p <= 2 for p in g.pad):
        return False
    if any(s + 2 * p < 3 for s, p in zip(g.size, g.pad)):
        return False
    return str(g.dtype) in NBYTES.keys() & storable()


def vectors(channels: int) -> int:
    """Number of vectors in a panel of so many channels."""
    return 2 if channels % (2 * width()) == 0 else 1


def part_of(channels: int, most: int) -> int:
    """The largest part of `channels`, in whole vectors, that is not above `most`."""
    lanes = width()
    return next(k for k in range(max(most, lanes) // lanes * lanes, 0, -lanes) if channels % k == 0)


def padded(nbytes: int, to: int = 64) -> int:
    return -(-nbytes // to) * to
