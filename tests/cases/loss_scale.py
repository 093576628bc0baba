"""Rows of `conformance.py` for overflow checks, loss scaling and layerwise rates. See `cases.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxlite import ops
from tests.conformance.case import Case, positive


def _holes(kind: float) -> Any:
    """Numbers of which the last is `kind`."""

    def make(rng: Any, shape: Any) -> Any:
        x = rng.standard_normal(shape)
        x.reshape(-1)[-1:] = kind
        return x

    return make


def _fixed(*values: float) -> Any:
    return lambda rng, shape: np.resize(np.array(values), shape)


_GATE = {"dynamic": True, "window": 3, "largest": 64.0}


def _gate(finite: float, scale: float, steps: float, **attrs: Any) -> Case:
    return Case(
        ops.ScaledUpdate,
        {**_GATE, **attrs},
        [(1,), (3, 2), (2,), (3,)],
        dtype="float32",
        dtypes={"hyper": "float64", "history": "float64"},
        make={"finite": _fixed(finite), "scale": _fixed(scale, 1 / scale), "history": _fixed(steps, 7, 2)},
        mxnet="MXNet decides on the host",
        empty=False,
        large=[(1,), (150_000, 3), (2,), (3,)],
    )


ROWS: dict[str, Case] = {
    "all_finite": Case(ops.all_finite, {}, [(3, 4)]),
    "all_finite-nan": Case(ops.all_finite, {}, [(3, 700)], make={"data": _holes(np.nan)}),
    "all_finite-inf": Case(ops.all_finite, {}, [(5,)], dtype="float16", make={"data": _holes(-np.inf)}),
    "multi_all_finite": Case(ops.multi_all_finite, {"num_arrays": 3}, [(3, 4), (5,), (2, 2)], empty=False),
    "multi_all_finite-types": Case(
        ops.multi_all_finite,
        {"num_arrays": 3},
        [(3, 4), (5,), (2, 2)],
        dtype="float32",
        dtypes={"arg1": "float16", "arg2": "bfloat16"},
        make={"arg1": _holes(np.inf)},
        empty=False,
        mxnet="MXNet has one type for all",
    ),
    "multi_sum_sq": Case(ops.multi_sum_sq, {"num_arrays": 3}, [(3, 4), (5,), (20, 70)], empty=False),
    "multi_sum_sq-float16": Case(
        ops.multi_sum_sq, {"num_arrays": 2}, [(3, 4), (5,)], dtype="float16", empty=False
    ),
    "multi_lars": Case(
        ops.multi_lars,
        {"eta": 0.1, "eps": 1e-8, "rescale_grad": 0.5},
        [(7,)] * 4,
        make=dict.fromkeys(ops.multi_lars.inputs, positive),
    ),
    "multi_lars-zeros": Case(
        ops.multi_lars,
        {"eta": 0.1, "eps": 1e-8},
        [(4,)] * 4,
        make={"weights_sum_sq": _fixed(0.0, 4.0, 0.0, 9.0), "grads_sum_sq": _fixed(0.0, 0.0, 4.0, 9.0)},
    ),
    "reset_arrays": Case(ops.reset_arrays, {"num_arrays": 2}, [(3, 4), (5,)], empty=False),
    "_scaled_update": _gate(1.0, 8.0, 1.0),
    "_scaled_update-overflow": _gate(0.0, 8.0, 2.0),
    "_scaled_update-least": _gate(0.0, 1.0, 0.0),
    "_scaled_update-doubles": _gate(1.0, 8.0, 2.0),
    "_scaled_update-largest": _gate(1.0, 64.0, 2.0),
    "_scaled_update-static": _gate(0.0, 8.0, 1.0, dynamic=False),
}
