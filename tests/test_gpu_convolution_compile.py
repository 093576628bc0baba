"""Kernels of convolutions become machine code, and those of large tiles keep everything in registers."""

from __future__ import annotations

import pytest
from test_gpu_compile import ARCHITECTURES, compiled

from mxlite.backends.gpu import nvrtc
from mxlite.backends.gpu.convolution import tiles

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")

HOT = ("float32", "bfloat16")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tile", tiles.TILES, ids=lambda t: f"{t.rows}x{t.columns}")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_convolutions_spill_nothing(dtype, tile, architecture):
    if dtype == "float64" and tile not in tiles.DOUBLE:
        pytest.skip("not used for numbers of eight bytes")
    ways = ((True, 4), (True, 1), (False, 1)) if dtype in HOT else ((True, 4),)
    for along_k, pack in ways:
        sources = [tiles.gather(dtype, tile, along_k, pack)]
        sources.append(tiles.correlate(dtype, tile, not along_k, pack, pack))
        for source in sources:
            (found,) = compiled(source, architecture).values()
            assert found.registers <= (192 if tile.rows * tile.columns == 128 * 128 else 128)
            assert found.spilled_bytes == 0, (along_k, pack, found)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_sums(dtype, architecture):
    found = compiled(tiles.sums(dtype), architecture)
    assert set(found) == {"added_sums", "channel_parts"}
    assert all(u.spilled_bytes == 0 for u in found.values())
