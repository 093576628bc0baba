"""Kernels of convolutions become machine code, and keep everything in registers."""

from __future__ import annotations

import pytest

from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.convolution import columns, depthwise, tiles
from tests.backends.gpu.compile.test_compile import ARCHITECTURES, compiled

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")

HOT = [(d, t) for t in tiles.TILES for d in ("float32", "bfloat16")]


def spills_nothing(source, architecture, registers):
    for name, found in compiled(source, architecture).items():
        assert found.registers <= registers, (name, found)
        assert found.spilled_bytes == 0, (name, found)


def most(tile):
    """Registers: two blocks are to fit a multiprocessor, but of the largest tile."""
    return 192 if tile.rows * tile.columns == 128 * 128 else 128


@pytest.mark.parametrize(("dtype", "tile"), HOT, ids=str)
def test_hot_convolutions_spill_nothing(dtype, tile):
    """Channels last, in packs."""
    spills_nothing(tiles.gather(dtype, tile, True, 4), "sm_90", most(tile))
    spills_nothing(tiles.correlate(dtype, tile, False, 4, 4), "sm_90", most(tile))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_type_and_way_of_reading(dtype):
    """Among them those for channels behind the batch axis, on the older architecture."""
    tile = tiles.DOUBLE[0] if dtype == "float64" else tiles.TILES[0]
    for along_k, pack in ((True, 1), (False, 1)) if dtype == "float32" else ((True, 4),):
        spills_nothing(tiles.gather(dtype, tile, along_k, pack), "sm_80", most(tile))
        spills_nothing(tiles.correlate(dtype, tile, not along_k, pack, pack), "sm_80", most(tile))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sums_columns_and_depthwise_convolutions(dtype, architecture):
    assert set(compiled(columns.source(dtype), architecture)) == {
        "columns",
        "images",
    }  # divisions call, and spill
    spills_nothing(tiles.sums(dtype), architecture, 64)
    if dtype == "float64":  # not hot
        compiled(depthwise.source(dtype, 2), architecture)
    else:
        spills_nothing(depthwise.source(dtype, 4), architecture, 96)
