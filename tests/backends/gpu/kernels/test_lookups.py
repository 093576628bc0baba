"""Rows looked up by number, and their gradients, on the GPU's kernels, run on the CPU.

Many indices and few, equal ones and different ones, tables of every size.
"""

from __future__ import annotations

import numpy as np
import pytest

from mxlite.backends.gpu.handwritten.segments import SegmentSums, SortedIndices
from tests.backends.gpu.gpu_agreement import agree
from tests.conformance.conformance import same_bits
from tests.emulators.emulated_device import compiler, EmulatedDevice

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape)


def integers(low, high, *shape):
    return np.random.default_rng(1).integers(low, high, shape)


def sorted_by_kernels(indices, length, wrap=False):
    device = EmulatedDevice()
    order = SortedIndices(device, indices.size, length, wrap)
    assert order.fits
    work = device.empty(order.workspace)
    run, keys, places = order.call(indices, work)
    run()
    base = work.ctypes.data
    found = [work[a - base : a - base + 4 * indices.size].view(np.uint32) for a in (keys, places)]
    return found[0].copy(), found[1].copy()


CASES = [
    (integers(0, 7, 100), 7),
    (integers(0, 300, 1), 300),
    (integers(0, 300, 2048), 300),
    (integers(0, 300, 2049), 300),
    (integers(0, 50000, 9000), 50000),
    (integers(0, 2**24 + 5, 3000), 2**24 + 5),
    (np.full(5000, 3), 70000),
    (np.arange(5000)[::-1].copy(), 5000),
]


@pytest.mark.parametrize("indices,length", CASES)
def test_indices_are_sorted_and_equal_ones_stay_in_order(indices, length):
    keys, places = sorted_by_kernels(indices.astype("int32"), length)
    want = np.argsort(indices, kind="stable")
    np.testing.assert_array_equal(places, want)
    np.testing.assert_array_equal(keys, indices[want])


def test_indices_out_of_range_are_bounded_before_they_are_sorted():
    indices = np.array([-1, 5, 12, -13, 3, np.nan, np.inf, 2.9, -0.5])
    with np.errstate(invalid="ignore"):
        flat = indices.astype("int64")
    for wrap, want in ((False, np.clip(flat, 0, 5)), (True, flat % 6)):
        keys, places = sorted_by_kernels(indices, 6, wrap)
        np.testing.assert_array_equal(places, np.argsort(want, kind="stable"))
        np.testing.assert_array_equal(keys, np.sort(want))


@pytest.mark.parametrize(
    "n,length,width", [(1, 1, 1), (33, 5, 7), (300, 40, 12), (3000, 700, 4), (65, 90000, 3)]
)
def test_embedding(n, length, width):
    attrs = {"input_dim": length, "output_dim": width}
    agree("Embedding", attrs, [integers(0, length, n), normal(length, width)])


def test_one_index_many_times_over():
    """As the token that pads: its sum goes over many stretches."""
    indices = integers(0, 50, 400)
    indices[20:333] = 7
    indices[350:] = 49
    agree("Embedding", {"input_dim": 60, "output_dim": 8}, [indices, normal(60, 8)])


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_embedding_in_other_types(dtype):
    agree("Embedding", {"input_dim": 30, "output_dim": 16}, [integers(0, 30, 200), normal(30, 16)], dtype)


def test_sums_are_added_in_the_order_of_the_indices():
    """Within a stretch the bits are those of adding one after another."""
    rng = np.random.default_rng(2)
    indices, rows = rng.integers(0, 4, 32).astype("int32"), rng.standard_normal((32, 3)).astype("float32")
    want, got = np.zeros((4, 3), "float32"), np.empty((4, 3), "float32")
    np.add.at(want, indices, rows)
    sums = SegmentSums(EmulatedDevice(), rows.dtype, 1, 32, 4, 3)
    work = np.full(sums.workspace + 64, 255, "uint8")
    work = work[-work.ctypes.data % 64 :][: sums.workspace]
    sums.call(indices, rows, got, work)()
    same_bits(got, want, "sums")


def test_the_same_bits_every_time_and_wherever_arrays_lie():
    x = [integers(0, 40, 500), normal(40, 12)]
    attrs = {"input_dim": 40, "output_dim": 12}
    first, second = agree("Embedding", attrs, x, unaligned=True), agree("Embedding", attrs, x)
    for name in first:
        same_bits(first[name], second[name], name)


@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_take(mode, axis):
    agree("take", {"axis": axis, "mode": mode}, [normal(5, 6, 8), integers(-9, 19, 3, 30)])


def test_take_of_bytes():
    for dtype, width in (("int8", 3), ("int8", 32), ("int32", 2), ("int64", 2), ("bool", 1)):
        x = integers(0, 2, 9, width).astype(dtype)
        agree("take", {}, [x, integers(0, 9, 20)], gradient=False)


def test_index_add():
    agree("index_add", {"axis": 1}, [normal(3, 5, 4), integers(0, 5, 70), normal(3, 70, 4)])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_pick(axis):
    shape = [4, 5, 6]
    del shape[axis]
    for mode in ("clip", "wrap"):
        agree("pick", {"axis": axis, "mode": mode}, [normal(4, 5, 6), integers(-3, 9, *shape)])
    agree(
        "pick", {"axis": axis, "keepdims": True}, [normal(4, 5, 6), 1.0 * integers(0, 4, *shape)], "bfloat16"
    )


def test_batch_take_and_fill():
    agree("batch_take", {}, [normal(40, 6), integers(-1, 8, 40)])
    agree("fill_element_0index", {}, [normal(40, 6), normal(40), integers(-1, 8, 40)])


def test_one_hot():
    index = np.array([[0.0, 3.9, -1.0], [4.0, 7.0, np.nan]])
    for dtype in ("float32", "bfloat16", "int8", "int64"):
        agree("one_hot", {"depth": 5, "on_value": 3.0, "off_value": -1.0, "dtype": dtype}, [index])
    agree("_onehot_encode", {}, [np.array([1, 0, 9], "int32"), normal(3, 4)])


def test_indices_that_are_checked():
    for axis in (0, 1):
        agree("take", {"mode": "raise", "axis": axis}, [normal(5, 5, 3), integers(0, 5, 40)])
    agree("index_add", {"mode": "raise"}, [normal(5, 3), integers(0, 5, 7), normal(7, 3)])
