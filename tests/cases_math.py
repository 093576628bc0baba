"""Rows of `conformance.py` for mathematics: functions of elements, broadcasting, reductions."""

from __future__ import annotations

import numpy as np
from case import apart, Case, few, integers, normal, positive

from mxlite import ops

_TWO = {
    "same": [(3, 4), (3, 4)],
    "row": [(3, 4), (1, 4)],
    "column": [(3, 1), (3, 4)],
    "outer": [(3, 1), (1, 4)],
    "rank": [(4,), (2, 3, 4)],
    "one": [(3, 4), (1,)],
}
_TWO_LARGE = {
    "column": [(300, 1), (300, 1000)],
    "outer": [(300_000, 1), (1, 4)],
    "rank": [(4,), (25_000, 3, 4)],
}


def _broadcast(op, make=normal, **more):
    """The ways in which two shapes meet."""
    fill = {"lhs": make, "rhs": make}
    return {
        f"{op.op_name}-{k}": Case(op, shapes=s, make=fill, large=_TWO_LARGE.get(k), **more)
        for k, s in _TWO.items()
    }


def _strange(rng, shape):
    """nan, infinities and ordinary numbers."""
    return rng.choice(np.array([np.nan, np.inf, -np.inf, 0.0, 1.5]), shape)


def _scalar(op, scalar, make=normal, **more):
    return {f"{op.op_name}-{scalar}": Case(op, {"scalar": scalar}, make={"data": make}, **more)}


def _whole(op, kind="int32", low=-5, **more):
    name = f"{op.op_name}-{kind}"
    return {
        name: Case(
            op,
            shapes=[(3, 4)] * len(op.inputs),
            dtype=kind,
            make=dict.fromkeys(op.inputs, integers(low, 6)),
            **more,
        )
    }


def _bool(op, **more):
    name = f"{op.op_name}-bool"
    return {
        name: Case(
            op,
            shapes=[(3, 4)] * len(op.inputs),
            dtype="bool",
            make=dict.fromkeys(op.inputs, integers(0, 2)),
            **more,
        )
    }


ROWS: dict[str, Case] = {
    **_broadcast(ops.broadcast_hypot, positive),
    **_broadcast(ops.arctan2),
    "broadcast_like": Case(ops.broadcast_like, {}, [(3, 1, 5), (3, 4, 5)]),
    "broadcast_like-rank": Case(ops.broadcast_like, {}, [(1, 5), (3, 4, 5)], large=[(1, 5), (9000, 4, 5)]),
    "broadcast_like-same": Case(ops.broadcast_like, {}, [(3, 4), (3, 4)]),
    "broadcast_like-axes": Case(
        ops.broadcast_like,
        {"lhs_axes": (0, -1), "rhs_axes": (1, 0)},
        [(1, 5, 1), (2, 6)],
        empty=False,
        large=[(1, 5, 1), (300, 200)],
    ),
    "_sum_like": Case(ops._sum_like, {}, [(3, 4, 5), (3, 1, 5)]),
    "_sum_like-rank": Case(ops._sum_like, {}, [(3, 4, 5), (1, 5)], large=[(9000, 4, 5), (1, 5)]),
    "_sum_like-same": Case(ops._sum_like, {}, [(3, 4), (3, 4)]),
    "_sum_like-one": Case(ops._sum_like, {}, [(3, 4), (1,)]),
    # -- logic
    **_broadcast(ops.broadcast_logical_and, few),
    **_broadcast(ops.broadcast_logical_or, few),
    **_broadcast(ops.broadcast_logical_xor, few),
    **_bool(ops.broadcast_logical_and),
    **_bool(ops.broadcast_logical_xor),
    **_bool(ops.broadcast_equal),
    **_bool(ops.logical_not),
    **_scalar(ops._logical_and_scalar, 1.0, few),
    **_scalar(ops._logical_or_scalar, 0.0, few),
    **_scalar(ops._logical_xor_scalar, 1.0, few),
    "logical_not": Case(ops.logical_not, make={"data": few}),
    "isnan": Case(ops.isnan, make={"data": _strange}),
    "isinf": Case(ops.isinf, make={"data": _strange}),
    "isfinite": Case(ops.isfinite, make={"data": _strange}),
    **_whole(ops.isnan),
    **_whole(ops.bitwise_and),
    **_whole(ops.bitwise_or),
    **_whole(ops.bitwise_xor),
    **_whole(ops.bitwise_not),
    **_whole(ops.bitwise_not, "uint8", 0),
    **_bool(ops.bitwise_and),
    **_bool(ops.bitwise_not),
    "left_shift": Case(
        ops.left_shift,
        {},
        [(3, 4), (1, 4)],
        dtype="int32",
        make={"lhs": integers(-9, 9), "rhs": integers(0, 5)},
    ),
    "right_shift": Case(
        ops.right_shift,
        {},
        [(3, 4), (1, 4)],
        dtype="int64",
        make={"lhs": integers(-9, 9), "rhs": integers(0, 5)},
    ),
    # -- an array and a number
    **_scalar(ops._hypot_scalar, 1.5),
    **_scalar(ops.smooth_l1, 1.0),
    **_scalar(ops.smooth_l1, 3.0, apart),
    **_whole(ops.broadcast_power),
}
