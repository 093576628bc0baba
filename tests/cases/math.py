"""Rows of `conformance.py` for mathematics: functions of elements, broadcasting, reductions."""

from __future__ import annotations

import numpy as np

from mxlite import ops
from tests.conformance.case import apart, Case, constant, few, fractions, integers, normal, positive

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


def _reduce(op, torch=None, make=normal, **more):
    """Over all, one, several axes, kept or not; `torch` names PyTorch's function of (data, axes, keepdim)."""

    def call(a, x):
        import torch as pytorch

        axes = a.axis if isinstance(a.axis, tuple) else tuple(range(x.ndim)) if a.axis is None else (a.axis,)
        if torch == "_nanprod":
            known = x.nan_to_num(1.0)
            return _over_axes(known, axes, a.keepdims)
        y = getattr(pytorch, torch)(x, axes, a.keepdims).to(x.dtype)
        return y.reshape(1) if y.ndim == 0 else y

    name, fill = op.op_name, {"data": make}
    more["torch"] = call if torch else None
    return {
        f"{name}-all": Case(op, {}, [(3, 4)], make=fill, **more),
        f"{name}-axis": Case(op, {"axis": 1}, [(2, 3, 4)], make=fill, **more),
        f"{name}-first": Case(op, {"axis": 0}, [(3, 4)], make=fill, **more),
        f"{name}-two": Case(op, {"axis": (0, 2)}, [(2, 3, 4)], make=fill, **more),
        f"{name}-keepdims": Case(op, {"axis": -1, "keepdims": True}, [(2, 3, 4)], make=fill, **more),
    }


def _over_axes(x, axes, keepdims):
    """Product over axes."""
    for i in sorted((i % x.ndim for i in axes), reverse=True):
        x = x.prod(i, keepdim=keepdims)
    return x if x.ndim else x.reshape(1)


def _holes(rng, shape):
    """Positive numbers and a few nan."""
    x = rng.uniform(0.5, 2.0, shape)
    x.flat[:: max(2, x.size // 3)] = np.nan
    return x


def _matrix_pair(op, ta, tb, m, k, n):
    """Shapes of (other, like) of a gradient of a product (M, K) x (K, N)."""
    lhs, rhs = (k, m) if ta else (m, k), (n, k) if tb else (k, n)
    return (rhs, lhs) if op is ops.DotToLhs else (lhs, rhs)


def _moments(a, x):
    import torch

    var, mean = torch.var_mean(x, a.axes, correction=0, keepdim=a.keepdims)
    return mean, var


def _truth(name):
    """PyTorch's function of that name, true and false as 1 and 0."""

    def call(a, *tensors):
        import torch

        return getattr(torch, name)(*tensors).to(tensors[0].dtype)

    return call


def _along(name):
    def call(a, x):
        import torch

        return getattr(torch, name)(x, a.axis)

    return call


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


def _unary(op, torch=None, make=normal, **more):
    """A function of one array; `torch` names PyTorch's."""
    if isinstance(torch, str):
        more["torch"] = _torch(torch)
    elif torch is not None:
        more["torch"] = torch
    fill = {"data": make}
    return {
        op.op_name: Case(op, more.pop("attrs", {}), shapes=[(3, 4)], make=fill, **more),
    }


def _torch(name):
    def call(a, *tensors):
        import torch

        place = torch
        for part in name.split("."):
            place = getattr(place, part)
        return place(*tensors)

    return call


def _above_one(rng, shape):
    return rng.uniform(1.2, 3.0, shape)


def _inside(rng, shape):
    return rng.uniform(-0.9, 0.9, shape)


def _either_side(rng, shape):
    """Numbers in [-3.4, 4) that keep away from 0 and the whole numbers below it."""
    return rng.integers(-4, 4, shape) + rng.uniform(0.2, 0.8, shape)


ROWS: dict[str, Case] = {
    "_bits_like": Case(
        ops.BitsLike,
        {},
        [(2,), (3, 4)],
        dtypes={"data": "uint8"},
        make={"data": integers(0, 256)},
        empty=False,
        large=[(40_000,), (400, 800)],
    ),
    **_broadcast(ops.broadcast_hypot, positive, torch=_torch("hypot")),
    **_broadcast(ops.arctan2, torch=_torch("atan2")),
    **_broadcast(ops.fmod, fractions, torch=_torch("fmod"), tolerance=1e-5, tolerance32=1e-3),
    # -- functions of one array
    **_unary(ops.tan, "tan", _inside),
    **_unary(ops.arcsin, "asin", _inside),
    **_unary(ops.arccos, "acos", _inside),
    **_unary(ops.arctan, "atan"),
    **_unary(ops.sinh, "sinh"),
    **_unary(ops.cosh, "cosh"),
    **_unary(ops.arcsinh, "asinh"),
    **_unary(ops.arccosh, "acosh", _above_one),
    **_unary(ops.arctanh, "atanh", _inside),
    **_unary(ops.degrees, "rad2deg"),
    **_unary(ops.radians, "deg2rad"),
    **_unary(ops.log2, "log2", positive),
    **_unary(ops.log10, "log10", positive),
    **_unary(ops.cbrt, lambda a, x: x.sign() * x.abs() ** (1 / 3), apart),
    **_unary(ops.rcbrt, lambda a, x: x.sign() * x.abs() ** (-1 / 3), apart),
    **_unary(ops.erf, "erf"),
    **_unary(ops.erfinv, "erfinv", _inside),
    **_unary(ops.gamma, lambda a, x: x.lgamma().exp(), positive),
    "gamma-negative": Case(ops.gamma, make={"data": _either_side}, tolerance=1e-4, tolerance32=1e-3),
    **_unary(ops.gammaln, "lgamma", _either_side),
    **_unary(ops.digamma, "digamma", _either_side, tolerance32=1e-3),
    **_unary(ops.polygamma, lambda a, x: x.polygamma(a.n), positive, attrs={"n": 2}),
    "polygamma-negative": Case(
        ops.polygamma, {"n": 1}, make={"data": _either_side}, tolerance=1e-4, tolerance32=1e-3
    ),
    **_unary(ops.trunc, "trunc", fractions),
    **_unary(ops.fix, "fix", fractions),
    **_unary(ops.softsign, "nn.functional.softsign", apart),
    **_unary(ops.hard_sigmoid, lambda a, x: (x * a.alpha + a.beta).clamp(0, 1), apart),
    "hard_sigmoid-steep": Case(
        ops.hard_sigmoid,
        {"alpha": 0.7, "beta": 0.4},
        make={"data": apart},
        torch=lambda a, x: (x * a.alpha + a.beta).clamp(0, 1),
    ),
    "allclose": Case(ops._contrib_allclose, {"rtol": 5.0, "atol": 50.0}, [(3, 4)] * 2),
    "allclose-apart": Case(ops._contrib_allclose, {}, [(3, 4)] * 2),
    "quadratic": Case(
        ops._contrib_quadratic,
        {"a": 0.5, "b": -2.0, "c": 3.0},
        torch=lambda a, x: a.a * x * x + a.b * x + a.c,
    ),
    "erf-far": Case(ops.erf, {}, [(5, 8)], make={"data": lambda rng, s: 4 * rng.standard_normal(s)}),
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
    # -- reductions
    **_reduce(ops.nansum, "nansum", _holes),
    **_reduce(ops.nanprod, "_nanprod", _holes, tolerance=1e-5),
    **_reduce(ops.logsumexp, "logsumexp"),
    **_reduce(ops.any, "any", few, grad_inputs=()),
    **_reduce(ops.all, "all", few, grad_inputs=()),
    "any-bool": Case(ops.any, {"axis": 1}, [(3, 4)], dtype="bool", make={"data": integers(0, 2)}),
    "logsumexp-large": Case(
        ops.logsumexp, {"axis": 1}, [(3, 4)], make={"data": lambda rng, s: 1e3 * rng.standard_normal(s)}
    ),
    **{
        f"{op.op_name}-exclude{'-keepdims' * keep}": Case(
            op, {"axis": (1,), "exclude": True, "keepdims": keep}, [(2, 3, 4)], make={"data": positive}
        )
        for op in (ops.mean, ops.prod, ops.max, ops.min, ops.nansum, ops.nanprod, ops.logsumexp)
        for keep in (False, True)
    },
    "norm-1-all": Case(
        ops.norm, {"ord": 1}, [(3, 4)], make={"data": apart}, torch=lambda a, x: x.abs().sum().reshape(1)
    ),
    "norm-keepdims-two": Case(
        ops.norm,
        {"axis": (0, 1), "keepdims": True},
        torch=lambda a, x: x.norm().reshape(1, 1),
    ),
    "norm-out-dtype": Case(ops.norm, {"axis": 1, "out_dtype": "float64"}),
    "moments": Case(ops.moments, {"axes": (0, 2)}, [(2, 3, 4)], torch=_moments),
    "moments-keepdims": Case(ops.moments, {"axes": (-1,), "keepdims": True}, [(3, 4)], torch=_moments),
    "moments-all": Case(ops.moments, {}, [(3, 4)], mxnet="MXNet wants all axes named"),
    "argmax_channel": Case(ops.argmax_channel, {}, [(3, 4)]),
    "argmax_channel-4d": Case(ops.argmax_channel, {}, [(2, 3, 4, 5)]),
    "_spread_like": Case(ops.SpreadLike, {"axis": (1,)}, [(2, 4), (2, 3, 4)]),
    "_spread_like-all": Case(ops.SpreadLike, {}, [(1,), (3, 4)], large=[(1,), (300_000, 1)]),
    "_spread_like-mean": Case(
        ops.SpreadLike,
        {"axis": (1,), "exclude": True, "mean": True},
        [(3,), (2, 3, 4)],
        large=[(3,), (30_000, 3, 4)],
        empty=False,
    ),
    "_spread_like-keepdims": Case(
        ops.SpreadLike,
        {"axis": (0,), "keepdims": True},
        [(1, 4), (3, 4)],
        large=[(1, 4), (90_000, 4)],
        empty=False,
    ),
    # -- running totals
    **{
        f"{op.op_name}{name}": Case(op, attrs, [shape], make={"a": make}, torch=torch, tolerance=1e-5)
        for op, torch_name, make in ((ops.cumsum, "cumsum", normal), (ops.cumprod, "cumprod", positive))
        for name, attrs, shape, torch in (
            ("", {}, (3, 4), None),
            ("-first", {"axis": 0}, (3, 4), _along(torch_name)),
            ("-last", {"axis": -1}, (2, 3, 4), _along(torch_name)),
            ("-middle", {"axis": 1}, (2, 3, 4), _along(torch_name)),
            ("-reverse", {"axis": 1, "reverse": True}, (3, 4), None),
            ("-exclusive", {"axis": 1, "exclusive": True}, (3, 4), None),
        )
    },
    "cumsum-dtype": Case(ops.cumsum, {"axis": 1, "dtype": "float64"}),
    "cumsum-int": Case(ops.cumsum, {"axis": 0}, dtype="int32", make={"a": integers(-5, 6)}),
    # -- products
    **{
        f"{op.op_name}{'-ta' * ta}{'-tb' * tb}": Case(
            op,
            {"transpose_a": ta, "transpose_b": tb},
            [(3, 5), other, like],
            empty=False,
            large=[(900, 700), *_matrix_pair(op, ta, tb, 900, 400, 700)],
        )
        for ta in (False, True)
        for tb in (False, True)
        for op in (ops.DotToLhs, ops.DotToRhs)
        for other, like in [_matrix_pair(op, ta, tb, 3, 4, 5)]
    },
    # -- logic
    **_broadcast(ops.broadcast_logical_and, few, torch=_truth("logical_and")),
    **_broadcast(ops.broadcast_logical_or, few, torch=_truth("logical_or")),
    **_broadcast(ops.broadcast_logical_xor, few, torch=_truth("logical_xor")),
    **_bool(ops.broadcast_logical_and),
    **_bool(ops.broadcast_logical_xor),
    **_bool(ops.broadcast_equal),
    **_bool(ops.logical_not),
    **_scalar(ops._logical_and_scalar, 1.0, few),
    **_scalar(ops._logical_or_scalar, 0.0, few),
    **_scalar(ops._logical_xor_scalar, 1.0, few),
    "logical_not": Case(ops.logical_not, make={"data": few}, torch=_truth("logical_not")),
    "isnan": Case(ops.isnan, dtype="float32", make={"data": _strange}, torch=_truth("isnan")),
    "isinf": Case(ops.isinf, dtype="float32", make={"data": _strange}, torch=_truth("isinf")),
    "isfinite": Case(ops.isfinite, dtype="float32", make={"data": _strange}, torch=_truth("isfinite")),
    **_whole(ops.isnan),
    **_whole(ops.bitwise_and, torch=_torch("bitwise_and")),
    **_whole(ops.bitwise_or, torch=_torch("bitwise_or")),
    **_whole(ops.bitwise_xor, torch=_torch("bitwise_xor")),
    **_whole(ops.bitwise_not, torch=_torch("bitwise_not")),
    **_whole(ops.bitwise_not, "uint8", 0),
    **_bool(ops.bitwise_and),
    **_bool(ops.bitwise_not),
    "left_shift": Case(
        ops.left_shift,
        {},
        [(3, 4), (1, 4)],
        dtype="int32",
        make={"lhs": integers(-9, 9), "rhs": integers(0, 5)},
        torch=_torch("bitwise_left_shift"),
    ),
    "right_shift": Case(
        ops.right_shift,
        {},
        [(3, 4), (1, 4)],
        dtype="int64",
        make={"lhs": integers(-9, 9), "rhs": integers(0, 5)},
        torch=_torch("bitwise_right_shift"),
    ),
    # -- an array and a number
    **_scalar(ops._hypot_scalar, 1.5),
    **_scalar(ops.smooth_l1, 1.0),
    **_scalar(ops.smooth_l1, 3.0, apart),
    **_whole(ops.broadcast_power),
    "histogram": Case(ops.find_op("_histogram"), {"bin_cnt": 4, "range": (-1.0, 1.5)}, [(3, 4)]),
    "histogram-long": Case(
        ops.find_op("_histogram"), {"bin_cnt": 3, "range": (-1.0, 1.0)}, [(3, 3000)], large=[(900, 3000)]
    ),
    "histogram-edges": Case(
        ops.find_op("_histogram"),
        {},
        [(3, 4), (4,)],
        make={"bins": constant([-1, -0.25, 0.5, 2])},
        empty=False,
    ),
}
