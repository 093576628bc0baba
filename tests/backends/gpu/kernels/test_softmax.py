"""Softmax and the losses made of it on the GPU's kernels, run on the CPU: all lengths, all dtypes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.gpu.gpu_agreement import agree, run
from tests.conformance.conformance import same_bits
from tests.emulators.emulated_device import compiler

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


def normal(*shape, scale=3.0):
    return np.random.default_rng(0).standard_normal(shape) * scale


# A part of a warp, a warp, a warp of single elements, a block, a block of single elements.
LENGTHS = [1, 3, 8, 40, 129, 512, 1000, 1001, 2048]


@pytest.mark.parametrize("length", LENGTHS)
def test_lines_of_every_length(length):
    agree("softmax", {}, [normal(3, length)])


@pytest.mark.parametrize("length", [16388 + 4096, 16385])
def test_long_lines_are_read_in_parts(length):
    agree("softmax", {}, [normal(1, length)])
    agree("log_softmax", {"temperature": 2.0}, [normal(1, length)])


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_types(dtype):
    for length in (24, 57):
        agree("softmax", {}, [normal(5, length)], dtype)
    agree("log_softmax", {}, [normal(5, 1030)], dtype)


@pytest.mark.parametrize("shape,axis", [((2, 5, 3), 1), ((40, 4), 0), ((3, 2, 70), 1), ((1, 700, 2), 1)])
def test_inner_axes(shape, axis):
    agree("softmax", {"axis": axis}, [normal(*shape)])
    agree("log_softmax", {"axis": axis}, [normal(*shape)])


def test_bits_do_not_depend_on_where_arrays_lie():
    agree("softmax", {}, [normal(3, 600)], unaligned=True)


def test_lines_with_infinities_and_nan():
    x = normal(4, 1100)
    x[0, :700] = -np.inf
    x[1, 5] = np.nan
    x[2, 9] = np.inf
    x[3] = -np.inf
    for op in ("softmax", "log_softmax"):
        agree(op, {}, [x], gradient=False)
        agree(op, {"axis": 0}, [x.T.copy()], gradient=False)


def test_numbers_beyond_a_length_do_not_count():
    length = np.array([0, 1, 300, 1100, 2000], np.int32)
    for op in ("softmax", "log_softmax"):
        agree(op, {"use_length": True}, [normal(5, 1100), length])
    # beyond what a block keeps in registers
    agree("log_softmax", {"use_length": True}, [normal(1, 17000), np.array([16700])])


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_cross_entropy(reduction):
    label = np.array([3, -100, 0, 700, 5, 5], np.int64)
    attrs = {"reduction": reduction, "use_weight": True}
    agree("cross_entropy", attrs, [normal(6, 701), label, np.abs(normal(701))])
    positions = np.array([[3, 1], [-100, 0]], np.int32)
    agree("cross_entropy", {"reduction": reduction}, [normal(2, 5, 2), positions])


def test_a_label_that_is_no_class_makes_the_loss_nan():
    agree("softmax_cross_entropy", {}, [normal(3, 9), np.array([1.0, 12.0, -1.0])])
    x, label = normal(2, 4).astype("float32"), np.array([1, 9], np.int32)
    made = run(
        "cross_entropy", {}, {"data": x, "label": label, "weight": None, "d_out": np.ones(1, "float32")}
    )
    assert np.isnan(made["out"]).all()
    assert not np.isnan(made["d_data"][0]).any() and np.isnan(made["d_data"][1]).all()


def test_losses_of_many_labels_are_added_up_in_parts():
    n = 40000
    label = np.random.default_rng(1).integers(0, 4, n)
    label[::7] = -100
    agree("cross_entropy", {}, [normal(n, 4), label])


ATTRS = [
    {},
    {"normalization": "valid", "use_ignore": True, "ignore_label": 2.0},
    {"normalization": "batch", "grad_scale": 0.5, "smooth_alpha": 0.1},
    {"out_grad": True},
]


@pytest.mark.parametrize("attrs", ATTRS)
def test_softmax_output(attrs):
    agree("SoftmaxOutput", attrs, [normal(6, 12), np.array([0.0, 2, 11, 5, 2, 40])])
    label = np.array([[0.0, 2, 3, 1, 2, 2], [1, 1, -1, 2, 0, 3]])
    agree("SoftmaxOutput", {**attrs, "multi_output": True}, [normal(2, 5, 2, 3), label])
    agree("SoftmaxOutput", {**attrs, "preserve_shape": True}, [normal(2, 3, 8), label[:, :3].copy()])


def test_the_same_bits_every_time():
    first, second = (agree("softmax", {}, [normal(2, 1500)]) for _ in range(2))
    for name in first:
        same_bits(first[name], second[name], name)
