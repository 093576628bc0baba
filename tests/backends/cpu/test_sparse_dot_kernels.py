"""Products of csr matrices as generated code, against numpy's on dense ones."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite import OperatorError, ops
from mxlite.backends.cpu.runtime import threads
from mxlite.core.machine_code import native
from tests.backends.cpu import fast_kernels
from tests.cases import sparse as cases_sparse
from tests.conformance.case import Case
from tests.conformance.conformance import Call

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not there")

KINDS = {
    "_sums_by_columns": "compiled sums by columns",
    "_sums_of_rows": "compiled sums of rows",
    "_by_columns": "compiled counting sort",
}


def csr(rows, columns, share, dtype, seed=0):
    """A csr matrix with empty rows and columns, columns of a row in any order, some twice."""
    rng = np.random.default_rng(seed)
    lengths = rng.binomial(columns, share, rows)
    lengths[::3] = 0
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = rng.integers(0, max(1, columns - 2), indptr[-1])
    return rng.standard_normal(indptr[-1]).astype(dtype), indices, indptr


def dense(data, indices, indptr, columns):
    made = np.zeros((len(indptr) - 1, columns))
    np.add.at(made, (np.repeat(np.arange(len(made)), np.diff(indptr)), indices), data.astype(float))
    return made


def case_of(op, arrays, **attrs):
    names = op.input_names(None)
    kinds = {n: "int64" for n, x in zip(names, arrays) if x.dtype == np.int64}
    return Case(op, attrs, [x.shape for x in arrays], dtypes=kinds)


@pytest.mark.parametrize("width", [1, 7, 15, 16, 17, 64, 83, 130])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_are_the_references_and_the_same_on_any_number_of_threads(width, dtype):
    data, indices, indptr = csr(307, 200, 0.05, dtype)
    rhs = np.random.default_rng(1).standard_normal((200, width)).astype(dtype)
    arrays = [data, indices, indptr, rhs]
    case = case_of(ops.SumsOfRows, arrays)
    found = []
    for n in (1, 2, 3):
        before = threads.set_num_threads(n)
        try:
            found.append(fast_kernels.run(case, dtype, "compiled", arrays))
        finally:
            threads.set_num_threads(before)
        fast_kernels.close(found[-1], found[0], 0)
    want = {"out": dense(data, indices, indptr, 200) @ rhs.astype(float)}
    for got in (found[0], fast_kernels.run(case, dtype, "reference", arrays)):
        fast_kernels.close(got, want, 1e-6 if dtype == "float32" else 1e-15)


@pytest.mark.parametrize("columns", [1, 2, 3, 60])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elements_are_put_in_order_of_their_columns(columns, dtype):
    arrays = list(csr(41, columns, 0.4, dtype))
    case = case_of(ops.ByColumns, arrays, columns=columns)
    got = fast_kernels.run(case, dtype, "compiled", arrays)
    fast_kernels.close(got, fast_kernels.run(case, dtype, "reference", arrays), 0)
    assert got["starts"][0] == 0 and got["starts"][-1] == len(arrays[0])


@pytest.mark.parametrize("width", [1, 7, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_by_columns_are_the_references_and_the_same_on_any_number_of_threads(width, dtype):
    data, indices, indptr = csr(107, 60, 0.3, dtype)
    rhs = np.random.default_rng(1).standard_normal((107, width)).astype(dtype)
    arrays = [data, indices, indptr, rhs]
    case = case_of(ops.SumsByColumns, arrays, columns=60)
    plain = dense(data, indices, indptr, 60)
    touched = np.isin(np.arange(60), indices).astype(np.uint8)
    want = {"out": plain.T @ rhs.astype(float), "touched": touched}
    found = [fast_kernels.run(case, dtype, "reference", arrays)]
    for n in (1, 2, 3):
        before = threads.set_num_threads(n)
        try:
            found.append(fast_kernels.run(case, dtype, "compiled", arrays))
        finally:
            threads.set_num_threads(before)
        fast_kernels.close(found[-1], found[1], 0)
    for got in found:
        fast_kernels.close(got, want, 1e-6 if dtype == "float32" else 1e-15)


@pytest.mark.parametrize("a, b", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("size", [1, 16, 61])
@pytest.mark.parametrize("width", [9, 40])
def test_products_of_arrays_are_numpys(a, b, size, width):
    data, indices, indptr = csr(53, size, 0.3, "float32")
    shape = (53 if a else size, width)
    other = np.random.default_rng(1).standard_normal(shape[::-1] if b else shape).astype("float32")
    left = mx.nd.sparse.csr_matrix((data, indices, indptr), shape=(53, size))
    plain = dense(data, indices, indptr, size)
    made = mx.nd.dot(left, mx.nd.array(other), transpose_a=a, transpose_b=b)
    assert made.stype == ("row_sparse" if a and not b else "default")
    want = (plain.T if a else plain) @ (other.T if b else other)
    np.testing.assert_allclose(made.asnumpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", KINDS)
@pytest.mark.parametrize(
    "lines, ends",
    [([0, 9, 1], [0, 1, 3]), ([0, -1, 1], [0, 1, 3]), ([0, 1, 1], [0, 4, 3]), ([0, 1, 1], [0, 2, 4])],
)
def test_what_would_read_elsewhere_is_an_error(op, lines, ends):
    arrays = [np.ones(3, np.float32), np.array(lines), np.array(ends)]
    attrs = {"columns": 5} if "by_columns" in op else {}
    if op != "_by_columns":
        arrays.append(np.ones((5 if op == "_sums_of_rows" else 2, 3), np.float32))
    case = case_of(ops.find_op(op), arrays, **attrs)
    for kinds in ("compiled", "reference"):
        with pytest.raises(OperatorError, match=op):
            fast_kernels.run(case, "float32", kinds, arrays)


@pytest.mark.parametrize("op", KINDS)
def test_they_are_chosen(op):
    for dtype in ("float32", "float64"):
        assert fast_kernels.kernel_name(Call.of(cases_sparse.ROWS[op], dtype=dtype), "compiled") == KINDS[op]
