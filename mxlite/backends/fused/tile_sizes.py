"""How large tiles are: what was measured to be fast, in one place for all regions."""

from __future__ import annotations

from math import prod

from ...graph.ir import Shape
from ...graph.opdef import DType
from .tiled import TileLoop

WEIGHT_CAST_BYTES, FEWEST_WEIGHT_CASTS = 1024 * 1024, 8
"""Bytes of rows of a weight that are cast at a time, about: they stay in the cache. Least number of tiles:
those of a smaller weight are smaller."""

BATCH_CAST_BYTES, LEAST_BATCH_TILE = 128 * 1024, 64
"""Bytes of samples that are cast at a time, about, and least number of them: for each tile a kernel copies
the weight, or adds to its gradient."""

UPDATE_BYTES, DEEP_UPDATE_BYTES, FEWEST_UPDATES = 512 * 1024, 1024 * 1024, 6
"""Bytes of a gradient's rows at a time, about: they stay in the cache with their weights and states. More for
a deep product: for each tile a kernel copies all of its right factor once. Least number of tiles."""

LEAST_UPDATE, LEAST_DEEP_UPDATE = 2 * UPDATE_BYTES, 4 * DEEP_UPDATE_BYTES
"""Least bytes of a gradient that is worth a region, the second for deep products. A smaller one stays in the
cache as a whole; in tiles, one of a deep product takes a few percent longer, which is to bring more than a
few bytes."""

DEEP = 512
"""Products per element of a gradient from which on arithmetic, not memory, dominates the time."""

FILTER_BYTES, FILTER_BYTES_OF_THREAD, FILTERS = 1024 * 1024, 144 * 1024, 64
"""Bytes of the gradient of some filters in float32, about, and least bytes for each thread: one part of
Winograd's sums. Filters of a tile are a multiple of those that such a part has."""

FORWARD_BLOCK, BACKWARD_BLOCK = (1024, 256), (256, 256)
"""Rows and columns of a block, about, to which an activation is applied before a product in float32. Kernels
copy both factors of a product: forward the weight's columns once for each block of rows, backward all of
d_out once for each block of columns."""

ROWS_PER_OUTPUT = 4
"""The most rows of a forward block for each of the layer's outputs: a block has no more than that many times
the bytes of the weight's columns, so that the scratch of a layer of few outputs is small beside its data."""

NARROW_FORWARD_BLOCK, NARROW_BACKWARD_BLOCK = (256, None), (256, 256)
"""The same in 16 bits, where kernels of small blocks are as fast as those of large ones; None: all columns,
as every number is rounded once."""

SAMPLES_BYTES, PRODUCT_ROWS = 128 * 1024, 256
"""Bytes of an array between operators that work sample by sample, about: less is not worth a call. Least rows
of a product among them: for each tile its weight is copied once more."""

BLOCK_COLUMNS = 256
"""Columns of a block are a multiple: products over columns that are none are slower."""

SCORE_BYTES, LEAST_SCORE_ROWS = 5 * 1024 * 1024, 128
"""Bytes of a classifier's scores at a time, about: they stay in the last-level cache between the product that
writes them and those that read them. Least rows of them: products of fewer rows take longer, as each reads
the weight and its gradient."""

PART_ROWS = 64
"""Rows at a time of a weight's gradient whose kernel cannot add to it: each part waits in scratch."""

MULTIPLE = 16
"""Rows of a tile are a multiple: whole vectors, whether or not a kernel transposes a product."""


def even_tiles(count: int, tiles: int, unit: str = "sample") -> TileLoop:
    """A loop of about so many tiles, of about equal length."""
    each = -(-count // max(1, tiles))
    return TileLoop(count, max(1, min(count, -(-each // MULTIPLE) * MULTIPLE)), unit)


def weight_cast_tiles(rows: int, columns: int) -> TileLoop:
    """Tiles of a weight that is cast to 16 bits where it is multiplied."""
    tiles = max(FEWEST_WEIGHT_CASTS, -(-2 * rows * columns // WEIGHT_CAST_BYTES))
    return even_tiles(rows, tiles, "row")


def batch_cast_tiles(count: int, width: int) -> TileLoop:
    """Tiles of a batch that is cast to 16 bits where it is multiplied."""
    return even_tiles(count, round(count / max(LEAST_BATCH_TILE, BATCH_CAST_BYTES // (2 * width))))


def update_tiles(rows: int, columns: int, depth: int, dtype: DType) -> TileLoop:
    """Tiles of a weight whose gradient, a product of `depth` terms an element, is used by its update."""
    target = UPDATE_BYTES if depth < DEEP else DEEP_UPDATE_BYTES
    tiles = max(FEWEST_UPDATES, round(rows * columns * dtype.itemsize / target))
    return even_tiles(rows, tiles, "row")


def score_tiles(rows: int, classes: int, dtype: DType) -> TileLoop:
    """Tiles of the rows of a classifier's scores."""
    target = max(LEAST_SCORE_ROWS, SCORE_BYTES // (classes * dtype.itemsize))
    return even_tiles(rows, -(-rows // target), "row")


def part_tiles(rows: int) -> TileLoop:
    """Tiles of a weight's gradient whose kernel cannot add to it."""
    return TileLoop(rows, min(rows, PART_ROWS), "row")


def filter_tiles(weight: Shape, threads: int) -> TileLoop | None:
    """Tiles of a convolution's weight, all of one size; None if there are no two."""
    each = 4 * prod(weight[1:])
    sizes = tuple(n for n in range(FILTERS, weight[0] // 2 + 1, FILTERS) if weight[0] % n == 0)
    loop = TileLoop(
        weight[0], 0, "filter", sizes, -(-FILTER_BYTES // each), -(-FILTER_BYTES_OF_THREAD // each)
    )
    return loop.fitted(threads) if sizes and sizes[-1] >= loop.wanted(threads) else None


def samples_of_tile(count: int, nbytes: int, rows: int | None) -> int:
    """Samples of a tile out of `count`, where the largest array between two operators has `nbytes`, and a
    product has so many `rows` of each sample; None without one.
    """
    each = max(1, round(count * SAMPLES_BYTES / nbytes))
    if rows is not None:
        each = max(each, -(-PRODUCT_ROWS // max(1, rows)))
    return min(count, each)


def block_tiles(count: int, wanted: int | None, multiple: int, unit: str) -> TileLoop:
    """Tiles of about `wanted` elements, of about equal length, the last not too small for good products; one
    of all elements for None.
    """
    if wanted is None:
        return TileLoop(count, count, unit)
    each = -(-count // max(1, round(count / wanted)))
    each = -(-each // multiple) * multiple
    while each < count and count % each in range(1, MULTIPLE):
        each += MULTIPLE
    return TileLoop(count, min(count, each), unit)
