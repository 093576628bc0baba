"""Rows of the operators that are about sparse storage."""

from __future__ import annotations

from mxlite import ops
from tests.conformance.case import Case, constant, few, integers

OWN = "MXNet's wants sparse arrays: see mxnet_sparse.py"

ROWS = {
    "cast_storage": Case(ops.cast_storage, {"stype": "csr"}, [(3, 4)], mxnet=OWN),
    "_sparse_retain": Case(
        ops._sparse_retain, {}, [(5, 2, 3), (4,)], make={"indices": integers(0, 5)}, mxnet=OWN, empty=False
    ),
    "_sparse_retain-vector": Case(
        ops._sparse_retain, {}, [(5,), (2,)], make={"indices": integers(0, 5)}, mxnet=OWN, empty=False
    ),
    "_square_sum": Case(ops._square_sum, {"axis": (1,), "keepdims": True}, [(5, 4)], mxnet=OWN),
    "_touched_rows": Case(
        ops._touched_rows, {"size": 7}, [(3, 2)], make={"data": integers(-1, 9)}, large=[(100_000, 2)]
    ),
    "_touched_columns": Case(ops._touched_columns, {}, [(4, 5)], make={"data": few}),
    "_sums_of_rows": Case(
        ops.SumsOfRows,
        {},
        [(9,), (9,), (5,), (6, 7)],
        make={"lines": integers(0, 6), "ends": constant([0, 2, 2, 5, 9])},
        dtypes={"lines": "int64", "ends": "int64"},
        empty=False,
    ),
    "_by_columns": Case(
        ops.ByColumns,
        {"columns": 6},
        [(9,), (9,), (5,)],
        make={"indices": integers(0, 6), "indptr": constant([0, 2, 2, 5, 9])},
        dtypes={"indices": "int64", "indptr": "int64"},
        empty=False,
        large=[(9,), (9,), (5,)],
        large_attrs={"columns": 100_000},
    ),
    "_sums_by_columns": Case(
        ops.SumsByColumns,
        {"columns": 6},
        [(9,), (9,), (5,), (4, 7)],
        make={"indices": integers(0, 5), "indptr": constant([0, 2, 2, 5, 9])},
        dtypes={"indices": "int64", "indptr": "int64"},
        empty=False,
        large=[(9,), (9,), (5,), (4, 100_000)],
    ),
    "_square_sum-0": Case(ops._square_sum, {"axis": (0,)}, [(5, 4)], mxnet=OWN),
}
