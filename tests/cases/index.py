"""Rows of the operators that look up, write by number, and sort."""

from __future__ import annotations

import numpy as np

from mxlite import ops
from tests.conformance.case import apart, Case, few, integers

try:
    import torch
    import torch.nn.functional as F
except ImportError:  # the rows do without
    torch = F = None


def distinct(n):
    """Numbers in [0, n), all different."""
    return lambda rng, shape: rng.permutation(n)[: int(np.prod(shape))].reshape(shape).astype(float)


def _in_range(a, index, n):
    index = index.trunc().long()
    return index % n if getattr(a, "mode", "clip") == "wrap" else index.clamp(0, n - 1)


def _embedding(a, data, weight):
    return F.embedding(_in_range(a, data, a.input_dim), weight)


def _take(a, x, indices):
    axis = a.axis % x.ndim
    flat = _in_range(a, indices, x.shape[axis]).reshape(-1)
    return x.index_select(axis, flat).reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _index_add(a, x, indices, updates):
    axis = a.axis % x.ndim
    flat = _in_range(a, indices, x.shape[axis]).reshape(-1)
    rows = updates.reshape(*x.shape[:axis], len(flat), *x.shape[axis + 1 :])
    return x.index_add(axis, flat, rows)


def _kept(a, x, index):
    axis = a.axis % x.ndim
    kept = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return _in_range(a, index, x.shape[axis]).reshape(kept), kept, axis


def _pick(a, x, index):
    index, _, axis = _kept(a, x, index)
    out = x.gather(axis, index)
    return out if a.keepdims else out.squeeze(axis).reshape(out.squeeze(axis).shape or (1,))


def _pick_add(a, x, index, updates):
    index, kept, axis = _kept(a, x, index)
    return x.scatter_add(axis, index, updates.reshape(kept))


def _rows(x, index):
    return index.trunc().long().clamp(0, x.shape[1] - 1)[:, None]


def _wrapped(index, n):
    return index.trunc().long() % n


def _scatter_elements(a, x, index, updates):
    index = _wrapped(index, x.shape[a.axis])
    if a.reduction == "none":
        return x.scatter(a.axis, index, updates)
    name = {"add": "sum", "mul": "prod", "min": "amin", "max": "amax"}[a.reduction]
    return x.scatter_reduce(a.axis, index, updates, name)


def _coordinates(shape, indices):
    return tuple(_wrapped(i, n) for i, n in zip(indices, shape))


def _gather_nd(a, x, indices):
    return x[_coordinates(x.shape, indices)]


def _put(a, x, indices, updates):
    at = _coordinates(x.shape, indices)
    if getattr(a, "reduction", "none") == "none":
        return x.index_put(at, updates)
    if a.reduction == "add":
        return x.index_put(at, updates, accumulate=True)
    depth = len(at)
    rows = int(np.prod(x.shape[:depth]))
    place = sum(i * int(np.prod(x.shape[k + 1 : depth])) for k, i in enumerate(at)).reshape(-1)
    flat, given = x.reshape(rows, -1), updates.reshape(len(place), -1)
    name = {"mul": "prod", "min": "amin", "max": "amax"}[a.reduction]
    return flat.scatter_reduce(0, place[:, None].expand_as(given), given, name).reshape(x.shape)


def _one_hot(a, index):
    index = index.trunc().long()
    hit = index[..., None] == torch.arange(a.depth)
    return torch.where(hit, a.on_value, a.off_value).to(getattr(torch, a.dtype))


def _where(a, condition, x, y):
    c = (condition != 0).reshape(*condition.shape, *(1,) * (x.ndim - condition.ndim))
    return torch.where(c, x, y)


def _sort(a, x):
    x = x.reshape(-1) if a.axis is None else x
    return x.sort(dim=-1 if a.axis is None else a.axis, descending=not a.is_ascend, stable=True)


def _topk(a, x):
    axis = 0 if a.axis is None else a.axis
    flat = x.reshape(-1) if a.axis is None else x
    values, indices = flat.topk(a.k or flat.shape[axis], axis, largest=not a.is_ascend)
    indices = indices.to(getattr(torch, a.dtype))
    return {"value": values, "indices": indices, "both": (values, indices)}[a.ret_typ]


def _mask(a, x):
    axis = 0 if a.axis is None else a.axis
    flat = x.reshape(-1) if a.axis is None else x
    where = flat.topk(a.k, axis, largest=not a.is_ascend).indices
    return torch.zeros_like(flat).scatter(axis, where, 1.0).reshape(x.shape)


_NO_NAME = "MXNet has no such name"
_INTS = {"int32": "int32", "int64": "int64", "uint8": "uint8", "float32": "float32"}

_TABLES = {
    "Embedding": Case(
        ops.Embedding,
        {"input_dim": 5, "output_dim": 3},
        [(2, 4), (5, 3)],
        make={"data": integers(-1, 7)},
        torch=_embedding,
    ),
    "Embedding-int": Case(
        ops.Embedding,
        {"input_dim": 5, "output_dim": 3},
        [(6,), (5, 3)],
        dtypes={"data": "int32"},
        make={"data": integers(0, 5)},
        large=[(3000, 40), (5, 3)],
        torch=_embedding,
    ),
    "Embedding-wide": Case(
        ops.Embedding,
        {"input_dim": 4, "output_dim": 5000},
        [(2, 3), (4, 5000)],
        make={"data": integers(0, 4)},
        large=[(20, 3), (4, 5000)],
        torch=_embedding,
    ),
    "_contrib_SparseEmbedding": Case(
        ops.ContribSparseEmbedding,
        {"input_dim": 5, "output_dim": 3, "deterministic": True},
        [(2, 4), (5, 3)],
        make={"data": integers(0, 5)},
        torch=_embedding,
        mxnet="MXNet 1.9.1 no longer knows 'deterministic'",
    ),
    "take": Case(
        ops.take,
        {},
        [(5, 3), (2, 4)],
        make={"indices": integers(-2, 8)},
        large=[(2000, 200), (40, 50)],
        torch=_take,
    ),
    "take-axis": Case(
        ops.take,
        {"axis": 1, "mode": "wrap"},
        [(2, 5, 3), (4,)],
        make={"indices": integers(-7, 12)},
        torch=_take,
    ),
    "take-raise": Case(
        ops.take,
        {"axis": -1, "mode": "raise"},
        [(2, 5), (4,)],
        make={"indices": integers(0, 5)},
        torch=_take,
    ),
    **{
        f"take-{kind}": Case(
            ops.take,
            {},
            [(5, 3), (4,)],
            dtypes={"indices": kind},
            make={"indices": integers(0, 5)},
            torch=_take,
            large=[(80_000, 3), (4,)],
        )
        for kind in _INTS
    },
    "index_add": Case(
        ops.index_add,
        {},
        [(5, 3), (2, 4), (2, 4, 3)],
        make={"indices": integers(-2, 8)},
        torch=_index_add,
        mxnet=_NO_NAME,
        large=[(5, 3), (100, 900), (100, 900, 3)],
    ),
    "index_add-axis": Case(
        ops.index_add,
        {"axis": -1, "mode": "wrap"},
        [(4, 2, 5), (3,), (4, 2, 3)],
        make={"indices": integers(-7, 12)},
        torch=_index_add,
        mxnet=_NO_NAME,
    ),
    "batch_take": Case(
        ops.batch_take,
        {},
        [(3, 4), (3,)],
        dtypes={"indices": "int32"},
        make={"indices": integers(-1, 6)},
        torch=lambda a, x, i: x.gather(1, _rows(x, i)).reshape(-1),
    ),
    "_contrib_index_copy": Case(
        ops.ContribIndexCopy,
        {},
        [(5, 3), (2,), (2, 3)],
        dtypes={"index_vector": "int64"},
        make={"index_vector": distinct(5)},
        torch=lambda a, x, i, y: x.index_copy(0, i.long(), y),
        empty=False,
        large=[(90_000, 4), (2,), (2, 4)],
    ),
    "pick": Case(ops.pick, {}, [(3, 4), (3,)], make={"index": integers(-1, 6)}, torch=_pick),
    "pick-axis": Case(
        ops.pick,
        {"axis": 1, "mode": "wrap", "keepdims": True},
        [(2, 3, 4), (2, 4)],
        make={"index": integers(-5, 6)},
        torch=_pick,
    ),
    "pick-vector": Case(
        ops.pick,
        {"axis": 0},
        [(4,), (1,)],
        make={"index": integers(0, 4)},
        torch=_pick,
        empty=False,
        large=[(300_000,), (1,)],
    ),
    "_pick_add": Case(
        ops.PickAdd,
        {},
        [(3, 4), (3,), (3,)],
        make={"index": integers(-1, 6)},
        torch=_pick_add,
        mxnet=_NO_NAME,
    ),
    "_pick_add-axis": Case(
        ops.PickAdd,
        {"axis": 1, "mode": "wrap", "keepdims": True},
        [(2, 3, 4), (2, 4), (2, 1, 4)],
        make={"index": integers(-5, 6)},
        torch=_pick_add,
        mxnet=_NO_NAME,
    ),
    "fill_element_0index": Case(
        ops.fill_element_0index,
        {},
        [(3, 4), (3,), (3,)],
        make={"rhs": integers(0, 4)},
        torch=lambda a, x, y, i: x.scatter(1, _rows(x, i), y[:, None]),
    ),
}

_ELEMENTS = {
    "take_along_axis": Case(
        ops.take_along_axis,
        {"axis": 1},
        [(3, 4, 2), (3, 5, 2)],
        dtypes={"indices": "int64"},
        make={"indices": integers(-4, 4)},
        torch=lambda a, x, i: x.gather(1, _wrapped(i, 4)),
        mxnet=_NO_NAME,
    ),
    "take_along_axis-shorter": Case(
        ops.take_along_axis,
        {"axis": -2},
        [(3, 4, 3), (2, 5, 2)],
        dtypes={"indices": "int64"},
        make={"indices": integers(-4, 4)},
        torch=lambda a, x, i: x.gather(1, _wrapped(i, 4)),
        mxnet=_NO_NAME,
        large=[(300, 400, 3), (200, 500, 2)],
        empty=False,
    ),
    **{
        f"scatter_elements-{reduction}": Case(
            ops.scatter_elements,
            {"axis": axis, "reduction": reduction},
            shapes,
            make={
                "indices": index,
                "data": apart,
                **({"updates": apart} if reduction in ("min", "max") else {}),
            },
            dtypes={"indices": "int64"},
            torch=_scatter_elements,
            mxnet=_NO_NAME,
            tolerance=1e-5 if reduction == "mul" else 1e-6,
            tolerance32=1e-3 if reduction == "mul" else 1e-4,
        )
        for reduction, axis, shapes, index in (
            ("none", 1, [(2, 5), (2, 1), (2, 1)], integers(-5, 5)),
            ("add", 0, [(4, 3), (6, 3), (6, 3)], integers(-4, 4)),
            ("mul", 1, [(2, 4, 2), (2, 6, 2), (2, 6, 2)], integers(-4, 4)),
            ("min", -1, [(3, 4), (3, 6), (3, 6)], integers(-4, 4)),
            ("max", 1, [(3, 4, 2), (3, 6, 2), (3, 6, 2)], integers(-4, 4)),
        )
    },
    "gather_nd": Case(
        ops.gather_nd,
        {},
        [(3, 4, 2), (2, 5)],
        dtypes={"indices": "int64"},
        make={"indices": integers(0, 3)},
        torch=_gather_nd,
        large=[(3, 4, 20_000), (2, 5)],
    ),
    "gather_nd-elements": Case(
        ops.gather_nd,
        {},
        [(3, 4), (2, 2, 3)],
        dtypes={"indices": "int64"},
        mxnet="MXNet's gradient writes outside the array for negative indices",
        make={"indices": integers(-3, 3)},
        torch=_gather_nd,
        large=[(600, 600), (2, 2, 300)],
    ),
    "scatter_nd": Case(
        ops.scatter_nd,
        {"shape": (500, 600)},
        [(4, 600), (1, 4)],
        make={"indices": distinct(500)},
        torch=lambda a, x, i: _put(a, torch.zeros(500, 600).double(), i, x),
        large=[(4, 600), (1, 4)],
        empty=False,
    ),
    "scatter_nd-elements": Case(
        ops.scatter_nd,
        {"shape": (600, 600)},
        [(3,), (2, 3)],
        make={"indices": distinct(600)},
        torch=lambda a, x, i: _put(a, torch.zeros(600, 600).double(), i, x),
        large=[(3,), (2, 3)],
        empty=False,
    ),
    "_scatter_set_nd": Case(
        ops.ScatterSetNd,
        {"shape": (500, 600)},
        [(500, 600), (4, 600), (1, 4)],
        make={"indices": distinct(500)},
        torch=lambda a, x, y, i: _put(a, x, i, y),
        mxnet="MXNet's works in place only",
        large=[(500, 600), (4, 600), (1, 4)],
        empty=False,
    ),
    **{
        f"scatter_nd_update-{reduction}": Case(
            ops.scatter_nd_update,
            {"reduction": reduction},
            shapes,
            make={
                "indices": index,
                "data": apart,
                **({"updates": apart} if reduction in ("min", "max") else {}),
            },
            dtypes={"indices": "int64"},
            torch=_put,
            mxnet=_NO_NAME,
            empty=False,
            tolerance=1e-5 if reduction == "mul" else 1e-6,
            tolerance32=1e-3 if reduction == "mul" else 1e-4,
            large=large,
        )
        for reduction, shapes, index, large in (
            ("none", [(5, 3), (1, 4), (4, 3)], distinct(5), [(90_000, 3), (1, 4), (4, 3)]),
            ("add", [(3, 4), (2, 6), (6,)], integers(-3, 3), [(600, 600), (2, 6), (6,)]),
            ("mul", [(3, 2), (1, 6), (6, 2)], integers(-3, 3), [(90_000, 4), (1, 6), (6, 4)]),
            ("min", [(3, 2), (1, 6), (6, 2)], integers(-3, 3), [(3, 5000), (1, 60), (60, 5000)]),
            ("max", [(3, 2), (1, 6), (6, 2)], integers(-3, 3), [(90_000, 4), (1, 6), (6, 4)]),
        )
    },
}

_NUMBERS = {
    "one_hot": Case(ops.one_hot, {"depth": 4}, [(3, 2)], make={"indices": integers(-1, 6)}, torch=_one_hot),
    "one_hot-none": Case(ops.one_hot, {"depth": 0}, [(3, 2)], make={"indices": integers(-1, 6)}, mxnet=False),
    "one_hot-values": Case(
        ops.one_hot,
        {"depth": 4, "on_value": 2.5, "off_value": -1, "dtype": "float64"},
        [(5,)],
        make={"indices": integers(-1, 6)},
        torch=_one_hot,
    ),
    "one_hot-whole": Case(
        ops.one_hot,
        {"depth": 3, "on_value": 2.5, "dtype": "int32"},
        [(5,)],
        make={"indices": integers(-1, 6)},
    ),
    "_onehot_encode": Case(
        ops.OnehotEncode,
        {},
        [(3,), (3, 4)],
        make={"lhs": integers(0, 4)},
        torch=lambda a, i, y: F.one_hot(i.long(), 4).to(y.dtype),
    ),
    "element_mask": Case(
        ops.element_mask,
        {},
        [(3, 4, 2), (3,)],
        make={"rhs": few},
        grad_inputs=("lhs",),
        torch=lambda a, x, m: x * m.detach()[:, None, None],
        mxnet="MXNet 1.9.1 has it no longer",
    ),
    "where": Case(ops.where, {}, [(3, 4)] * 3, make={"condition": few}),
    "where-rows": Case(
        ops.where,
        {},
        [(3,), (3, 4), (3, 4)],
        make={"condition": few},
        large=[(90_000,)] + [(90_000, 4)] * 2,
    ),
    "where-bool": Case(
        ops.where,
        {},
        [(3, 4)] * 3,
        make={"condition": few},
        dtypes={"condition": "bool"},
        torch=_where,
        mxnet="MXNet takes no bool here",
    ),
    "ravel_multi_index": Case(
        ops.ravel_multi_index,
        {"shape": (7, 6)},
        [(2, 3)],
        make={"data": integers(0, 6)},
        torch=lambda a, i: i[0] * 6 + i[1],
        large=[(2, 200_000)],
        empty=False,
    ),
    "unravel_index": Case(
        ops.unravel_index,
        {"shape": (-1, 6, 2)},
        [(5,)],
        make={"data": integers(0, 80)},
        torch=lambda a, i: torch.stack([i // 12, i // 2 % 6, i % 2]),
    ),
    "unravel_index-2d": Case(
        ops.unravel_index,
        {"shape": (7, 6)},
        [(2, 3)],
        make={"data": integers(0, 42)},
        torch=lambda a, i: torch.stack([i // 6, i % 6]),
        mxnet="MXNet gives an array that is too small",
    ),
}

_IN_ORDER = {
    "sort": Case(ops.sort, {}, [(3, 4)], make={"data": apart}, torch=lambda a, x: _sort(a, x).values),
    **{
        f"{op.op_name}-{name}": Case(op, attrs, [shape], make={"data": apart}, torch=function, large=large)
        for name, attrs, shape, large in (
            ("down", {"is_ascend": False}, (2, 5), None),
            ("first", {"axis": 0}, (4, 3), [(70_000, 3)]),
            ("inner", {"axis": 1, "is_ascend": False}, (2, 4, 3), None),
            ("flat", {"axis": None}, (3, 4), None),
            ("long", {"axis": -2}, (2, 70, 2), [(2, 70_000, 2)]),
        )
        for op, function in (
            (ops.sort, lambda a, x: _sort(a, x).values),
            (ops.argsort, lambda a, x: _sort(a, x).indices.float()),
        )
    },
    "argsort-ties": Case(
        ops.argsort,
        {"dtype": "int32"},
        [(3, 9)],
        make={"data": few},
        torch=lambda a, x: _sort(a, x).indices.int(),
    ),
    "argsort-ties-down": Case(
        ops.argsort,
        {"dtype": "int64", "is_ascend": False},
        [(3, 9)],
        make={"data": few},
        torch=lambda a, x: _sort(a, x).indices,
    ),
    **{
        f"topk-{name}": Case(
            ops.topk,
            attrs,
            [shape],
            make={"data": apart},
            torch=_mask if "mask" in name else _topk,
            large=large,
        )
        for name, attrs, shape, large in (
            ("indices", {"k": 2}, (3, 4), None),
            ("default", {}, (3, 4), None),
            ("value", {"k": 2, "ret_typ": "value"}, (3, 4), None),
            ("both", {"k": 3, "ret_typ": "both", "axis": 1, "is_ascend": True}, (2, 5, 3), None),
            ("both-int", {"k": 2, "ret_typ": "both", "dtype": "int32"}, (3, 20), [(20_000, 20)]),
            ("mask", {"k": 2, "ret_typ": "mask", "axis": 0}, (4, 3), [(70_000, 4)]),
            ("mask-flat", {"k": 3, "ret_typ": "mask", "axis": None}, (4, 3), None),
            ("all", {"k": 0, "ret_typ": "value", "axis": 0}, (4, 3), [(70_000, 4)]),
            ("flat", {"k": 3, "ret_typ": "value", "axis": None}, (4, 3), None),
            ("few", {"k": 3, "ret_typ": "both", "axis": 0}, (40, 2), [(150_000, 2)]),
        )
    },
}

ROWS: dict[str, Case] = {**_TABLES, **_ELEMENTS, **_NUMBERS, **_IN_ORDER}
