"""Dropout as generated code, against numpy's: the same elements, to the bit, wherever they lie."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled.random.dropout import dropped, Steps, whole_run
from mxlite.backends.cpu.runtime import threads
from mxlite.core.machine_code import native
from mxlite.ops.random.philox import RandomStream
from tests.backends.cpu import fast_kernels
from tests.conformance.case import Case
from tests.conformance.conformance import Call, check_in_place

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not there")

KINDS = ("float32", "bfloat16", "float16", "float64")
SIZES = (1, 7, 15, 16, 17, 31, 33, 64, 20011)
CASES = {
    **{f"run-{n}": Case(ops.Dropout, {"p": 0.4}, [(n,)]) for n in SIZES},
    "always": Case(ops.Dropout, {"p": 0.4, "mode": "always"}, [(6, 5)], train=False),
    "inference": Case(ops.Dropout, {"p": 0.4}, [(6, 5)], train=False),
    "nothing-dropped": Case(ops.Dropout, {"p": 0.0}, [(6, 5)]),
    "all-dropped": Case(ops.Dropout, {"p": 1.0}, [(6, 5)]),
    "nearly-all-dropped": Case(ops.Dropout, {"p": 1 - 2.0**-30}, [(6, 5)]),
    "one-inner": Case(ops.Dropout, {"p": 0.4, "axes": (2, 3)}, [(3, 5, 4, 9)]),
    "one-outer": Case(ops.Dropout, {"p": 0.4, "axes": (0,)}, [(4, 37)]),
    "one-for-all": Case(ops.Dropout, {"p": 0.4, "axes": (0, 1)}, [(4, 37)]),
    "rows-by-four": Case(ops.Dropout, {"p": 0.4, "axes": (1,)}, [(3, 4, 36)]),
    "rows-of-any": Case(ops.Dropout, {"p": 0.4, "axes": (1,)}, [(3, 4, 37)]),
    "rows-short": Case(ops.Dropout, {"p": 0.4, "axes": (-2,)}, [(5, 4, 3)]),
    "by-turns": Case(ops.Dropout, {"p": 0.4, "axes": (0, 2, 4)}, [(2, 3, 4, 5, 6, 7)]),
    "last": Case(ops.DropoutChannelsLast, {"p": 0.4}, [(3, 5, 4, 37)]),
    "last-one-sample": Case(ops.DropoutChannelsLast, {"p": 0.4}, [(1, 2, 4, 16)]),
    "last-odd": Case(ops.DropoutChannelsLast, {"p": 0.4}, [(2, 5, 3, 37)]),
    "last-one-position": Case(ops.DropoutChannelsLast, {"p": 0.4}, [(2, 1, 1, 37)]),
    "last-planes": Case(ops.DropoutChannelsLast, {"p": 0.4, "axes": (2, 3)}, [(6, 5, 4, 17)]),
    "last-channels": Case(ops.DropoutChannelsLast, {"p": 0.4, "axes": (1,)}, [(6, 5, 4, 17)]),
    "last-samples": Case(ops.DropoutChannelsLast, {"p": 0.4, "axes": (0,)}, [(6, 5, 4, 17)]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_references_and_so_is_the_gradient(name, dtype):
    case = CASES[name]
    arrays, heads = case.inputs(dtype=dtype), fast_kernels.heads_of(case, dtype)
    arrays[0].reshape(-1)[0] = np.nan
    assert fast_kernels.kernel_name(Call.of(case, dtype=dtype), "compiled") == "compiled dropout"
    with np.errstate(all="ignore"):
        want = fast_kernels.run(case, dtype, "reference", arrays, heads)
    for n in (1, 3):
        before = threads.set_num_threads(n)
        try:
            got = fast_kernels.run(case, dtype, "compiled", arrays, heads)
        finally:
            threads.set_num_threads(before)
        assert got.keys() == want.keys()
        for key, x in got.items():
            same = x.view(np.uint8) == want[key].view(np.uint8)
            assert (same | np.repeat(np.isnan(want[key]), x.itemsize).reshape(same.shape)).all(), (key, n)


@pytest.mark.parametrize("name", CASES)
def test_in_place_it_is_the_same_and_takes_no_scratch(name):
    case = CASES[name]
    with fast_kernels.only("compiled"):
        check_in_place(Case(case.op, case.attrs, case.shapes, dtype="float32", train=case.train))
        call = Call.of(case, dtype="float32")
        assert call.kernel(call.op).workspace == call.kernel(call.op.grad_op).workspace == 0


@pytest.mark.parametrize("name", ["run-20011", "one-inner", "rows-of-any", "last", "last-odd"])
def test_large_arrays_on_several_threads_are_the_same(name):
    case = CASES[name]
    large = Case(case.op, case.attrs, [(1000003,) if name == "run-20011" else (31, *case.shapes[0][1:], 43)])
    found = fast_kernels.same_on_threads(large)
    arrays, heads = large.inputs(dtype="float32"), fast_kernels.heads_of(large, "float32")
    fast_kernels.close(found, fast_kernels.run(large, "float32", "reference", arrays, heads), 0)


@pytest.mark.parametrize("seed", [1, 2**64 - 1, 0x299F31D0A4093822])
@pytest.mark.parametrize("step", [0, 2**32 + 5])
@pytest.mark.parametrize("start", [0, 1, 2, 3, 4, 4 * 0xFFFFFFF0 - 40])
@pytest.mark.parametrize("count", [1, 3, 50])
def test_every_part_of_a_stream_is_drawn(seed, step, start, count):
    rng = RandomStream(np.array([seed, step], np.uint64), 2**32 - 3)
    numbers, x = np.empty(count, np.float32), np.ones(count, np.float32)
    rng.fill_uniform(np, numbers, CPU.empty(rng.WORK_BYTES), start)
    for p in (0.5, float(numbers[0]), float(np.nextafter(numbers[0], np.float32(2)))):
        out = np.empty_like(x)
        dropped(x, out, whole_run(count), rng, p, start)()
        assert np.array_equal(out != 0, numbers >= np.float32(p))


def test_the_last_axis_is_gone_along_in_the_way_that_makes_fewest_blocks():
    assert Steps((6, 5), (5, 1)).way == "run"
    assert Steps((6, 5), (1, 0)).way == "one"
    assert Steps((3, 8, 5), (40, 1, 8)).way == "fours"
    assert Steps((3, 7, 5), (35, 1, 7)).way == "lanes"
