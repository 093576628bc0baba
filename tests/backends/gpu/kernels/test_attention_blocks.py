"""Attention through cuBLASLt's products, on the strict stand-in that computes on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite.backends.base import Backend
from mxlite.backends.gpu.kernels.nn import attention as rows
from mxlite.backends.gpu.matrix import attention_blocks
from tests.backends.gpu.kernels.test_attention import both, check, sizes
from tests.backends.gpu.runtime.test_cublaslt import BlasDevice, lib, runs  # noqa: F401
from tests.emulators.emulated_device import compiler

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


@pytest.fixture
def device(lib):  # noqa: F811
    lib.lib.stub_clear()
    lib.lib.stub_without(0)
    return BlasDevice(lib)


@pytest.fixture
def gpu(device):
    return Backend("emulated", np, rows.rows(device))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_types(gpu, device, dtype):
    check(sizes(2, 2, 20, 33, 8, 16), dtype, gpu=gpu, causal=True)
    assert len(runs(device)) == 2 + 5
    assert device.launched == ["attention_weights", "attention_delta", "attention_weights_again"]


@pytest.mark.parametrize("n, s, e, v", [(1, 1, 1, 1), (3, 130, 5, 7), (40, 8, 64, 2)])
def test_sizes(gpu, n, s, e, v):
    check(sizes(1, 2, n, s, e, v, g=1), "bfloat16", gpu=gpu, causal=n > s)


def test_a_key_that_is_no_number(gpu):
    check(sizes(1, 2, 3, 40, 8), "bfloat16", gpu=gpu, wild=True)


def test_float32_only_where_tf32_is_allowed(gpu, device, monkeypatch):
    """Weights take the place of scores, in the way of every mask and of dropout."""
    check(sizes(2, 2, 20, 33, 8, 16), gpu=gpu, causal=True)
    assert not runs(device) and "attention" in device.launched
    device.launched.clear()
    monkeypatch.setenv("MXLITE_ALLOW_TF32", "1")
    check(sizes(2, 2, 20, 33, 8, 16), gpu=gpu, causal=True)
    assert all("compute 77 " in line for line in runs(device))
    assert device.launched == ["attention_weights", "attention_delta", "attention_weights_again"]
    check((*sizes(2, 4, 10, 12, 4, g=2), (1, 4, 1, 12), (2,)), gpu=gpu, use_mask=True, use_length=True, p=0.3)


def test_a_few_heads_at_a_time(gpu, device, monkeypatch):
    monkeypatch.setattr(attention_blocks, "MOST_SCRATCH", 2 * 2 * 9 * 16 * 12)
    check(sizes(5, 2, 9, 11, 4, g=1), "bfloat16", gpu=gpu)
    assert len(runs(device)) == 2 * 2 + 5 * 3  # forward takes four heads at a time, backward two


def test_masks_lengths_and_shared_heads(gpu, device):
    shapes = (*sizes(2, 4, 10, 12, 4, g=2), (1, 4, 1, 12), (2,))
    check(shapes, "bfloat16", gpu=gpu, use_mask=True, use_length=True, causal=True)
    assert "attention_mask_gradient" in device.launched
    check(shapes[:4], "bfloat16", kinds=("bool",), gpu=gpu, use_mask=True)


def test_dropped_weights_are_the_references(gpu):
    check(sizes(1, 4, 140, 20, 3, g=2), "bfloat16", gpu=gpu, p=0.3)
    check(sizes(1, 4, 9, 20, 3, g=2), "bfloat16", gpu=gpu, p=0.3, train=False)


def test_bits_do_not_depend_on_what_is_wanted(gpu):
    shapes = (*sizes(1, 4, 20, 30, 8, g=2), (4, 1, 30))
    every, _ = both(shapes, "bfloat16", gpu=gpu, use_mask=True)
    for name in ("d_query", "d_key", "d_value", "d_mask"):
        only, _ = both(shapes, "bfloat16", gpu=gpu, use_mask=True, wanted=(name,))
        assert only[name].tobytes() == every[name].tobytes()


def test_what_is_left_to_the_kernel_that_holds_no_scores(gpu, device, monkeypatch):
    check(sizes(1, 2, 5, 6, 4), gpu=gpu)
    monkeypatch.setattr(attention_blocks, "MOST_OF_A_HEAD", 5 * 8 * 12 - 1)
    check(sizes(1, 2, 5, 6, 4), "bfloat16", gpu=gpu)
    assert runs(device)[0].startswith("matmul") and "attention_gradient" in device.launched
