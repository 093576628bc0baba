"""Rows of `conformance.py` for messages among ranks, in a process that is the only one. See `cases.py`."""

from __future__ import annotations

from mxlite.graph import parse_attrs
from mxlite.ops import find_op
from tests.conformance.case import Case, positive

_SUM = find_op("_sum_over_ranks")
_SGD = find_op("_fused_sgd_mom")
_NONE = "MXNet has no such operator"


def _rows(rng, shape):
    """Moments of batches of one size."""
    rows = rng.uniform(1, 2, shape)
    rows[:, 0] = 8
    return rows


ROWS: dict[str, Case] = {
    "_sum_over_ranks": Case(_SUM, {"num_args": 2, "arrays": 2, "ranks": 1}, [(3, 4), (3, 2)], mxnet=_NONE),
    "_sum_over_ranks-alone": Case(_SUM, {"num_args": 1, "arrays": 1, "ranks": 1}, [(3, 4)], mxnet=_NONE),
    "_sum_over_ranks-token": Case(
        _SUM,
        {"num_args": 2, "arrays": 1, "ranks": 1},
        [(3, 4), (1,)],
        dtype="float32",
        mxnet=_NONE,
        empty=False,
    ),
    "_channel_moments": Case(
        find_op("_channel_moments"), {}, [(4, 3, 2, 2)], mxnet=_NONE, large=[(60_000, 3, 2, 2)]
    ),
    "_moments_by_rank": Case(
        find_op("_moments_by_rank"), {"count": 5, "ranks": 1}, [(3,), (3,)], mxnet=_NONE
    ),
    "_line_of_moments": Case(
        find_op("_line_of_moments"),
        {"fix_gamma": False},
        [*[(3,)] * 4, (2, 7)],
        make={"rows": _rows, "moving_var": positive},
        grad_inputs=("gamma", "beta"),  # that of rows is none of counts; see tests/dist/programs/norms.py
        mxnet=_NONE,
        empty=False,
        large=[*[(3,)] * 4, (40_000, 7)],
    ),
    "_channel_line": Case(
        find_op("_channel_line"),
        {},
        [(4, 3, 2, 2), (3,), (3,)],
        mxnet=_NONE,
        large=[(60_000, 3, 2, 2), (3,), (3,)],
    ),
    "_cross_device_copy": Case(
        find_op("_cross_device_copy"), {"source": 0, "target": 1}, [(3, 4)], mxnet=_NONE
    ),
    "_gather_over_ranks": Case(
        find_op("_gather_over_ranks"),
        {"shape": "(3, 4)", "ranks": 1, "length": 12},
        [(12,)],
        mxnet=_NONE,
        large=[(600_000,)],
        large_attrs={"shape": "(3, 200000)", "length": 600_000},
    ),
    "_scatter_over_ranks": Case(
        find_op("_scatter_over_ranks"),
        {"shape": "(3, 4)", "ranks": 1, "length": 12},
        [(3, 4)],
        mxnet=_NONE,
        large=[(3, 200_000)],
        large_attrs={"shape": "(3, 200000)", "length": 600_000},
    ),
    "_sharded_update": Case(
        find_op("_sharded_update"),
        find_op("_sharded_update").Attrs(4, _SGD, parse_attrs(_SGD, {"momentum": 0.9, "row": 1}), 1, 1),
        [(3, 4), (3, 4), (12,), (2, 2)],
        dtypes={"arg3": "float64"},
        make={"arg3": positive},
        mxnet=_NONE,
        empty=False,
        large=[(3, 2**19), (3, 2**19), (3 * 2**19,), (2, 2)],
    ),
}
