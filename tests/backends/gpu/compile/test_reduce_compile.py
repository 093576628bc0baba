"""Kernels that reduce and look up become machine code for the promised architectures and spill nothing."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.handwritten import fold, segments
from mxlite.backends.gpu.kernels.index import choices, lookups
from mxlite.backends.gpu.kernels.loss import losses
from mxlite.backends.gpu.kernels.nn import softmax
from mxlite.backends.gpu.kernels.reduce import extremes, running
from tests.backends.gpu.machine_code import compiled

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")

FLOATS = ("float32", "float64", "float16", "bfloat16")
HOT = ("float32", "bfloat16")
KINDS = [*(("sm_90", d) for d in FLOATS), ("sm_80", "float32")]


class Named(str):
    """A dtype by name, where numpy has no such type."""

    itemsize = 2


def dtype_of(name):
    return Named(name) if name == "bfloat16" else np.dtype(name)


def spills_nothing(found, registers):
    for name, usage in found.items():
        assert usage.spilled_bytes == usage.stack_bytes == 0, (name, usage)
        assert usage.registers <= registers, (name, usage)


@pytest.mark.parametrize("architecture,dtype", KINDS)
def test_softmax(architecture, dtype):
    forward = compiled(softmax.source("softmax", dtype, dtype), architecture)
    backward = compiled(softmax.source("softmax_gradient", dtype, dtype), architecture)
    if dtype in HOT:
        spills_nothing(forward, 64)
        spills_nothing(backward, 96)


def test_softmax_of_another_type():
    compiled(softmax.source("softmax", "bfloat16", "float32"), "sm_90")
    compiled(softmax.source("softmax_gradient", "float32", "float64"), "sm_90")


@pytest.mark.parametrize("architecture,dtype", [*KINDS, *(("sm_90", d) for d in ("int8", "int64", "bool"))])
def test_reductions(architecture, dtype):
    found = compiled(fold.source(dtype_of(dtype)), architecture)
    if dtype in HOT:
        spills_nothing(found, 96)
    compiled(extremes.source(dtype_of(dtype)), architecture)


@pytest.mark.parametrize("architecture,dtype", KINDS)
def test_sums_by_index_and_losses(architecture, dtype):
    found = compiled(segments.source(dtype_of(dtype)), architecture)
    spills_nothing(found, 128)
    found = compiled(losses.source(dtype_of(dtype)), architecture)
    if dtype in HOT:
        spills_nothing(found, 64)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_sort_and_lookups(architecture):
    for source in (segments.SORT, lookups.SOURCE, lookups.RANGES, choices.SOURCE):
        spills_nothing(compiled(source, architecture), 64)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_running_totals(architecture):
    for dtype in ("float32", "float16", "int64"):
        spills_nothing(compiled(running.source(dtype_of(dtype), dtype_of(dtype)), architecture), 64)
