"""Kernels of matrix products become machine code for the promised architectures and spill nothing."""

from __future__ import annotations

import pytest

from mxlite.backends.gpu import nvrtc, tiled_gemm

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")

ARCHITECTURES = ("sm_80", "sm_90")


def compiled(source, architecture):
    """What each kernel takes."""
    cubin, log = nvrtc.compile(source, architecture)
    assert cubin[:4] == b"\x7fELF"
    found = nvrtc.usage(log)
    assert found, log
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", tiled_gemm.COMPUTE)
@pytest.mark.parametrize("large", [False, True])
def test_products_by_tiles(architecture, dtype, large):
    size = tiled_gemm.LARGE[tiled_gemm.COMPUTE[dtype]] if large else tiled_gemm.SMALL
    found = compiled(tiled_gemm.source(dtype, dtype, *size), architecture)
    for name in ("gemm", "gemm_sum"):
        assert found[name].spilled_bytes == found[name].stack_bytes == 0
    # Two blocks of 256 threads on a multiprocessor, more of the small ones.
    assert found["gemm"].registers <= 128, found
