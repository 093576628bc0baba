"""Local response normalization as generated code, against the reference kernel, in both layouts."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends.cpu.runtime import threads
from mxlite.core.machine_code import native
from tests.backends.cpu import fast_kernels
from tests.conformance.case import Case
from tests.conformance.conformance import Call, check_in_place

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not there")

ALEX = dict(nsize=5, alpha=0.5, beta=0.75, knorm=2.0)
CASES = {
    "plain": Case(ops.LRN, ALEX, [(2, 20, 7, 9)]),
    "plain-vectors": Case(ops.LRN, ALEX, [(2, 33, 8, 8)]),
    "plain-few": Case(ops.LRN, {**ALEX, "nsize": 9}, [(3, 3, 5)]),
    "plain-matrix": Case(ops.LRN, {**ALEX, "nsize": 3}, [(6, 40)]),
    "plain-power": Case(ops.LRN, {**ALEX, "beta": 1.5, "knorm": 0.3, "nsize": 4}, [(2, 20, 7, 9)]),
    "last": Case(ops.LrnChannelsLast, ALEX, [(2, 5, 3, 20)]),
    "last-vectors": Case(ops.LrnChannelsLast, ALEX, [(2, 5, 3, 64)]),
    "last-many": Case(ops.LrnChannelsLast, {**ALEX, "nsize": 7}, [(3, 4, 130)]),
    "last-few": Case(ops.LrnChannelsLast, {**ALEX, "nsize": 9}, [(3, 4, 3)]),
    "last-one": Case(ops.LrnChannelsLast, {**ALEX, "nsize": 1}, [(3, 4, 17)]),
}
TOLERANCE = {"float32": 5e-6, "bfloat16": 1e-2, "float16": 2e-3}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_references_and_so_is_the_gradient(name, dtype):
    case = CASES[name]
    arrays, heads = case.inputs(dtype=dtype), fast_kernels.heads_of(case, dtype)
    assert fast_kernels.kernel_name(Call.of(case, dtype="float32"), "compiled") == "compiled LRN"
    assert fast_kernels.kernel_name(Call.of(case, dtype="float64"), "compiled") == "reference"
    before = threads.set_num_threads(3)
    try:
        got = fast_kernels.run(case, dtype, "compiled", arrays, heads)
    finally:
        threads.set_num_threads(before)
    fast_kernels.close(got, fast_kernels.run(case, dtype, "reference", arrays, heads), TOLERANCE[dtype])


@pytest.mark.parametrize("name", ["plain", "last"])
def test_large_arrays_on_several_threads_are_the_same(name):
    shape = (3, 40, 33, 31) if name == "plain" else (3, 33, 31, 40)
    case = Case(CASES[name].op, ALEX, [shape])
    found = fast_kernels.same_on_threads(case)
    arrays, heads = case.inputs(dtype="float32"), fast_kernels.heads_of(case, "float32")
    fast_kernels.close(found, fast_kernels.run(case, "float32", "reference", arrays, heads), 5e-6)


@pytest.mark.parametrize("name", CASES)
def test_in_place_it_is_the_same(name):
    case = CASES[name]
    with fast_kernels.only("compiled"):
        check_in_place(Case(case.op, case.attrs, case.shapes, dtype="float32"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, 1e-30])
@pytest.mark.parametrize("name", ["plain", "last"])
def test_numbers_of_every_kind_go_through(name, value):
    case = CASES[name]
    (data,) = case.inputs(dtype="float32")
    data.reshape(-1)[[0, data.size // 2]] = value
    with np.errstate(all="ignore"):
        got = fast_kernels.run(case, "float32", "compiled", [data])
        want = fast_kernels.run(case, "float32", "reference", [data])
    fast_kernels.close(got, want, 5e-6)
