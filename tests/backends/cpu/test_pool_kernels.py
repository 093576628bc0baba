"""Pooling on oneDNN and as generated code, in both layouts, against the reference kernels."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends.cpu import compiled
from tests.backends.cpu import fast_kernels
from tests.conformance.case import Case
from tests.conformance.conformance import Call

GEOMETRIES = {
    "2x2": ((2, 6, 8, 5), dict(kernel=(2, 2), stride=(2, 2))),
    "2x2-odd": ((2, 7, 9, 16), dict(kernel=(2, 2), stride=(2, 2))),
    "3x3": ((2, 9, 12, 64), dict(kernel=(3, 3), stride=(2, 2), pad=(1, 1))),
    "3x3-wide": ((1, 5, 7, 150), dict(kernel=(3, 3), stride=(1, 1), pad=(1, 1))),
    "3x3-full": ((2, 8, 8, 17), dict(kernel=(3, 3), stride=(2, 2), pooling_convention="full")),
    "apart": ((2, 7, 9, 33), dict(kernel=(2, 1), stride=(3, 2))),
    "same": ((2, 6, 7, 20), dict(kernel=(3, 2), stride=(2, 3), pooling_convention="same")),
    "large": ((1, 20, 18, 7), dict(kernel=(17, 16), stride=(1, 1))),
    "all": ((3, 5, 4, 70), dict(kernel=(5, 4))),
    "global": ((3, 5, 4, 130), dict(global_pool=True)),
    "1d": ((3, 11, 20), dict(kernel=(3,), stride=(2,), pad=(1,))),
    "3d": ((2, 5, 6, 4, 18), dict(kernel=(2, 3, 2), stride=(2, 2, 1), pad=(1, 0, 0))),
    "3d-global": ((2, 3, 2, 4, 18), dict(global_pool=True)),
}
WAYS = {
    "max": dict(pool_type="max"),
    "avg": dict(pool_type="avg"),
    "avg-inside": dict(pool_type="avg", count_include_pad=False),
    "sum": dict(pool_type="sum"),
}
TOLERANCE = {"float32": 2e-6, "bfloat16": 1e-2, "float16": 2e-3}


def _case(last, shape, attrs):
    if last:
        return Case(ops.PoolingChannelsLast, attrs, [shape])
    return Case(ops.Pooling, attrs, [(shape[0], shape[-1], *shape[1:-1])])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("last", [True, False], ids=["channels-last", "plain"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kind", fast_kernels.KINDS)
def test_pooling_and_its_gradient_are_the_references(kind, geometry, way, last, dtype):
    shape, attrs = GEOMETRIES[geometry]
    case = _case(last, shape, {**attrs, **WAYS[way]})
    arrays = case.inputs(dtype=dtype)
    heads = fast_kernels.heads_of(case, dtype)
    got = fast_kernels.run(case, dtype, kind, arrays, heads)
    want = fast_kernels.run(case, dtype, "reference", arrays, heads)
    fast_kernels.close(got, want, TOLERANCE[dtype])


def _nan(image):
    image[0, 2:5, 2:5, 3] = np.nan
    image[1, 4, 4, 7], image[1, 4, 5, 7] = np.inf, np.nan


def _negative_nan(image):
    image[0, 0, 0, 4] = -np.nan


def _infinite(image):
    image[0, 3, 3, 5], image[1, 3, 3, 5] = np.inf, -np.inf


def _lowest(image):
    image[0, :, :, 6] = -np.inf


def _equal(image):
    image[1, :, :, 8] = 2.5  # the first of a window gets all


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("last", [True, False], ids=["channels-last", "plain"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("put", [_nan, _negative_nan, _infinite, _lowest, _equal])
@pytest.mark.parametrize("kind", fast_kernels.KINDS)
def test_numbers_of_every_kind_go_through(kind, put, way, last, dtype):
    case = _case(last, (2, 8, 8, 40), dict(kernel=(3, 3), stride=(2, 2), pad=(1, 1), **WAYS[way]))
    (data,) = case.inputs(dtype=dtype)
    put(data if last else np.moveaxis(data, 1, -1))
    heads = fast_kernels.heads_of(case, dtype)
    got = fast_kernels.run(case, dtype, kind, [data], heads)
    want = fast_kernels.run(case, dtype, "reference", [data], heads)
    fast_kernels.close(got, want, TOLERANCE[dtype])
    if way == "max":
        assert np.isnan(got["out"]).any() == (put in (_nan, _negative_nan))
        assert np.isneginf(got["out"].astype(np.float32)).any() == (put is _lowest)


@pytest.mark.parametrize("kind", fast_kernels.KINDS)
@pytest.mark.parametrize("last", [True, False], ids=["channels-last", "plain"])
def test_a_missing_output_changes_nothing(kind, last):
    case = _case(last, (2, 8, 8, 20), dict(kernel=(3, 3), stride=(2, 2), pad=(1, 1)))
    call = Call.of(case, dtype="float32")
    given = dict(zip(call.names()[0], case.inputs(dtype="float32")))
    with fast_kernels.only(kind):
        both, _ = call.execute(call.op, given)
        for name in ("out", "index"):
            alone, _ = call.execute(call.op, given, wanted=[name])
            np.testing.assert_array_equal(alone[name], both[name])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kind", ["reference", fast_kernels.KINDS[1]])
def test_what_max_pooling_took_is_chosen_again(kind, geometry, dtype):
    shape, attrs = GEOMETRIES[geometry]
    case = _case(True, shape, {**attrs, **WAYS["max"]})
    (data,) = case.inputs(dtype=dtype)
    found = fast_kernels.run(case, dtype, "reference", [data])
    index = found["index"]
    kinds = {"index": str(index.dtype)}
    again = Case(ops.ChosenPoolingChannelsLast, case.attrs, [shape, index.shape], dtypes=kinds)
    got = fast_kernels.run(again, dtype, kind, [data, index])["out"]
    np.testing.assert_array_equal(got, found["out"])
    if kind != "reference":
        name = fast_kernels.kernel_name(Call.of(again, dtype=dtype), kind)
        assert name == "compiled chosen pooling"
    index.fill(prod(case.parsed.kernel or shape[1:-1]))  # none
    assert not fast_kernels.run(again, dtype, kind, [data, index])["out"].any()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kind", fast_kernels.KINDS)
def test_the_kernels_are_chosen(kind, geometry, way):
    shape, attrs = GEOMETRIES[geometry]
    call = Call.of(_case(True, shape, {**attrs, **WAYS[way]}), dtype="float32")
    names = [fast_kernels.kernel_name(call, kind, backward) for backward in (False, True)]
    if kind == "compiled":
        assert all(n.startswith("compiled ") and "pooling" in n for n in names)
    elif geometry in ("2x2", "3x3", "1d") and way != "sum":
        assert all(n.startswith("onednn ") for n in names)
    for refused in ("float64",):
        call = Call.of(_case(True, shape, {**attrs, **WAYS[way]}), dtype=refused)
        assert fast_kernels.kernel_name(call, kind) == "reference"


@pytest.mark.skipif(not compiled.usable(), reason="llvmlite is not there")
@pytest.mark.parametrize("way", ["max", "avg"])
def test_any_number_of_threads_gives_the_same_bits(way):
    case = _case(True, (3, 30, 30, 24), dict(kernel=(3, 3), stride=(2, 2), pad=(1, 1), **WAYS[way]))
    fast_kernels.same_on_threads(case)
