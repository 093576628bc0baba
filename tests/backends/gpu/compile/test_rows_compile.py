"""Kernels of single operators become machine code for the promised architectures, and spill nothing."""

from __future__ import annotations

import pytest

from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.handwritten import ordered_sum
from mxlite.backends.gpu.handwritten.each import typed
from mxlite.backends.gpu.kernels.index import places
from mxlite.backends.gpu.kernels.loss import ctc
from mxlite.backends.gpu.kernels.matrix import linalg
from mxlite.backends.gpu.kernels.random import distributions, multinomial
from mxlite.backends.gpu.kernels.reduce import sorting
from mxlite.backends.gpu.kernels.shape import counted
from mxlite.backends.gpu.kernels.vision import boxes, resampling
from tests.backends.gpu.compile.test_compile import ARCHITECTURES, compiled

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")

FLOATS = ("float32", "float64", "float16", "bfloat16")
FILES = ("images", "spatial", "regions", "correlation")
TYPED = {f"{f}-{d}": (lambda f=f, d=d: typed(d, f)) for f in FILES for d in FLOATS}
TEXTS = {
    **TYPED,
    **{f"ordered-sum-{d}": (lambda d=d: ordered_sum.source(d)) for d in (*FLOATS, "uint8")},
    **{f"resample-{d}": (lambda d=d: resampling.source(d)) for d in FLOATS},
    **{f"order-{k}": (lambda k=k: sorting.source(k)) for k in ("uint32", "uint64")},
    **{m.__name__.split(".")[-1]: (lambda m=m: m.SOURCE) for m in (places, ctc, counted, multinomial)},
    "linalg-float": lambda: linalg.source(False),
    "linalg-double": lambda: linalg.source(True),
    "boxes-float": lambda: boxes.source(False),
    "boxes-double": lambda: boxes.source(True),
}


COLD = frozenset("ravelled unravelled roi_max roi_weights ctc_gradient match_boxes detect solve".split())
"""They call divisions of 64 bits, or functions of double precision, and keep a few registers meanwhile."""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("text", TEXTS)
def test_texts_compile_and_spill_nothing(architecture, text):
    for name, used in compiled(TEXTS[text](), architecture).items():
        assert used.spilled_bytes <= (64 if name in COLD else 0), (name, used)
        assert used.registers <= 128, (name, used)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_samplers_compile(architecture):
    """Long functions of double precision, called once for each element that is drawn."""
    assert compiled(distributions.SOURCE, architecture)
