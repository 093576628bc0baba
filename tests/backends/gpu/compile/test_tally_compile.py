"""Kernels of metrics and of the random step become machine code for sm_80 and sm_90, without spills."""

from __future__ import annotations

import pytest

from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.compiler.kinds import FLOATS
from mxlite.backends.gpu.graphs import graph_numbers
from mxlite.backends.gpu.kernels.loss import metric_sums

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")


def check(source, architecture):
    cubin, log = nvrtc.compile(source, architecture)
    assert cubin[:4] == b"\x7fELF"
    for found in nvrtc.usage(log).values():
        assert found.spilled_bytes == 0, found


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_kernels_compile(architecture):
    check(graph_numbers._SOURCE, architecture)
    for dtype in sorted(FLOATS):
        check(metric_sums.source(dtype), architecture)
