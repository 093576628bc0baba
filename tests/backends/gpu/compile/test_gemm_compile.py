"""Kernels of products and attention become machine code for the promised architectures and spill nothing."""

from __future__ import annotations

import pytest

from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.matrix import attention, attention_blocks, column_sum, tiled_gemm
from tests.backends.gpu.machine_code import ARCHITECTURES, compiled

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")


def sizes(dtype):
    item = "double" if dtype in ("float64", "int64") else "float"
    return tiled_gemm.SMALL[item], tiled_gemm.LARGE[item]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_products_by_tiles(architecture, dtype):
    for size in sizes(dtype):
        found = compiled(tiled_gemm.source(dtype, dtype, *size), architecture)
        for name in ("gemm", "gemm_sum"):
            assert found[name].spilled_bytes == found[name].stack_bytes == 0
        # Two blocks of 256 threads on a multiprocessor, more of the small ones.
        assert found["gemm"].registers <= 128, found


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_products_of_whole_numbers(dtype):
    for size in sizes(dtype):
        compiled(tiled_gemm.source(dtype, dtype, *size), "sm_90")


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_activations_in_the_same_kernel(activation):
    for size in sizes("bfloat16"):
        found = compiled(tiled_gemm.source("bfloat16", "bfloat16", *size, activation), "sm_90")["gemm"]
        assert found.spilled_bytes == found.stack_bytes == 0
        sloped = tiled_gemm.source("bfloat16", "bfloat16", *size, slope=activation)
        found = compiled(sloped, "sm_80")["gemm"]
        assert found.spilled_bytes == found.stack_bytes == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_column_sums(architecture):
    for given, made, compute in (("bfloat16", "float", "float"), ("double", "double", "double")):
        found = compiled(column_sum.source(given, made, compute), architecture)["column_sum"]
        assert found.spilled_bytes == found.stack_bytes == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("columns", [64, 128])
def test_attention(architecture, dtype, columns):
    for part, name in (("forward", "attention"), ("gradient", "attention_gradient")):
        found = compiled(attention.source(part, dtype, "int32", columns, False), architecture)
        for n in (name, "attention_delta")[: 1 + (part == "gradient")]:
            assert found[n].spilled_bytes == found[n].stack_bytes == 0, (n, found)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_rare_attention(dtype):
    for part, drops in (
        ("forward", True),
        ("gradient", True),
        ("mask", False),
        ("mask", True),
        ("zero", False),
    ):
        compiled(attention.source(part, dtype, "int64", 64, drops), "sm_90")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("drops", [False, True])
def test_rows_of_scores(architecture, drops):
    found = compiled(attention_blocks.source("bfloat16", "int32", drops), architecture)
    for name in ("attention_weights", "attention_weights_again"):
        assert found[name].spilled_bytes == found[name].stack_bytes == 0
