"""The rows that `conformance.py` runs: for each operator, the parameters and shapes worth trying.

A new operator needs a row here or in the file of its family, tests/cases/<family>.py, no test of its own.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from mxlite import ops
from tests import cases
from tests.conformance.case import apart, Case, few, fractions, integers, normal, positive

_WIDE = {"lhs": positive, "rhs": positive}


def _same(op, torch=None, **more):
    """A binary operator on arrays of one shape, of a vector and of one element."""
    more["torch"] = torch and _torch(torch)
    name = op.op_name
    return {
        name: Case(op, shapes=[(3, 4), (3, 4)], **more),
        f"{name}-4d": Case(op, shapes=[(2, 3, 4, 5), (2, 3, 4, 5)], **more),
        f"{name}-one": Case(op, shapes=[(1,), (1,)], **more),
    }


def _torch(name, *more):
    """That function of PyTorch, looked up when the row is run: f(*tensors, *more)."""

    def call(a, *tensors):
        import torch

        place = torch
        for part in name.split("."):
            place = getattr(place, part)
        return place(*tensors, *more)

    return call


def _unary(op, make=normal, torch=None, **more):
    name = op.op_name
    more["torch"] = torch and _torch(torch)
    return {
        name: Case(op, shapes=[(3, 4)], make={"data": make}, **more),
        f"{name}-4d": Case(op, shapes=[(2, 3, 4, 5)], make={"data": make}, **more),
    }


_BY_NUMBER = {
    "_plus_scalar": lambda a, x: x + a.scalar,
    "_minus_scalar": lambda a, x: x - a.scalar,
    "_rminus_scalar": lambda a, x: a.scalar - x,
    "_mul_scalar": lambda a, x: x * a.scalar,
    "_div_scalar": lambda a, x: x / a.scalar,
    "_rdiv_scalar": lambda a, x: a.scalar / x,
    "_power_scalar": lambda a, x: x**a.scalar,
    "_rpower_scalar": lambda a, x: a.scalar**x,
    "_maximum_scalar": lambda a, x: x.clamp(min=a.scalar),
    "_minimum_scalar": lambda a, x: x.clamp(max=a.scalar),
}


def _scalar(op, scalar, make=normal, **more):
    name = f"{op.op_name}-{scalar}"
    more.setdefault("torch", _BY_NUMBER.get(op.op_name))
    return {name: Case(op, {"scalar": scalar}, [(3, 4)], make={"data": make}, **more)}


def _broadcast(op, make=normal, torch=None, **more):
    """All the ways in which two shapes meet."""
    more["torch"] = torch and _torch(torch)
    shapes = {
        "same": [(3, 4), (3, 4)],
        "row": [(3, 4), (1, 4)],
        "column": [(3, 1), (3, 4)],
        "outer": [(3, 1), (1, 4)],
        "channel": [(2, 3, 4, 5), (1, 3, 1, 1)],
        "rank": [(4,), (2, 3, 4)],
        "one": [(3, 4), (1,)],
        "ones-first": [(1, 1, 6), (1, 5, 1)],
    }
    large = {
        "column": [(300, 1), (300, 1000)],
        "outer": [(300_000, 1), (1, 4)],
        "rank": [(4,), (25_000, 3, 4)],
        "ones-first": [(1, 1, 60), (1, 30_000, 1)],
    }
    fill = {"lhs": make, "rhs": make}
    return {
        f"{op.op_name}-{k}": Case(op, shapes=s, make=fill, large=large.get(k), **more)
        for k, s in shapes.items()
    }


def _over(name):
    """PyTorch's reduction of that name, over what MXNet's parameters say."""

    def call(a, x):
        import torch

        axes = a.axis if isinstance(a.axis, tuple) else range(x.ndim) if a.axis is None else (a.axis,)
        kept = set(range(x.ndim)) - {i % x.ndim for i in axes} if getattr(a, "exclude", False) else None
        axes = tuple(sorted({i % x.ndim for i in axes})) if kept is None else tuple(sorted(kept))
        for i in reversed(axes):
            x = (
                torch.linalg.vector_norm(x, 2, i, True)
                if name == "norm2"
                else getattr(torch, name)(x, i, True)
            )
            x = x if torch.is_tensor(x) else x[0]
        return x if a.keepdims else x.reshape([d for i, d in enumerate(x.shape) if i not in axes] or [1])

    return call


def _reduce(op, make=normal, torch=None, **more):
    more["torch"] = torch and _over(torch)
    fill = {"data": make}
    return {
        f"{op.op_name}-all": Case(op, {}, [(3, 4)], make=fill, **more),
        f"{op.op_name}-axis": Case(op, {"axis": 1}, [(2, 3, 4)], make=fill, **more),
        f"{op.op_name}-first": Case(op, {"axis": 0}, [(3, 4)], make=fill, **more),
        f"{op.op_name}-keepdims": Case(op, {"axis": -1, "keepdims": True}, [(2, 3, 4)], make=fill, **more),
    }


def _reduce_many(op, make=normal, torch=None, **more):
    fill = {"data": make}
    return {
        **_reduce(op, make, torch, **more),
        f"{op.op_name}-two": Case(
            op, {"axis": (0, 2)}, [(2, 3, 4)], make=fill, torch=torch and _over(torch), **more
        ),
    }


ROWS: dict[str, Case] = {
    **_same(ops.elemwise_add, "add"),
    **_same(ops.elemwise_sub, "sub"),
    **_same(ops.elemwise_mul, "mul"),
    **_same(ops.elemwise_div, "div", make=_WIDE),
    "add_n-1": Case(ops.add_n, {"num_args": 1}, [(3, 4)]),
    "add_n-2": Case(ops.add_n, {"num_args": 2}, [(3, 4)] * 2),
    "add_n-4": Case(ops.add_n, {"num_args": 4}, [(3, 4)] * 4),
    # -- functions of one array
    **_unary(ops.exp, torch="exp"),
    **_unary(ops.log, positive, torch="log"),
    **_unary(ops.log1p, positive, torch="log1p"),
    **_unary(ops.expm1, torch="expm1"),
    **_unary(ops.sqrt, positive, torch="sqrt"),
    **_unary(ops.rsqrt, positive, torch="rsqrt"),
    **_unary(ops.reciprocal, positive, torch="reciprocal"),
    **_unary(ops.square, torch="square"),
    **_unary(ops.abs, apart, torch="abs"),
    **_unary(ops.negative, torch="neg"),
    **_unary(ops.sin, torch="sin"),
    **_unary(ops.cos, torch="cos"),
    **_unary(ops.sign, few, torch="sign"),
    **_unary(ops.floor, fractions, torch="floor"),
    **_unary(ops.ceil, fractions, torch="ceil"),
    **_unary(ops.find_op("_contrib_round_ste"), fractions, grad_inputs=()),
    **_unary(ops.find_op("_contrib_sign_ste"), few, grad_inputs=()),
    "gradientmultiplier": Case(ops.find_op("_contrib_gradientmultiplier"), {"scalar": -0.5}, grad_inputs=()),
    **_unary(ops.round, fractions),
    **_unary(ops.rint, fractions),
    **_unary(ops.Copy),
    **_unary(ops.zeros_like),
    **_unary(ops.ones_like),
    "clip": Case(
        ops.clip,
        {"a_min": -0.8, "a_max": 0.75},
        [(5, 6)],
        make={"data": apart},
        torch=lambda a, x: x.clamp(a.a_min, a.a_max),
    ),
    "square-int": Case(ops.square, {}, [(3, 4)], dtype="int32", make={"data": integers(-5, 6)}),
    "floor-int": Case(ops.floor, {}, [(3, 4)], dtype="int32", make={"data": integers(-5, 6)}),
    # -- an array and a number
    **_scalar(ops._plus_scalar, 1.5),
    **_scalar(ops._minus_scalar, 1.5),
    **_scalar(ops._rminus_scalar, 1.5),
    **_scalar(ops._mul_scalar, -2.5),
    **_scalar(ops._div_scalar, 3.0),
    **_scalar(ops._rdiv_scalar, 3.0, positive),
    **_scalar(ops._power_scalar, 2.0),
    **_scalar(ops._power_scalar, 3.0),
    **_scalar(ops._power_scalar, -0.5, positive),
    **_scalar(ops._rpower_scalar, 2.0),
    **_scalar(ops._maximum_scalar, 0.3, apart),
    **_scalar(ops._minimum_scalar, 0.3, apart),
    **_scalar(ops._mod_scalar, 3.0, fractions),
    **_scalar(ops._mod_scalar, 0.0, grad_inputs=()),
    **_scalar(ops._rmod_scalar, 5.05, fractions, tolerance=1e-5),
    **_scalar(ops._equal_scalar, 1.0, few),
    **_scalar(ops._not_equal_scalar, 1.0, few),
    **_scalar(ops._greater_scalar, 1.0, few),
    **_scalar(ops._greater_equal_scalar, 1.0, few),
    **_scalar(ops._lesser_scalar, 1.0, few),
    **_scalar(ops._lesser_equal_scalar, 1.0, few),
    "_mul_scalar-int": Case(
        ops._mul_scalar, {"scalar": 2.5}, [(3, 4)], dtype="int32", make={"data": integers(-5, 6)}
    ),
    "_greater_scalar-int": Case(
        ops._greater_scalar, {"scalar": 1}, [(3, 4)], dtype="int64", make={"data": integers(-5, 6)}
    ),
    # -- broadcasting
    **_broadcast(ops.broadcast_add, torch="add"),
    **_broadcast(ops.broadcast_sub, torch="sub"),
    **_broadcast(ops.broadcast_mul, torch="mul"),
    **_broadcast(ops.broadcast_div, positive, torch="div"),
    **_broadcast(ops.broadcast_power, positive, torch="pow"),
    **_broadcast(ops.broadcast_maximum, torch="maximum"),
    **_broadcast(ops.broadcast_minimum, torch="minimum"),
    **_broadcast(ops.broadcast_mod, fractions, "remainder", tolerance=1e-5, tolerance32=1e-3),
    **_broadcast(ops.broadcast_equal, few),
    **_broadcast(ops.broadcast_not_equal, few),
    **_broadcast(ops.broadcast_greater, few),
    **_broadcast(ops.broadcast_greater_equal, few),
    **_broadcast(ops.broadcast_lesser, few),
    **_broadcast(ops.broadcast_lesser_equal, few),
    "broadcast_to": Case(
        ops.broadcast_to, {"shape": (0, 4, 5)}, [(3, 1, 5)], torch=lambda a, x: x.expand(3, 4, 5)
    ),
    "broadcast_to-same": Case(ops.broadcast_to, {"shape": (0, 0)}, [(3, 5)]),
    "broadcast_axis": Case(
        ops.broadcast_axis, {"axis": (0, 2), "size": (3, 4)}, [(1, 2, 1)], large=[(1, 90_000, 1)]
    ),
    # -- reductions
    **_reduce_many(ops.sum, torch="sum"),
    **_reduce_many(ops.mean, torch="mean"),
    **_reduce_many(ops.prod, positive, "prod", tolerance=1e-5),
    **_reduce_many(ops.max, apart, "max"),
    **_reduce_many(ops.min, apart, "min"),
    **_reduce_many(ops.norm, positive, "norm2"),
    "sum-exclude": Case(ops.sum, {"axis": (1,), "exclude": True}, [(2, 3, 4)]),
    "sum-int": Case(ops.sum, {"axis": 1}, [(3, 4)], dtype="int32", make={"data": integers(-5, 6)}),
    "mean-int": Case(ops.mean, {}, [(3, 4)], dtype="int32", make={"data": integers(-5, 6)}),
    "norm-1": Case(ops.norm, {"ord": 1, "axis": (0, 2)}, [(2, 3, 4)], make={"data": apart}),
    **_reduce(ops.argmax),
    **_reduce(ops.argmin),
    # -- matrices
    **{
        f"dot{'-ta' * ta}{'-tb' * tb}": Case(
            ops.dot,
            {"transpose_a": ta, "transpose_b": tb},
            [(4, 3) if ta else (3, 4), (5, 4) if tb else (4, 5)],
            large=[(400, 900) if ta else (900, 400), (5, 400) if tb else (400, 5)],
            torch=lambda a, x, y: (x.mT if a.transpose_a else x) @ (y.mT if a.transpose_b else y),
        )
        for ta in (False, True)
        for tb in (False, True)
    },
    "dot-vectors": Case(ops.dot, {}, [(4,), (4,)]),
    "dot-matrix-vector": Case(ops.dot, {}, [(3, 4), (4,)], large=[(900, 400), (400,)]),
    "dot-tensors": Case(ops.dot, {}, [(2, 3, 4), (4, 2, 2)], torch=_torch("tensordot", 1)),
    **{
        f"batch_dot{'-ta' * ta}{'-tb' * tb}": Case(
            ops.batch_dot,
            {"transpose_a": ta, "transpose_b": tb},
            [(2, 4, 3) if ta else (2, 3, 4), (2, 5, 4) if tb else (2, 4, 5)],
            torch=lambda a, x, y: (x.mT if a.transpose_a else x) @ (y.mT if a.transpose_b else y),
        )
        for ta in (False, True)
        for tb in (False, True)
    },
    "batch_dot-4d": Case(ops.batch_dot, {}, [(2, 3, 2, 4), (2, 3, 4, 5)]),
    # -- random numbers
    "_random_uniform": Case(ops.RandomUniform, {"shape": (500, 601), "dtype": "float64"}, []),
    "_random_uniform-range": Case(ops.RandomUniform, {"low": -2, "high": 3, "shape": (300_001,)}, []),
    "_random_normal": Case(ops.RandomNormal, {"loc": 1, "scale": 2, "shape": (300_001,)}, []),
}

CASES: dict[str, Case] = dict(ROWS)
"""All rows: those above, and `ROWS` of each family in tests/cases/."""

for _module in sorted(m.name for m in iter_modules(cases.__path__)):
    for _name, _row in import_module(f"{cases.__name__}.{_module}").ROWS.items():
        if _name in CASES:
            raise ValueError(f"{_module}: there is a row {_name!r} already.")
        CASES[_name] = _row
