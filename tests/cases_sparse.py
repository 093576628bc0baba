"""Rows of the operators that are about sparse storage."""

from __future__ import annotations

from case import Case

from mxlite import ops

ROWS = {
    "cast_storage": Case(ops.cast_storage, {"stype": "csr"}, [(3, 4)]),
    "_square_sum": Case(ops._square_sum, {"axis": (1,), "keepdims": True}, [(5, 4)]),
    "_square_sum-0": Case(ops._square_sum, {"axis": (0,)}, [(5, 4)]),
}
