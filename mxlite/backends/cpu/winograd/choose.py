"""Choice of a Winograd kernel and its split for a convolution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ....core.dtype import float32
from ....ops.nn.conv_kernels import Geometry
from ..compiled import width
from ..runtime.threads import num_threads
from .convolve import Convolution, Made
from .correlate import Correlation
from .grid import Grid, Kind
from .layer import fits, Layer, part_of
from .tiles import Epilogue, Prologue

PLAIN = Prologue()
LEAST_HALVED = 64  # channels of a part: with fewer, transforming the other side twice costs more
LEAST_SHARED = 2  # least threads in the split of weight gradients: one adds up what two would, in their order
MOST_SORTED = 64  # tiles of an image: more do not fit in a cache together


class Cut(NamedTuple):
    """How a convolution is cut: outputs of a tile in one direction, channels of a part on both sides, and the
    most tiles of an item. None: as is best.
    """

    m: int = 4
    parts: tuple[int, int] | None = None
    most: int | None = None


def forward(
    g: Geometry,
    add: bool = False,
    relu: bool = False,
    scale: bool = False,
    prologue: Prologue = PLAIN,
    **cut: Any,
) -> Convolution | None:
    """data (n, h, w, c), weight (f, c, 3, 3) and bias -> out. `cut`: fields of `Cut`, and `group`."""
    if scale and g.dtype != float32:  # factors for weights of 16 bits are of 16 bits
        return None
    return _convolution(g, False, Epilogue(add, relu, scale), prologue, **cut)


def d_data(g: Geometry, **cut: Any) -> Convolution | None:
    """The gradient of the data of `forward` with the same arguments: d_out and weight -> d_data."""
    around = tuple(2 - p for p in g.pad)
    turned = replace(g, c=g.f, size=g.out, f=g.c, out=g.size, pad=around)
    return _convolution(turned, True, Epilogue(), PLAIN, **cut)


def _convolution(
    g: Geometry,
    flipped: bool,
    epilogue: Epilogue,
    prologue: Prologue,
    group: int | None = None,
    **cut: Any,
) -> Convolution | None:
    if not fits(g):
        return None
    m, parts, most = Cut(**cut)
    shape, c, f = _layer(g, m), g.c, g.f
    if parts is None:
        parts = (c, f) if c * f <= 128 * 128 else (part_of(c, 64), part_of(f, 64))
    if parts == (c, f):
        made = Made.BY_THREAD if c * f <= 64 * 64 else Made.SHARED
    else:
        made = Made.BY_ITEM
    group = group or (128 if made == Made.BY_ITEM else 14)
    groups = -(-shape.units // max(1, group // shape.unit))
    if made != Made.BY_ITEM:
        groups = max(1, min(shape.units, -(-groups // shape.threads) * shape.threads))
    most = max(1, (most or 32) // shape.unit)
    return Convolution(
        **vars(shape), flipped=flipped, epilogue=epilogue, prologue=prologue, parts=parts, groups=groups,
        most=most, made=made,
    )  # fmt: skip


def d_weight(
    g: Geometry, splits: int | None = None, prologue: Prologue = PLAIN, adds: bool = False, **cut: Any
) -> Correlation | None:
    """The weight gradient of `forward` with the same arguments: d_out and data -> d_weight, with
    `adds` accumulated into d_weight.
    """
    if not fits(g):
        return None
    m, parts, most = Cut(**cut)
    shape, c, f = _layer(g, m), g.c, g.f
    shared = max(LEAST_SHARED, shape.threads)
    if parts is None:
        parts = part_of(c, 64), part_of(f, 64)
        halved = _for_each_thread(parts, (c // parts[0]) * (f // parts[1]), shared)
        parts, most = halved, most or (32 if halved == parts else 16)
    if splits is None:
        items = (c // parts[0]) * (f // parts[1])
        splits = 1 if items % shared == 0 or items > 8 * shared else shared
    splits = min(splits, shape.units)  # each has something to add
    most = max(1, (most or 32) // shape.unit)
    return Correlation(**vars(shape), prologue=prologue, parts=parts, splits=splits, most=most, adds=adds)


def _layer(g: Geometry, m: int) -> Layer:
    """The convolution by tiles of m x m outputs, on the threads that kernels have now."""
    (h, w), (oh, ow), (above, left) = g.size, g.out, g.pad
    return Layer(g.n, h, w, g.c, g.f, (above, left), str(g.dtype), grid_of(oh, ow, m), num_threads())


def _for_each_thread(parts: tuple[int, int], items: int, threads: int) -> tuple[int, int]:
    """`parts`, halved if they are fewer than threads: each thread has sums of its own then, and those of half
    a part are half as many as those of a whole one that is split by tiles.
    """
    found = list(parts)
    for k in (1, 0):
        if items < threads and found[k] >= LEAST_HALVED and found[k] // 2 % width() == 0:
            found[k], items = found[k] // 2, 2 * items
    return (found[0], found[1]) if items >= threads else parts


def grid_of(oh: int, ow: int, m: int) -> Grid:
    """Tiles for images of oh x ow outputs."""
    if -(-oh // m) * -(-ow // m) > MOST_SORTED:
        return Grid(m, Kind(m, m))
    return Grid(m, Kind(_last(oh, m), _last(ow, m)))


def _last(size: int, m: int) -> int:
    """Outputs of the last tile: at least 2, and as many as others if there is no remainder."""
    rest = size % m
    return max(2, rest) if rest and size > m else m
