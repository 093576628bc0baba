"""Rows of `conformance.py` for messages among ranks, in a process that is the only one. See `cases.py`."""

from __future__ import annotations

from mxlite.ops import find_op
from tests.conformance.case import Case

_SUM = find_op("_sum_over_ranks")
_NONE = "MXNet has no such operator"

ROWS: dict[str, Case] = {
    "_sum_over_ranks": Case(_SUM, {"num_args": 2, "arrays": 2, "ranks": 1}, [(3, 4), (3, 2)], mxnet=_NONE),
    "_sum_over_ranks-alone": Case(_SUM, {"num_args": 1, "arrays": 1, "ranks": 1}, [(3, 4)], mxnet=_NONE),
    "_sum_over_ranks-token": Case(
        _SUM,
        {"num_args": 2, "arrays": 1, "ranks": 1},
        [(3, 4), (1,)],
        dtypes={"arg1": "float32"},
        mxnet=_NONE,
        empty=False,
    ),
}
