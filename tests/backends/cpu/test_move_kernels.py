"""Axes in another order, on oneDNN and as generated code: every bit is where numpy puts it."""

from __future__ import annotations

from itertools import permutations

import ml_dtypes
import numpy as np
import pytest

from mxlite import ops
from tests.backends.cpu import fast_kernels
from tests.conformance.case import Case
from tests.conformance.conformance import Call

DTYPES = ["float32", "bfloat16", "float16", "float64", "int32", "int64", "uint8", "bool"]
NUMBERS = np.random.default_rng(5)


def _bits(shape, dtype):
    """Any bits at all: NaN of every kind, denormal numbers."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if dtype == "bool":
        return NUMBERS.integers(0, 2, shape).astype(bool)
    found = NUMBERS.integers(0, 256, (*shape, kind.itemsize)).astype(np.uint8)
    return found.view(kind).reshape(shape)


def _same(got, want):
    np.testing.assert_array_equal(got.view(np.uint8), np.ascontiguousarray(want).view(np.uint8))


def _moved(op, attrs, shape, dtype, kind):
    """The result and the gradient of one call, and what was put in."""
    call = Call.of(Case(op, attrs, [shape]), dtype=dtype)
    data, head = _bits(shape, dtype), _bits(call.shapes[1][0], dtype)
    with fast_kernels.only(kind):
        out, _ = call.execute(call.op, {"data": data})
        grad, _ = call.execute(call.op.grad_op, {"d_out": head})
    return data, head, out["out"], grad["d_data"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", fast_kernels.KINDS)
def test_channels_move_there_and_back(kind, dtype):
    lengths = (1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 50, 64, 67, 128)
    for c in lengths:
        for s in ((7, 1), (33, 1), (4, 8), (16, 16), (67, 3)):
            data, head, out, grad = _moved(ops.ChannelsLast, {}, (2, c, *s), dtype, kind)
            _same(out, np.moveaxis(data, 1, -1))
            _same(grad, np.moveaxis(head, -1, 1))
            data, head, out, grad = _moved(ops.ChannelsFirst, {}, (3, *s, c), dtype, kind)
            _same(out, np.moveaxis(data, -1, 1))
            _same(grad, np.moveaxis(head, 1, -1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("axes", list(permutations(range(4))))
@pytest.mark.parametrize("kind", fast_kernels.KINDS)
def test_transposition(kind, axes, dtype):
    for shape in ((3, 5, 4, 6), (20, 1, 33, 2), (2, 16, 1, 40)):
        data, head, out, grad = _moved(ops.transpose, {"axes": axes}, shape, dtype, kind)
        _same(out, data.transpose(axes))
        _same(grad, head.transpose(np.argsort(axes)))


@pytest.mark.parametrize("kind", fast_kernels.KINDS)
def test_exchanged_axes(kind):
    for i, j in ((0, 1), (1, 2), (0, 2), (-1, 0), (1, 1)):
        data, head, out, grad = _moved(ops.SwapAxis, {"dim1": i, "dim2": j}, (17, 3, 40), "float32", kind)
        _same(out, data.swapaxes(i, j))
        _same(grad, head.swapaxes(i, j))
    data, _, out, _ = _moved(ops.transpose, {}, (40, 33), "float32", kind)
    _same(out, data.T)


@pytest.mark.parametrize("kind", fast_kernels.KINDS)
def test_the_kernels_are_chosen(kind):
    for op, shape in ((ops.ChannelsLast, (2, 64, 8, 8)), (ops.ChannelsFirst, (2, 16, 16, 3))):
        call = Call.of(Case(op, {}, [shape]), dtype="float32")
        assert fast_kernels.kernel_name(call, kind).startswith(f"{kind} ")
        assert fast_kernels.kernel_name(call, kind, backward=True).startswith(f"{kind} ")
    still = Call.of(Case(ops.ChannelsLast, {"moves": False}, [(5, 64, 1, 1)]), dtype="float32")
    assert (
        fast_kernels.kernel_name(still, kind) == {"onednn": "reference", "compiled": "compiled copies"}[kind]
    )
