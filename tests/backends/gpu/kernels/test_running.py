"""Running sums and products on the GPU's kernels, run on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.gpu.gpu_agreement import agree
from tests.emulators.emulated_device import compiler

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


@pytest.mark.parametrize("attrs", [{}, {"exclusive": True}, {"reverse": True}])
def test_lines_of_several_steps_and_columns(attrs):
    rng = np.random.default_rng(0)
    for shape, axis in (((2, 2500), 1), ((3, 40, 5), 1), ((7, 9), 1), ((33, 40), 0), ((50, 30), None)):
        agree("cumsum", {"axis": axis, **attrs}, [rng.standard_normal(shape)])
    agree("cumprod", {"axis": 1, **attrs}, [1 + rng.standard_normal((2, 90)) / 50], gradient=False)


def test_whole_numbers_wrap_round():
    x = np.random.default_rng(0).integers(0, 2**31, (3, 70)).astype("int32")
    agree("cumsum", {"axis": 1}, [x])
    agree("cumsum", {"axis": 0, "dtype": "int64"}, [x])


def test_two_byte_numbers_are_added_up_in_float32():
    agree("cumsum", {"axis": 1}, [np.full((2, 3000), 0.01)], "bfloat16")
