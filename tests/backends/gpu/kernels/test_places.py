"""Order, places, images and boxes on the GPU's kernels, run on the CPU: shapes that the table lacks."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite.ops import find_op
from tests.backends.gpu.gpu_agreement import agree, run
from tests.backends.gpu.gpu_case import BACKEND
from tests.conformance.case import Case
from tests.conformance.conformance import Call, kernels_of
from tests.emulators.emulated_device import compiler

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")
RNG = np.random.default_rng(7)


def same(op, attrs, arrays):
    """Forward on both kernels: the same bits; gives what the GPU's made."""
    op = find_op(op)
    names = op.input_names(Case(op, attrs).parsed)
    case = Case(op, attrs, [x.shape for x in arrays], dtypes={n: str(x.dtype) for n, x in zip(names, arrays)})
    call, given = Call.of(case), dict(zip(names, arrays))
    want, _ = call.execute(op, given)
    kernel = BACKEND.choose(op, call.attrs, *call.shapes, call.dtypes[0][0], call.dtypes[0])
    assert not kernel.is_reference
    with kernels_of(BACKEND):
        got, _ = call.execute(op, given)
    for n, y in want.items():
        np.testing.assert_array_equal(got[n].view(np.uint8), y.view(np.uint8), f"{op.op_name} {n}")
    return got


def mixed(shape, dtype):
    """Numbers with many equals, and all that has no place of its own: both zeros, both infinities, nan."""
    x = RNG.integers(-20, 20, shape).astype("float64") / 4
    special = RNG.choice([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf], shape)
    return np.where(RNG.random(shape) < 0.1, special, x).astype(dtype)


@pytest.mark.parametrize(
    "shape, axis", [((3, 5000), 1), ((700, 2, 3), 0), ((90, 7), 1), ((2049,), None), ((1, 1), 1)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_lines_come_in_the_references_order(shape, axis, dtype):
    x = mixed(shape, dtype)
    for ascending in (True, False):
        same("argsort", {"axis": axis, "is_ascend": ascending, "dtype": "int32"}, [x])
        same("sort", {"axis": axis, "is_ascend": ascending}, [x])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_whole_numbers_come_in_order(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = RNG.integers(low, high, (2, 1500), dtype, endpoint=True)
    same("sort", {"axis": 1}, [x])


@pytest.mark.parametrize("k", [1, 5, 1024, 1025, 3000])
@pytest.mark.parametrize("kind", ["both", "mask"])
def test_the_first_of_long_lines(k, kind):
    same("topk", {"k": k, "axis": -1, "ret_typ": kind, "dtype": "int32"}, [mixed((2, 3000), "float32")])


def test_rows_in_random_order_are_the_references():
    for n in (1, 5, 3000):
        same("_shuffle", {}, [RNG.normal(size=(n, 3))])


def test_classes_drawn_are_the_references():
    probabilities = RNG.random((2100, 7))
    same("_sample_multinomial", {"shape": (5,)}, [probabilities])


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_of_several_updates_the_last_one_stays(dtype):
    updates = RNG.normal(size=(4000, 3)).astype(dtype)
    indices = RNG.integers(-50, 50, (1, 4000))
    same("scatter_nd", {"shape": (50, 3)}, [updates, indices])
    data = RNG.normal(size=(50, 3)).astype(dtype)
    same("scatter_nd_update", {}, [data, indices, updates])


def test_sums_at_places_are_those_of_the_indices_order():
    data, indices = RNG.normal(size=(9, 6, 4)), RNG.integers(-6, 6, (2, 300))
    agree("gather_nd", {}, [data, indices])
    agree(
        "scatter_nd_update", {"reduction": "add"}, [data, indices, RNG.normal(size=(300, 4))], tolerance=1e-4
    )
    along = RNG.integers(-9, 9, (40, 5, 4))
    agree("take_along_axis", {"axis": 0}, [data, along])
    agree("scatter_elements", {"axis": 0, "reduction": "add"}, [data, along, RNG.normal(size=(40, 5, 4))])


def test_an_index_out_of_range_makes_nan_and_nothing_else():
    data, indices = np.ones((4, 3), "float32"), np.array([[0, 4, -5, 2]])
    made = run("gather_nd", {}, {"data": data, "indices": indices, "d_out": np.ones((4, 3), "float32")})
    np.testing.assert_array_equal(np.isnan(made["out"][:, 0]), [False, True, True, False])
    np.testing.assert_array_equal(np.isnan(made["d_data"][:, 0]), [True, False, False, True])
    made = run(
        "scatter_nd",
        {"shape": (4, 3)},
        {"data": data, "indices": indices, "d_out": np.ones((4, 3), "float32")},
    )
    np.testing.assert_array_equal(np.isnan(made["out"][:, 0]), [True, False, False, True])


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (23, 40), (64, 31)])
def test_images_of_other_sizes(size):
    x = RNG.normal(size=(2, 3, 23, 31))
    for corners in (True, False):
        attrs = {"height": size[0], "width": size[1], "align_corners": corners}
        agree("_contrib_BilinearResize2D", attrs, [x], tolerance=1e-4)
    agree("_contrib_AdaptiveAvgPooling2D", {"output_size": size}, [x], tolerance=1e-4)


def test_four_axes_are_interpolated_in_two_passes():
    x = RNG.normal(size=(3, 4, 5, 6))
    for dtype in ("float32", "float16"):
        agree("resize", {"sizes": (4, 7, 3, 9), "mode": "linear"}, [x], dtype, tolerance=4e-3)
    agree("resize", {"sizes": (3, 9, 5, 2), "mode": "cubic"}, [x], tolerance=1e-4)


def test_samples_and_regions_of_larger_images():
    data, grid = RNG.normal(size=(3, 4, 9, 11)), RNG.uniform(-1.4, 1.4, (3, 2, 12, 13))
    agree("BilinearSampler", {}, [data, grid], tolerance=1e-4)
    corners = np.sort(RNG.integers(-4, 40, (30, 2, 2)), axis=1).reshape(30, 4)
    rois = np.concatenate([RNG.integers(-1, 3, (30, 1)), corners], 1).astype("float64")
    for x in (data, np.round(data)):  # the latter has equal maxima
        agree("ROIPooling", {"pooled_size": (3, 4), "spatial_scale": 0.25}, [x, rois], tolerance=1e-4)
    attrs = {"pooled_size": (2, 2), "spatial_scale": 0.25}
    for how in ({}, {"aligned": True, "sample_ratio": 2}, {"position_sensitive": True}):
        agree("_contrib_ROIAlign", attrs | how, [data, rois], tolerance=1e-4)


def test_long_labellings():
    steps, samples, classes, labels = 60, 3, 11, 20
    label = RNG.integers(1, classes, (samples, labels)).astype("float64")
    label[1, 12:] = 0
    label[2] = 3  # needs a blank between every two
    agree("CTCLoss", {}, [RNG.normal(size=(steps, samples, classes)), label], tolerance=1e-4)


def test_boxes_beyond_a_blocks_threads():
    n = 700
    boxes = np.sort(RNG.random((2, n, 2, 2)), axis=2).reshape(2, n, 4)
    rows = np.concatenate([RNG.integers(0, 3, (2, n, 1)), RNG.random((2, n, 1)), boxes], 2).astype("float32")
    attrs = {"overlap_thresh": 0.3, "valid_thresh": 0.1, "id_index": 0}
    same("_contrib_box_nms", attrs, [rows])
    same("_contrib_box_nms", attrs | {"topk": 40, "force_suppress": True}, [rows])


def test_an_overlap_of_just_the_threshold():
    """It suppresses where the operator says so: detections, and not in box_nms."""
    corners = np.sort(RNG.integers(0, 4, (1, 60, 2, 2)), axis=2).reshape(1, 60, 4).astype("float64")
    score = RNG.permutation(60).reshape(1, 60, 1) / 60
    rows = np.concatenate([np.zeros((1, 60, 1)), score, corners], 2)
    same("_contrib_box_nms", {"overlap_thresh": 0.5}, [rows])
    probabilities = np.concatenate([1 - score, score], 2).transpose(0, 2, 1).copy()
    attrs = {"nms_threshold": 0.5, "clip": False}
    same("_contrib_MultiBoxDetection", attrs, [probabilities, np.zeros((1, 240)), corners])


def test_targets_of_many_prior_boxes():
    n = 600
    anchor = np.sort(RNG.random((1, n, 2, 2)), axis=2).reshape(1, n, 4)
    label = np.concatenate(
        [RNG.integers(0, 4, (2, 9, 1)), np.sort(RNG.random((2, 9, 2, 2)), axis=2).reshape(2, 9, 4)], 2
    ).astype("float64")
    label[1, 4:, 0] = -1
    attrs = {"negative_mining_ratio": 3.0, "minimum_negative_samples": 5}
    for how in ({}, attrs):
        agree("_contrib_MultiBoxTarget", how, [anchor, label, RNG.normal(size=(2, 5, n))], "float64")


def test_systems_and_factors_of_larger_matrices():
    a = RNG.normal(size=(2, 40, 40)) + 12 * np.eye(40)
    b = RNG.normal(size=(2, 40, 7))
    agree("_linalg_trsm", {"alpha": 2.0}, [a, b], "float64", tolerance=1e-9)
    agree(
        "_linalg_trsm",
        {"transpose": True, "rightside": True, "lower": False},
        [a, np.swapaxes(b, 1, 2)],
        "float64",
    )
    agree("_linalg_potrf", {}, [a @ np.swapaxes(a, 1, 2)], "float64", tolerance=1e-9)
    mixed_rows = RNG.permuted(a, axis=1)
    for op in ("_linalg_inverse", "_linalg_det", "_linalg_slogdet"):
        agree(op, {}, [mixed_rows], "float64", tolerance=1e-8)


def test_normalization_by_neighbours_over_its_own_input():
    """In place and not the bits are the same."""
    op = find_op("LRN")
    case = Case(op, {"nsize": 5}, [(3, 20, 7)])
    call = Call.of(case, dtype="float32")
    x = RNG.normal(size=(3, 20, 7)).astype("float32")
    kernel = BACKEND.choose(op, call.attrs, *call.shapes, x.dtype, (x.dtype,))
    apart, work = np.empty_like(x), np.empty(kernel.workspace, np.uint8)
    kernel.link(kernel.run, np, call.attrs, x, out=apart, work=work)()
    kernel.link(kernel.run, np, call.attrs, x, out=x, work=work)()
    np.testing.assert_array_equal(apart, x)
