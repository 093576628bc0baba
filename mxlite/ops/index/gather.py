"""Slices by multi-dimensional indices, and back. Indices have their coordinates along axis 0, as in MXNet."""

from __future__ import annotations

from math import prod
from typing import Any

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..blocks import copy
from .places import add_into, bounded, from_end, is_small_float, require_ends, whole
from .scatter import (
    as_rows,
    gradient_bytes,
    Reduction,
    Scatter,
    scatter,
    scatter_gradient,
    written_derivative,
)


class gather_nd(Op):
    """Slices by multi-dimensional indices, ``out[j] = data[indices[0, j], indices[1, j], ...]``.

    data: (D0, ..., DM-1, B...);  indices: (M, I...) in any dtype  ->  out: (I..., B...). Indices are in
    [-D, D), negative ones count from the end of their axis. The gradient of `data` adds up; `indices` have
    none.
    """

    inputs = ("data", "indices")
    flops_per_output = 0
    same_type = ("data",)

    @staticmethod
    def infer_shape(a, data, indices):
        return (data, indices), (_named(data, indices, "data"),)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return _place_bytes(inputs[1])

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return _place_bytes(inputs[1]) + (4 * prod(inputs[0]) if is_small_float(dtype) else 0)

    checked = "indices"

    @staticmethod
    def compute(t, a, data, indices):
        rows, place, _ = _declared(t, data, indices)
        return {"out": t.pick(rows, place, 1)}

    @classmethod
    def compute_check(cls, xp, a, shapes, indices):
        _check(xp, shapes["data"], indices, cls.op_name)

    @staticmethod
    def forward(xp, a, data, indices, *, out, work):
        places, width = _row_places(xp, data.shape, indices, work, "gather_nd")
        _take_rows(xp, data, places, width, out)

    @staticmethod
    def backward(xp, a, d_out, indices, *, d_data, work):
        places, width = _row_places(xp, d_data.shape, indices, work, "gather_nd")
        d_data.fill(0)
        target, source = as_rows((d_data, d_out), width)
        add_into(xp, target[None], places, source[None], work[_place_bytes(indices.shape) :])

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        zeros = w.zeros_like(ins["data"])
        return {"data": w.scatter_nd_update(zeros, ins["indices"], heads["out"], reduction="add")}


def _declared(t: Any, data: Any, indices: Any) -> tuple[Any, Any, Any]:
    """Data as rows (1, K, 1, B), the numbers of those that indices select (1, 1, n, 1), and (1, 1, n, B)."""
    depth, count = indices.shape[0], prod(indices.shape[1:])
    coordinates = t.view(indices, (depth, 1, count, 1))
    place = None
    for axis, length in enumerate(data.shape[:depth]):
        at = from_end(t, t.pick(coordinates, t.broadcast(float(axis), (1, 1, count, 1)), 0), length)
        place = at if place is None else place * float(length) + at
    width = prod(data.shape[depth:])
    return t.view(data, (1, prod(data.shape[:depth]), 1, width)), place, (1, 1, count, width)


def _check(xp: Any, data: Any, indices: Any, what: str) -> None:
    for length, part in zip(data, indices):
        require_ends(xp, part, length, what)


def _named(data: Any, indices: Any, what: str) -> Any:
    """The shape of the slices that `indices` select."""
    if not indices or not 1 <= indices[0] <= len(data):
        raise ShapeError(f"indices must be (M, ...) with M up to the axes of {what} {data}, got {indices}.")
    if not prod(data[: indices[0]]) and prod(indices[1:]):
        raise ShapeError(f"{what} {data} has nothing that indices {indices} could name.")
    return (*indices[1:], *data[indices[0] :])


def _place_bytes(indices: Any) -> int:
    return 16 * prod(indices[1:])


def _row_places(xp: Any, shape: Any, indices: Any, work: Any, what: str) -> tuple[Any, int]:
    """Flat row numbers, in `work`, and the elements of a row, in an array of `shape`."""
    depth, n = indices.shape[0], prod(indices.shape[1:])
    places = work[: 8 * n].view("int64")
    places.fill(0)
    for axis in range(depth):
        flat = bounded(xp, whole(xp, indices[axis], work[8 * n :]), shape[axis], "ends", what)
        xp.multiply(places, shape[axis], out=places)
        xp.add(places, flat, out=places)
    return places, prod(shape[depth:])


def _take_rows(xp: Any, data: Any, places: Any, width: int, out: Any) -> None:
    if out.size:
        xp.take(data.reshape(-1, width), places, axis=0, out=out.reshape(-1, width), mode="clip")


class scatter_nd(Op):
    """Slices of `data` written into zeros at the positions in `indices`: the inverse of `gather_nd`.

    data: (I..., B...);  indices: (M, I...) in any dtype  ->  out: `shape`, (D0, ..., DM-1, B...). If a
    position is repeated the last slice stays, and each gets the whole gradient.
    """

    inputs = ("data", "indices")
    flops_per_output = 0
    same_type = ("data",)

    @record
    class Attrs:
        shape: tuple[int, ...]

    @staticmethod
    def infer_shape(a, data, indices):
        wanted = _named(a.shape, indices, "shape")
        if data != wanted:
            raise ShapeError(f"data must be {wanted} for indices {indices} and shape {a.shape}, got {data}.")
        return (data, indices), (a.shape,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return _place_bytes(inputs[1])

    backward_workspace = workspace

    @staticmethod
    def forward(xp, a, data, indices, *, out, work):
        places, width = _row_places(xp, a.shape, indices, work, "scatter_nd")
        out.fill(0)
        target, source = as_rows((out, data), width)
        if source.size:
            target[places] = source

    @staticmethod
    def backward(xp, a, d_out, indices, *, d_data, work):
        places, width = _row_places(xp, a.shape, indices, work, "scatter_nd")
        _take_rows(xp, d_out, places, width, d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.gather_nd(heads["out"], ins["indices"])}


class scatter_nd_update(Scatter):
    """`data` with slices changed at the positions in `indices`.

    data: (D0, ..., DM-1, B...);  indices: (M, I...) in any dtype, in [-D, D);  updates: (I..., B...)
    ->  out: as `data`.
    reduction: as in `scatter_elements` (ONNX ScatterND, whose indices have M as their last axis).
    """

    inferred = ("updates",)

    @record
    class Attrs:
        reduction: Reduction = "none"

    @staticmethod
    def infer_shape(a, data, indices, updates=None):
        return (data, indices, _named(data, indices, "data")), (data,)

    @classmethod
    def workspace(cls, a, inputs, outputs, dtype):
        wide = a.reduction in ("add", "mul") and is_small_float(dtype)
        return _place_bytes(inputs[1]) + (4 * prod(inputs[0]) if wide else 0)

    @classmethod
    def backward_workspace(cls, a, inputs, outputs, dtype):
        return _place_bytes(inputs[1]) + gradient_bytes(a.reduction, inputs[0], dtype)

    checked = "indices"

    @staticmethod
    def compute(t, a, data, indices, updates):
        if a.reduction != "add":
            return None
        rows, place, shape = _declared(t, data, indices)
        return {"out": t.add_at(rows, place, t.view(updates, shape), 1)}

    @classmethod
    def compute_check(cls, xp, a, shapes, indices):
        _check(xp, shapes["data"], indices, cls.op_name)

    @staticmethod
    def forward(xp, a, data, indices, updates, *, out, work):
        places, width = _row_places(xp, data.shape, indices, work, "scatter_nd_update")
        copy(xp, data, out)
        target, source = as_rows((out, updates), width)
        scatter(xp, a.reduction, target, places, source, work[_place_bytes(indices.shape) :])

    @staticmethod
    def backward(xp, a, d_out, data, indices, updates, out, *, d_data, d_updates, work):
        places, width = _row_places(xp, d_out.shape, indices, work, "scatter_nd_update")
        arrays, wanted = as_rows((d_out, data, updates, out), width), as_rows((d_data, d_updates), width)
        scatter_gradient(xp, a.reduction, arrays, places, wanted, work[_place_bytes(indices.shape) :])

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return written_derivative(w, a, ins, outs, heads, w.gather_nd(heads["out"], ins["indices"]))


class ScatterSetNd(Op):
    """`lhs` with the slices of `rhs` written to the positions in `indices`.

    lhs: (D0, ..., DM-1, B...), which is `shape`;  rhs: (I..., B...);  indices: (M, I...)  ->  out: as `lhs`.
    If a position is repeated the last slice stays. (`scatter_nd_update` with MXNet's order of inputs.)
    """

    op_name = "_scatter_set_nd"
    inputs = ("lhs", "rhs", "indices")
    in_place = {"out": "lhs"}
    backward_in_place = {"d_lhs": "d_out"}
    flops_per_output = 0
    same_type = ("lhs", "rhs")

    @record
    class Attrs:
        shape: tuple[int, ...]

    @staticmethod
    def infer_shape(a, lhs, rhs, indices):
        wanted = _named(lhs, indices, "lhs")
        if lhs != a.shape or rhs != wanted:
            raise ShapeError(f"lhs must be shape {a.shape} and rhs {wanted}, got {lhs} and {rhs}.")
        return (lhs, rhs, indices), (lhs,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return _place_bytes(inputs[2])

    backward_workspace = workspace

    @staticmethod
    def forward(xp, a, lhs, rhs, indices, *, out, work):
        places, width = _row_places(xp, lhs.shape, indices, work, "_scatter_set_nd")
        copy(xp, lhs, out)
        target, source = as_rows((out, rhs), width)
        if source.size:
            target[places] = source

    @staticmethod
    def backward(xp, a, d_out, indices, *, d_lhs, d_rhs, work):
        places, width = _row_places(xp, d_out.shape, indices, work, "_scatter_set_nd")
        if d_rhs is not None:
            _take_rows(xp, d_out, places, width, d_rhs)
        if d_lhs is not None:
            copy(xp, d_out, d_lhs)
            if d_lhs.size:
                as_rows((d_lhs,), width)[0][places] = 0

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        zeros = w.zeros_like(ins["rhs"])
        return {
            "lhs": w._scatter_set_nd(heads["out"], zeros, ins["indices"], shape=a.shape),
            "rhs": w.gather_nd(heads["out"], ins["indices"]),
        }
