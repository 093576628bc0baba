"""Reductions on the GPU's kernels, run on the CPU: every set of axes, long and split sums, all dtypes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mxlite.backends.gpu.handwritten.fold import Fold
from tests.backends.gpu.gpu_agreement import agree
from tests.conformance.conformance import same_bits
from tests.emulators.emulated_device import compiler, EmulatedDevice

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape)


def axes_of(rank):
    return [c for n in range(1, rank + 1) for c in itertools.combinations(range(rank), n)]


@pytest.mark.parametrize("axis", axes_of(4))
def test_every_set_of_axes(axis):
    x = normal(3, 4, 5, 8)
    agree("sum", {"axis": axis}, [x], gradient=False)
    agree("max", {"axis": axis}, [x[:, :, :, :7].copy()])


def test_more_axes_than_the_kernel_has_are_left_to_the_reference():
    shape = (2,) * 8
    fold = Fold(EmulatedDevice(), np.dtype("float32"), shape, (1, 2) * 4)
    assert not fold.fits
    assert Fold(EmulatedDevice(), np.dtype("float32"), shape[:6], (1, 2) * 3).fits


# (shape, axis): lines and columns, with as many results as blocks, with few, with one; split and not.
SHAPES = [
    ((1000,), None),
    ((9, 70001), 1),
    ((65536,), None),
    ((3, 40000), 1),
    ((40000, 3), 0),
    ((5000, 8), 0),
    ((2000, 33), 0),
    ((300, 4, 50), (0, 2)),
    ((700, 1), 1),
    ((1, 700), 0),
]


@pytest.mark.parametrize("shape,axis", SHAPES)
def test_sums_of_every_length(shape, axis):
    agree("sum", {"axis": axis}, [normal(*shape)], gradient=False)


@pytest.mark.parametrize("name", ["mean", "prod", "nansum", "nanprod", "norm", "logsumexp", "max", "min"])
def test_every_kind_in_lines_and_columns_split_and_not(name):
    for shape, axis in (((6, 40), 1), ((40, 6), 0), ((2, 9000), 1), ((9000, 2), 0)):
        x = normal(*shape)
        if "prod" in name:
            x = 1 + x / 100
        if "nan" in name:
            x[x < -1] = np.nan
        gradient = x.size < 1000 and name in ("max", "logsumexp")
        agree(name, {"axis": axis}, [x], gradient=gradient, tolerance=2e-4 if "prod" in name else None)


@pytest.mark.parametrize("axes", [0, 1])
def test_moments(axes):
    agree("moments", {"axes": axes}, [normal(300, 40) + 5], tolerance=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_floats(dtype):
    for shape, axis in (((5, 300), 1), ((301, 8), 0), ((1, 40000), 1)):
        agree("sum", {"axis": axis}, [normal(*shape) + 0.5], dtype, gradient=False)


def test_whole_numbers():
    rng = np.random.default_rng(0)
    x = rng.integers(-100, 100, (70, 12)).astype("int8")
    for name in ("sum", "prod", "mean", "max", "min", "any", "all"):
        agree(name, {"axis": 0}, [x])
    x = rng.integers(-(2**62), 2**62, (50000,))
    for name in ("sum", "min", "any"):
        agree(name, {}, [x])
    for name in ("any", "all"):
        agree(name, {"axis": 1}, [rng.random((4, 5)) < 0.4])


def test_nothing_folded_is_what_the_reference_says():
    for name in ("sum", "prod", "mean", "nansum", "any", "all"):
        agree(name, {"axis": 1}, [np.zeros((3, 0))], gradient=False)
    agree("sum", {"axis": 1}, [np.zeros((0, 3))], gradient=False)


def test_bits_do_not_depend_on_where_arrays_lie_or_on_the_device():
    agree("sum", {"axis": 1}, [normal(3, 5000)], gradient=False, unaligned=True)
    agree("sum", {"axis": 0}, [normal(50, 40)], gradient=False, unaligned=True)
    small, large = EmulatedDevice(), EmulatedDevice()
    large.multiprocessors = 1000
    x, made = normal(20000).astype("float32"), []
    for device in (small, large):
        fold = Fold(device, x.dtype, x.shape, (1,))
        out, work = np.zeros(1, "float32"), np.zeros(fold.workspace, "uint8")
        fold.call(x, out, work)()
        made.append(out)
    same_bits(made[0], made[1], "sum")


def test_a_float16_sum_does_not_overflow_on_the_way():
    x = np.full((2, 4000), 60.0)
    x[:, 1::2] = -60
    agree("sum", {"axis": 1}, [x], "float16", gradient=False)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "maximum", "minimum"])
def test_gradients_of_stretched_operands(op):
    pairs = [((6, 1, 8), (5, 8)), ((6, 5, 1), (1, 1, 8)), ((6, 1, 1), (1, 5, 8)), ((1, 7), (9, 1))]
    if op in ("sub", "div"):
        pairs.append(((6, 5, 8), (8,)))
    for shapes in pairs:
        agree(f"broadcast_{op}", {}, [np.abs(normal(*s)) + 0.5 for s in shapes], forward=False)


def test_positions():
    x = normal(7, 60, 5)
    x[0, 3, 2] = x[0, 40, 2] = 9
    x[1, 50] = np.nan
    for name in ("argmax", "argmin"):
        for axis in (0, 1, 2, None):
            agree(name, {"axis": axis}, [x])
        agree(name, {}, [normal(9000)])
        agree(name, {"axis": 0}, [np.round(normal(9000, 3))])
    agree("argmax_channel", {}, [np.round(normal(3, 9, 50))])


def test_where_the_largest_are_is_noted_in_bits():
    x = np.round(normal(5, 13, 3))
    for axis in (0, 1, 2, (0, 2)):
        agree("max", {"axis": axis}, [x])
        agree("min", {"axis": axis}, [x])
