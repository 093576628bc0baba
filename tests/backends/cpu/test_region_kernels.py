"""Pooling over regions as generated code, against the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite import OperatorError, ops
from mxlite.core.machine_code import native
from tests.backends.cpu import fast_kernels
from tests.conformance.case import Case
from tests.conformance.conformance import Call

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not there")

SHAPE = (3, 19, 17, 23)
CASES = {
    "as-many-groups": dict(spatial_scale=0.5, output_dim=2, pooled_size=3),
    "fewer-groups": dict(spatial_scale=0.5, output_dim=4, pooled_size=3, group_size=2),
    "more-groups": dict(spatial_scale=0.25, output_dim=1, pooled_size=2, group_size=4),
    "one-part": dict(spatial_scale=1.0, output_dim=19, pooled_size=1),
    "many-parts": dict(spatial_scale=0.5, output_dim=2, pooled_size=40, group_size=3),
}
TOLERANCE = {"float32": 2e-6, "bfloat16": 1e-2, "float16": 2e-3}


def rois_of(count=37):
    """Regions inside and outside of images, upside down, of a single pixel, and of image -1."""
    rng = np.random.default_rng(1)
    found = np.concatenate([rng.integers(-1, 3, (count, 1)), rng.uniform(-20, 60, (count, 4))], axis=1)
    found[:20, 3:] = found[:20, 1:3] + rng.uniform(0, 40, (20, 2))
    found[20, 1:] = 5, 5, 5, 5
    found[21, 1:] = -6e4, -6e4, 6e4, 6e4
    return found


def case_of(name, shape=SHAPE, count=37):
    op = ops.find_op("_contrib_PSROIPooling")
    return Case(op, CASES[name], [shape, (count, 5)])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_they_are_the_references_and_so_are_gradients(name, dtype):
    case = case_of(name)
    arrays, heads = case.inputs(dtype=dtype), fast_kernels.heads_of(case, dtype)
    arrays[1] = rois_of().astype(arrays[1].dtype)
    call = Call.of(case, dtype=dtype)
    for backward in (False, True):
        assert fast_kernels.kernel_name(call, "compiled", backward) == "compiled parts of regions"
    got = fast_kernels.run(case, dtype, "compiled", arrays, heads)
    want = fast_kernels.run(case, dtype, "reference", arrays, heads)
    assert np.count_nonzero(np.asarray(want["out"], float)) > 30
    fast_kernels.close(got, want, TOLERANCE[dtype])


def test_on_several_threads_they_are_the_same():
    case = case_of("fewer-groups", (3, 40, 35, 41), 64)
    case = Case(case.op, case.attrs, case.shapes, make={"rois": lambda rng, shape: rois_of(64)})
    found = fast_kernels.same_on_threads(case)
    assert np.count_nonzero(found["out"]) and np.count_nonzero(found["d_data"])


def test_a_region_of_an_image_that_is_not_there_is_an_error():
    case = case_of("one-part")
    arrays = case.inputs(dtype="float32")
    arrays[1][5, 0] = 3
    with pytest.raises(OperatorError, match=r"rois\[5\] names the image 3, but data has 3"):
        fast_kernels.run(case, "float32", "compiled", arrays)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", [1, 2, 7, 23, 30])
@pytest.mark.parametrize("shape", [(2, 5, 17, 23), (1, 3, 1, 16), (3, 2, 7, 7)])
def test_adaptive_pooling_is_the_references_and_so_is_its_gradient(shape, size, dtype):
    case = Case(ops.AdaptiveAvgPooling2D, {"output_size": (size,)}, [shape])
    arrays, heads = case.inputs(dtype=dtype), fast_kernels.heads_of(case, dtype)
    call = Call.of(case, dtype=dtype)
    for backward in (False, True):
        assert fast_kernels.kernel_name(call, "compiled", backward) == "compiled adaptive pooling"
    got = fast_kernels.run(case, dtype, "compiled", arrays, heads)
    fast_kernels.close(got, fast_kernels.run(case, dtype, "reference", arrays, heads), TOLERANCE[dtype])


def test_adaptive_pooling_on_several_threads_is_the_same():
    fast_kernels.same_on_threads(Case(ops.AdaptiveAvgPooling2D, {"output_size": (7,)}, [(2, 40, 35, 41)]))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (7, 7), (2, 30)])
def test_maxima_of_regions_are_the_references_and_so_is_where_they_are(size, dtype):
    case = Case(ops.ROIPooling, {"pooled_size": size, "spatial_scale": 0.5}, [SHAPE, (37, 5)])
    arrays = case.inputs(dtype=dtype)
    arrays[0] = np.round(np.asarray(arrays[0], np.float32) * 2).astype(arrays[0].dtype)  # many are equal
    arrays[0][0, 0] = -np.inf
    arrays[1] = rois_of().astype(arrays[1].dtype)
    assert fast_kernels.kernel_name(Call.of(case, dtype=dtype), "compiled") == "compiled maxima of regions"
    got = fast_kernels.run(case, dtype, "compiled", arrays)
    fast_kernels.close(got, fast_kernels.run(case, dtype, "reference", arrays), 0)
    assert (np.asarray(got["index"]) == -1).any() and (np.asarray(got["index"]) > 0).any()


def test_maxima_of_regions_on_several_threads_are_the_same():
    make = {"rois": lambda rng, shape: rois_of(64)}
    attrs = {"pooled_size": (3, 3), "spatial_scale": 0.5}
    fast_kernels.same_on_threads(Case(ops.ROIPooling, attrs, [(3, 40, 35, 41), (64, 5)], make=make))
