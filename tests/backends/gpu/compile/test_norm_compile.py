"""Kernels of normalization, pooling, copies, random numbers become machine code; hot ones spill nothing."""

from __future__ import annotations

import pytest

from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.handwritten import dense_casts, fill, move, move_together
from mxlite.backends.gpu.kernels.nn import dropout, pooling
from mxlite.backends.gpu.kernels.norm import batch_norm, normalization
from mxlite.backends.gpu.kernels.random import random_numbers
from tests.backends.gpu.compile.test_compile import ARCHITECTURES, compiled

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")


def tight(source, architecture, registers=128):
    """Compiled, and all in so many registers: two blocks of 256 threads on a multiprocessor."""
    for name, usage in compiled(source, architecture).items():
        assert usage.spilled_bytes == 0 and usage.stack_bytes == 0, (name, usage)
        assert usage.registers <= registers, (name, usage)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_batch_norm(architecture):
    for gradient in (True, False):
        tight(batch_norm.source("bfloat16", True, 8, True, gradient), architecture)
        compiled(batch_norm.source("float64", False, 1, False, gradient), architecture)


@pytest.mark.parametrize("gradient", [True, False])
def test_batch_norm_of_float32_in_both_layouts(gradient):
    for last in (True, False):
        tight(batch_norm.source("float32", last, 4, True, gradient), "sm_90")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rows(architecture):
    """Of as many packs as forward and backward keep."""
    tight(normalization.rows_source("bfloat16", "float32", 8, True, 2, True, True), architecture)
    tight(normalization.rows_source("bfloat16", "bfloat16", 8, True, 4, False, False), architecture)
    compiled(normalization.rows_source("float64", "float64", 2, False, 0, False, True), architecture)
    compiled(normalization.columns_source("float16", "float32"), architecture)
    compiled(normalization.affine_source("float16", "float16", False, 8, False), architecture)


def test_rows_of_float32():
    tight(normalization.rows_source("float32", "float32", 4, True, 4, True, True), "sm_90")
    tight(normalization.rows_source("float32", "float32", 4, True, 4, False, False), "sm_90")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_pooling(architecture):
    tight(pooling.source("bfloat16", "uint8", "max", 8, True), architecture)
    compiled(pooling.source("float32", "uint8", "avg", 1, False), architecture)
    compiled(pooling.source("float64", "uint8", "lp", 2, True), architecture)
    compiled(pooling.source("float16", "int32", "max", 8, True), architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_copies_and_fills(architecture):
    for unit, outer in ((16, 0), (16, 2), (4, 5)):
        tight(move.single_source(unit, outer, False, False), architecture, 64)
    compiled(move.single_source(16, 1, False, True), architecture)
    compiled(move.single_source(1, 3, True, True), architecture)
    for unit in (2, 16):
        tight(move_together.parts_source(unit), architecture, 64)
    for given, made in (("float32", "bfloat16"), ("float16", "float32"), ("bfloat16", "float16")):
        for capacity in (1, dense_casts.CAPACITY):
            tight(dense_casts.source_of(given, made, capacity), architecture, 64)
    compiled(dense_casts.source_of("float64", "bool", 1), architecture)
    compiled(dense_casts.source_of("int64", "bfloat16", dense_casts.CAPACITY), architecture)
    for unit in (2, 4):
        tight(move.tiles_source(unit), architecture, 64)
    tight(fill.SOURCE, architecture, 64)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_random_numbers(architecture):
    tight(dropout.source("bfloat16", 8, True), architecture)
    compiled(dropout.source("float64", 4, False), architecture)
    for dtype in ("float16", "float64", "int8"):
        compiled(random_numbers.source(dtype), architecture)
