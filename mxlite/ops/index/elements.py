"""Elements by index along one axis, and back."""

from __future__ import annotations

from math import prod
from typing import Any

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import Op
from ..blocks import copy
from ..shape.reshape import axis_of
from .places import add_into, along_bytes, from_end, is_small_float, places_along, require_ends
from .scatter import as_rows, Reduction, Scatter, scatter, scatter_gradient, written_derivative


class take_along_axis(Op):
    """Elements by index along `axis`, ``out[i, j] = data[i, indices[i, j]]`` for `axis` 1.

    data: (...);  indices: as many axes, none longer but for `axis`, in any dtype  ->  out: as `indices`.
    Indices are in [-K, K) for an axis of length K, negative ones count from its end (numpy.take_along_axis,
    torch.gather, ONNX GatherElements). The gradient of `data` adds up; `indices` have none.
    """

    aliases = ("gather_elements",)
    inputs = ("data", "indices")
    flops_per_output = 0
    same_type = ("data",)

    @record
    class Attrs:
        axis: int = 0

    @staticmethod
    def infer_shape(a, data, indices):
        return (data, indices), (_along(a, data, indices),)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return along_bytes(inputs[1])

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return along_bytes(inputs[1]) + (4 * prod(inputs[0]) if is_small_float(dtype) else 0)

    checked = "indices"

    @staticmethod
    def compute(t, a, data, indices):
        views = _declared(t, a, data, indices)
        if views is None:
            return None
        whole, index, _ = views
        return {"out": t.pick(whole, index, 1)}

    @classmethod
    def compute_check(cls, xp, a, shapes, indices):
        require_ends(xp, indices, shapes["data"][a.axis], cls.op_name)

    @staticmethod
    def forward(xp, a, data, indices, *, out, work):
        places = _elements(xp, a, data.shape, indices, work, "take_along_axis")
        if out.size:
            xp.take(data.reshape(-1), places, out=out.reshape(-1), mode="clip")

    @staticmethod
    def backward(xp, a, d_out, indices, *, d_data, work):
        places = _elements(xp, a, d_data.shape, indices, work, "take_along_axis")
        d_data.fill(0)
        rest = work[along_bytes(indices.shape) :]
        add_into(xp, d_data.reshape(1, -1, 1), places, d_out.reshape(1, -1, 1), rest)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        zeros = w.zeros_like(ins["data"])
        return {"data": w.scatter_elements(zeros, ins["indices"], heads["out"], axis=a.axis, reduction="add")}


def _along(a: Any, data: Any, indices: Any) -> Any:
    axis = axis_of(a.axis, len(data))
    if len(indices) != len(data) or any(n > d for i, (n, d) in enumerate(zip(indices, data)) if i != axis):
        raise ShapeError(f"indices {indices} must not be longer than data {data} but along axis {a.axis}.")
    if not data[axis] and prod(indices):
        raise ShapeError(f"axis {a.axis} of data {data} has nothing that indices {indices} could name.")
    return indices


def _declared(t: Any, a: Any, data: Any, indices: Any) -> tuple[Any, Any, Shape] | None:
    """Data (A, K, 1, B), whole numbers of the indices (A, 1, n, B), and their shape; None if other axes of
    the indices are shorter.
    """
    axis = a.axis % len(data.shape)
    before, after = data.shape[:axis], data.shape[axis + 1 :]
    if (indices.shape[:axis], indices.shape[axis + 1 :]) != (before, after):
        return None
    length, shape = data.shape[axis], (prod(before), 1, indices.shape[axis], prod(after))
    index = from_end(t, t.view(indices, shape), length)
    return t.view(data, (shape[0], length, 1, shape[3])), index, shape


def _elements(xp: Any, a: Any, shape: Any, indices: Any, work: Any, what: str) -> Any:
    return places_along(xp, indices, shape, a.axis % len(shape), "ends", work, what)


class scatter_elements(Scatter):
    """`data` with elements changed by index along `axis`; ``out[i, indices[i, j]] = updates[i, j]`` for 1.

    data: (...);  indices: as many axes, none longer but for `axis`, in any dtype;  updates: as `indices`
    ->  out: as `data`. Indices are in [-K, K). reduction: the combination of an update and the old element:
    "none" the update, "add", "mul", "min", "max" (ONNX ScatterElements, torch.scatter_reduce). With "none"
    the last of several updates stays, and each gets the whole gradient; with "min" and "max" equals share.
    """

    @record
    class Attrs:
        axis: int = 0
        reduction: Reduction = "none"

    @staticmethod
    def infer_shape(a, data, indices, updates):
        _along(a, data, indices)
        if updates != indices:
            raise ShapeError(f"updates must be as indices {indices}, got {updates}.")
        return (data, indices, updates), (data,)

    checked = "indices"

    @staticmethod
    def compute(t, a, data, indices, updates):
        views = _declared(t, a, data, indices) if a.reduction == "add" else None
        if views is None:
            return None
        whole, index, shape = views
        return {"out": t.add_at(whole, index, t.view(updates, shape), 1)}

    @classmethod
    def compute_check(cls, xp, a, shapes, indices):
        require_ends(xp, indices, shapes["data"][a.axis], cls.op_name)

    @staticmethod
    def forward(xp, a, data, indices, updates, *, out, work):
        places = _elements(xp, a, data.shape, indices, work, "scatter_elements")
        copy(xp, data, out)
        rest = work[along_bytes(indices.shape) :]
        scatter(xp, a.reduction, out.reshape(-1, 1), places, updates.reshape(-1, 1), rest)

    @staticmethod
    def backward(xp, a, d_out, data, indices, updates, out, *, d_data, d_updates, work):
        places = _elements(xp, a, d_out.shape, indices, work, "scatter_elements")
        arrays, wanted = as_rows((d_out, data, updates, out), 1), as_rows((d_data, d_updates), 1)
        scatter_gradient(xp, a.reduction, arrays, places, wanted, work[along_bytes(indices.shape) :])

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        taken = w.take_along_axis(heads["out"], ins["indices"], axis=a.axis)
        return written_derivative(w, a, ins, outs, heads, taken)
