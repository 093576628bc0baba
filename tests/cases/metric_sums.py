"""Rows of `conformance.py` for sums of metrics. See `cases.py`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxlite import ops
from tests.conformance.case import Case, few, integers, unit


def _sums(rng: Any, shape: Any) -> Any:
    return np.array([3.0, 7.0, 1.5, 4.0])


def _case(op: Any, attrs: Any, *shapes: Any, taken: float = 1.0, label: Any = None, **more: Any) -> Case:
    make = {"sums": _sums, "taken": lambda rng, shape: np.full(shape, taken), **more.pop("make", {})}
    if label is not None:
        make["label"] = label
    return Case(
        op,
        attrs,
        [(4,), (1,), *shapes],
        dtype="float32",
        dtypes={"sums": "float64"},
        make=make,
        mxnet="MXNet adds up metrics on the host",
        empty=False,
        large=[(4,), (1,), *_large(shapes)],
        **more,
    )


def _large(shapes: Any) -> Any:
    """Shapes with a long axis 0, so that whole temporaries would show."""
    factor = -(-220_000 // math.prod(shapes[-1]))
    return [(s[0] * factor, *s[1:]) for s in shapes]


_THREE, _UNIT = integers(0, 3), {"pred": unit}

ROWS: dict[str, Case] = {
    "_metric_hits": _case(ops.MetricHits, {}, (7,), (7, 3), label=_THREE),
    "_metric_hits-forgotten": _case(ops.MetricHits, {}, (7,), (7, 3), label=_THREE, taken=0.0),
    "_metric_hits-ties": _case(ops.MetricHits, {}, (40,), (40, 70), label=_THREE, make={"pred": few}),
    "_metric_hits-axis": _case(ops.MetricHits, {"axis": 1}, (4, 5, 2), (4, 3, 5, 2), label=_THREE),
    "_metric_hits-classes": _case(ops.MetricHits, {}, (5, 9), (5, 9), label=_THREE, make={"pred": few}),
    "_metric_top": _case(ops.MetricTop, {"top_k": 2}, (7,), (7, 5), label=_THREE),
    "_metric_top-ties": _case(ops.MetricTop, {"top_k": 3}, (9, 1), (9, 50), label=_THREE, make={"pred": few}),
    "_metric_chosen": _case(ops.MetricChosen, {"eps": 1e-12}, (7,), (7, 3), label=_THREE, make=_UNIT),
    "_metric_chosen-ignore": _case(
        ops.MetricChosen, {"floor": 0.3, "ignore": 2.0}, (3, 4), (3, 4, 5), label=_THREE, make=_UNIT
    ),
    "_metric_chosen-clip": _case(
        ops.MetricChosen, {"clip": True}, (3, 4), (3, 4, 5), label=integers(-2, 9), make=_UNIT
    ),
    "_metric_total": _case(ops.MetricTotal, {}, (5, 70)),
    "_metric_difference": _case(ops.MetricDifference, {"of": "absolute"}, (5, 7), (5, 7)),
    "_metric_difference-square": _case(ops.MetricDifference, {"of": "square"}, (33,), (33,)),
    "_metric_difference-root": _case(ops.MetricDifference, {"of": "root"}, (5, 7), (5, 7), taken=0.0),
}
