"""Kernels of single operators become machine code for the promised architectures, and spill nothing."""

from __future__ import annotations

import pytest
from test_gpu_compile import ARCHITECTURES, compiled

from mxlite.backends.gpu import nvrtc
from mxlite.backends.gpu.each import typed
from mxlite.backends.gpu.kernels import functions, parts, places, resampling, sorting

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")

FLOATS = ("float32", "float64", "float16", "bfloat16")
FILES = ("images",)
TYPED = {f"{f}-{d}": (lambda f=f, d=d: typed(d, f)) for f in FILES for d in FLOATS}
TEXTS = {
    **TYPED,
    **{f"resample-{d}": (lambda d=d: resampling.source(d)) for d in FLOATS},
    **{f"order-{k}": (lambda k=k: sorting.source(k)) for k in ("uint32", "uint64")},
    "parts": parts.source,
    "places": places.source,
}


COLD = {"ravelled", "unravelled"}  # divisions of 64 bits are calls


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("text", TEXTS)
def test_texts_compile_and_spill_nothing(architecture, text):
    for name, used in compiled(TEXTS[text](), architecture).items():
        assert used.spilled_bytes == 0 or name in COLD, (name, used)
        assert used.registers <= 128, (name, used)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("compute", ["float", "double", "int64"])
def test_formulas_compile(architecture, compute):
    """They hold functions whose arguments may need a table: that is on the stack, and no spill."""
    for used in compiled(functions.source(compute), architecture).values():
        assert used.spilled_bytes == 0
