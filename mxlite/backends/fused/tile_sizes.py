"""How large tiles are: what was measured to be fast, in one place for all regions."""

from __future__ import annotations

from ...graph.opdef import DType
from .tiled import TileLoop

WEIGHT_CAST_BYTES, FEWEST_WEIGHT_CASTS = 1024 * 1024, 8
"""Bytes of rows of a weight that are cast at a time, about: they stay in the cache. Least number of tiles:
those of a smaller weight are smaller."""

BATCH_CAST_BYTES, LEAST_BATCH_TILE = 128 * 1024, 64
"""Bytes of samples that are cast at a time, about, and least number of them: for each tile a kernel copies the
weight, or adds to its gradient."""

UPDATE_BYTES, DEEP_UPDATE_BYTES, FEWEST_UPDATES = 512 * 1024, 1024 * 1024, 6
"""Bytes of a gradient's rows at a time, about: they stay in the cache with their weights and states. More for a
deep product: for each tile a kernel copies all of its right factor once. Least number of tiles."""

DEEP = 512
"""Products per element of a gradient from which on arithmetic, not memory, dominates the time."""

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
