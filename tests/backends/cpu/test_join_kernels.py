"""Arrays joined and cut by generated code: every bit is where the reference puts it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mxlite import ops
from mxlite.core.machine_code import native
from tests.backends.cpu import fast_kernels
from tests.conformance.case import Case
from tests.conformance.conformance import Call

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not there")

NUMBERS = np.random.default_rng(5)
CASES = {
    "concat": Case(ops.Concat, {"num_args": 3, "dim": 2}, [(4, 5, 7, 3), (4, 5, 1, 3), (4, 5, 16, 3)]),
    "concat-last": Case(ops.Concat, {"num_args": 3, "dim": -1}, [(40, 64), (40, 33), (40, 130)]),
    "concat-long": Case(ops.Concat, {"num_args": 2, "dim": 1}, [(2, 3000, 2), (2, 1025, 2)]),
    "concat-one": Case(ops.Concat, {"num_args": 1, "dim": 1}, [(3, 5)]),
    "stack": Case(ops.stack, {"num_args": 3, "axis": 1}, [(4, 5, 7)] * 3),
    "stack-last": Case(ops.stack, {"num_args": 2, "axis": -1}, [(4, 5)] * 2),
    "split": Case(ops.SliceChannel, {"num_outputs": 4, "axis": 1}, [(3, 12, 5)]),
    "split-squeezed": Case(
        ops.SliceChannel, {"num_outputs": 6, "axis": 2, "squeeze_axis": True}, [(3, 4, 6)]
    ),
    "split_v2": Case(ops.SplitV2, {"indices": (2, 3, 9), "axis": 1}, [(3, 12, 5)]),
    "split_v2-equal": Case(ops.SplitV2, {"indices": (), "sections": 3, "axis": 2}, [(3, 4, 9)]),
    "split_v2-empty": Case(ops.SplitV2, {"indices": (0, 3), "axis": 2}, [(3, 4, 9)]),
    "unconcat": Case(ops.Unconcat, {"num_args": 3, "dim": 1}, [(3, 9, 2), (3, 4, 2), (3, 5, 2)]),
    "slice_axis": Case(ops.slice_axis, {"axis": 1, "begin": 3, "end": -2}, [(4, 17, 5)]),
    "slice_axis-end": Case(ops.slice_axis, {"axis": -1, "begin": -7, "end": None}, [(4, 3, 40)]),
}


def _bits(shape, dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if dtype == "bool":
        return NUMBERS.integers(0, 2, shape).astype(bool)
    return NUMBERS.integers(0, 256, (*shape, kind.itemsize)).astype(np.uint8).view(kind).reshape(shape)


def _results(call, op, given, kind, **how):
    with fast_kernels.only(kind):
        found, _ = call.execute(op, given, **how)
    return {n: None if x is None else x.copy().view(np.uint8) for n, x in found.items()}


def _compare(call, op, given, **how):
    got = _results(call, op, given, "compiled", **how)
    want = _results(call, op, given, "reference", **how)
    assert got.keys() == want.keys()
    for name, x in want.items():
        np.testing.assert_array_equal(got[name], x, f"{op.op_name}: {name}")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "uint8", "bool"])
@pytest.mark.parametrize("name", CASES)
def test_every_bit_is_the_references(name, dtype):
    call = Call.of(CASES[name], dtype=dtype)
    (ins, outs), (in_shapes, out_shapes) = call.names(), call.shapes
    _compare(call, call.op, {n: _bits(s, dtype) for n, s in zip(ins, in_shapes)})
    if call.op is ops.Unconcat:
        return
    heads = {f"d_{n}": _bits(s, dtype) for n, s in zip(outs, out_shapes)}
    _compare(call, call.op.grad_op, heads)
    assert fast_kernels.kernel_name(call, "compiled") == "compiled copies"
    assert fast_kernels.kernel_name(call, "compiled", backward=True) == "compiled copies"


@pytest.mark.parametrize("name", ["concat", "stack"])
def test_gradients_that_nobody_wants_are_skipped(name):
    call = Call.of(CASES[name], dtype="float32")
    _compare(call, call.op.grad_op, {"d_out": _bits(call.shapes[1][0], "float32")}, wanted=["d_arg1"])


@pytest.mark.parametrize("name", ["split", "split_v2", "split-squeezed"])
def test_a_part_that_nobody_reads_has_gradient_zero(name):
    call = Call.of(CASES[name], dtype="float32")
    heads = {f"d_{n}": _bits(s, "float32") for n, s in zip(call.names()[1], call.shapes[1])}
    _compare(call, call.op.grad_op, {**heads, "d_output1": None})
    data = {"data": _bits(call.shapes[0][0], "float32")}
    _compare(call, call.op, data, wanted=["output0"])


def test_runs_of_every_length():
    for n in [*range(1, 140), 8190, 8192, 8193]:
        call = Call.of(Case(ops.Concat, {"num_args": 2, "dim": 1}, [(3, n), (3, 5)]), dtype="uint8")
        given = {"arg0": _bits((3, n), "uint8"), "arg1": _bits((3, 5), "uint8")}
        _compare(call, call.op, given)
        _compare(call, call.op.grad_op, {"d_out": _bits((3, n + 5), "uint8")})


def test_any_number_of_threads_copies_the_same(monkeypatch):
    from mxlite.backends.cpu.runtime import threads

    call = Call.of(Case(ops.Concat, {"num_args": 2, "dim": 1}, [(7, 9000), (7, 33)]), dtype="float32")
    given = {"arg0": _bits((7, 9000), "float32"), "arg1": _bits((7, 33), "float32")}
    before = threads.set_num_threads(3)
    try:
        _compare(call, call.op, given)
    finally:
        threads.set_num_threads(before)
