"""Operators that take slices of an array by index, and put slices there."""

from __future__ import annotations

from math import prod
from typing import Any, Literal

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..blocks import copy
from .places import add_into, along_bytes, bounded, places_along, sum_bytes, whole


class take(Op):
    """Slices of `a` by index along `axis`.

    a: (A..., K, B...) with K at `axis`;  indices: (I...) in any dtype  ->  out: (A..., I..., B...).
    mode: "clip" moves an index out of range to the nearest end (so -1 becomes 0), "wrap" counts round,
    "raise" is an error. The gradient of `a` is dense; `indices` have none.
    """

    inputs = ("a", "indices")
    flops_per_output = 0
    same_type = ("a",)

    @record
    class Attrs:
        axis: int = 0
        mode: Literal["clip", "wrap", "raise"] = "clip"

    @staticmethod
    def infer_shape(a, array, indices):
        return (array, indices), (_taken(a, array, indices, "a"),)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return 8 * prod(inputs[1])

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return 8 * prod(inputs[1]) + sum_bytes(inputs[0], dtype)

    @staticmethod
    def compute(t, attrs, a, indices):
        outer, length, inner = _thirds(a.shape, attrs.axis)
        if attrs.mode != "clip":
            return None
        source = t.view(a, (outer, length, 1, inner))
        return {"out": t.pick(source, t.view(indices, (1, 1, prod(indices.shape), 1)), 1)}

    @staticmethod
    def forward(xp, attrs, a, indices, *, out, work):
        _take(xp, attrs, a, whole(xp, indices, work), out)

    @staticmethod
    def backward(xp, attrs, d_out, indices, *, d_a, work):
        d_a.fill(0)
        _add_slices(xp, attrs, d_a, indices, d_out, work)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        zeros = w.zeros_like(ins["a"])
        return {"a": w.index_add(zeros, ins["indices"], heads["out"], axis=a.axis, mode=a.mode)}


def _taken(a: Any, data: Any, indices: Any, what: str) -> Any:
    if not -len(data) <= a.axis < len(data):
        raise ShapeError(f"axis {a.axis} is not one of {what} {data}.")
    axis = a.axis % len(data)
    if not data[axis] and prod(indices):
        raise ShapeError(f"axis {a.axis} of {what} {data} has nothing that {indices} indices could name.")
    return (*data[:axis], *indices, *data[axis + 1 :])


def _thirds(shape: Any, axis: int) -> tuple[int, int, int]:
    """Number of elements of the axes before `axis`, along it, and after it."""
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def _take(xp: Any, attrs: Any, data: Any, flat: Any, out: Any, what: str = "take") -> None:
    """``out = data[:, flat]`` along `attrs.axis`; `flat` is changed."""
    outer, length, inner = _thirds(data.shape, attrs.axis)
    bounded(xp, flat, length, attrs.mode, what)
    if out.size:
        into = out.reshape(outer, flat.size, inner)
        xp.take(data.reshape(outer, length, inner), flat, axis=1, out=into, mode="clip")


def _add_slices(
    xp: Any, attrs: Any, target: Any, indices: Any, source: Any, work: Any, what: str = "take"
) -> None:
    """``target[:, indices] += source`` along `attrs.axis`."""
    outer, length, inner = _thirds(target.shape, attrs.axis)
    flat = bounded(xp, whole(xp, indices, work), length, attrs.mode, what)
    rest = work[8 * flat.size :]
    add_into(xp, target.reshape(outer, length, inner), flat, source.reshape(outer, flat.size, inner), rest)


class index_add(Op):
    """`data` with slices added at indices: the gradient of `take`.

    data: (A..., K, B...) with K at `axis`;  indices: (I...) in any dtype;  updates: (A..., I..., B...)
    ->  out: as `data`. A repeated index adds several times, in order. `mode` is `take`'s.
    """

    inputs = ("data", "indices", "updates")
    inferred = ("updates",)
    in_place = {"out": "data"}
    gradient_is = {"data": "d_out"}

    Attrs = take.Attrs
    same_type = ("data", "updates")

    @staticmethod
    def infer_shape(a, data, indices, updates=None):
        return (data, indices, _taken(a, data, indices, "data")), (data,)

    @staticmethod
    def flops(a, inputs, outputs):
        return prod(inputs[2])

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return 8 * prod(inputs[1]) + sum_bytes(inputs[0], dtype)

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return 8 * prod(inputs[1])

    @staticmethod
    def compute(t, a, data, indices, updates):
        if a.mode != "clip":
            return None
        outer, length, inner = _thirds(data.shape, a.axis)
        count = prod(indices.shape)
        base, terms = t.view(data, (outer, length, 1, inner)), t.view(updates, (outer, 1, count, inner))
        return {"out": t.add_at(base, t.view(indices, (1, 1, count, 1)), terms, 1)}

    @staticmethod
    def forward(xp, a, data, indices, updates, *, out, work):
        copy(xp, data, out)
        _add_slices(xp, a, out, indices, updates, work, "index_add")

    @staticmethod
    def backward(xp, a, d_out, indices, *, d_updates, work):
        _take(xp, a, d_out, whole(xp, indices, work), d_updates, "index_add")

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"updates": w.take(heads["out"], ins["indices"], axis=a.axis, mode=a.mode)}


class batch_take(Op):
    """One element of each row, ``out[i] = a[i, indices[i]]``.

    a: (N, K);  indices: (N,) in any dtype  ->  out: (N,). An index out of range is moved to the nearest end.
    The gradient of `a` is 0 at elements not taken. (`pick` does the same along any axis.)
    """

    inputs = ("a", "indices")
    inferred = ("indices",)
    flops_per_output = 0
    same_type = ("a",)

    @staticmethod
    def infer_shape(a, array, indices=None):
        if len(array) != 2:
            raise ShapeError(f"a must be (N, K), got {array}.")
        if not array[1] and array[0]:
            raise ShapeError(f"the rows of a {array} have nothing to take.")
        return (array, array[:1]), (array[:1],)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return along_bytes((inputs[0][0],))

    backward_workspace = workspace

    @staticmethod
    def compute(t, attrs, a, indices):
        return {"out": t.pick(a, t.view(indices, (*indices.shape, 1)), 1)}

    @staticmethod
    def forward(xp, attrs, a, indices, *, out, work):
        places = places_along(xp, indices[:, None], a.shape, 1, "clip", work, "batch_take")
        if out.size:
            xp.take(a.reshape(-1), places, out=out, mode="clip")

    @staticmethod
    def backward(xp, attrs, d_out, indices, *, d_a, work):
        places = places_along(xp, indices[:, None], d_a.shape, 1, "clip", work, "batch_take")
        d_a.fill(0)
        d_a.reshape(-1)[places] = d_out

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        zeros = w.zeros_like(ins["a"])
        return {"a": w._pick_add(zeros, ins["indices"], heads["out"], axis=1, mode="clip")}


class ContribIndexCopy(Op):
    """Rows overwritten by index, ``out[index_vector[i]] = new_tensor[i]``, `old_tensor` elsewhere.

    old_tensor: (K, ...);  index_vector: (n,) in any dtype, in [0, K);  new_tensor: (n, ...)  ->  out: as
    `old_tensor`. If an index is repeated the last row stays, and each of them gets the whole gradient.
    """

    op_name = "_contrib_index_copy"
    inputs = ("old_tensor", "index_vector", "new_tensor")
    in_place = {"out": "old_tensor"}
    backward_in_place = {"d_old_tensor": "d_out"}
    flops_per_output = 0
    same_type = ("old_tensor", "new_tensor")

    @staticmethod
    def infer_shape(a, old_tensor, index_vector, new_tensor):
        if not old_tensor or len(index_vector) != 1 or new_tensor != (*index_vector, *old_tensor[1:]):
            raise ShapeError(
                f"new_tensor must be index_vector {index_vector} by rows of old_tensor {old_tensor}, "
                f"got {new_tensor}."
            )
        return (old_tensor, index_vector, new_tensor), (old_tensor,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return 8 * prod(inputs[1])

    backward_workspace = workspace

    @staticmethod
    def forward(xp, a, old_tensor, index_vector, new_tensor, *, out, work):
        rows = bounded(xp, whole(xp, index_vector, work), len(out), "raise", "_contrib_index_copy")
        copy(xp, old_tensor, out)
        out[rows] = new_tensor

    @staticmethod
    def backward(xp, a, d_out, index_vector, *, d_old_tensor, d_new_tensor, work):
        rows = bounded(xp, whole(xp, index_vector, work), len(d_out), "raise", "_contrib_index_copy")
        if d_new_tensor is not None and d_new_tensor.size:
            xp.take(d_out, rows, axis=0, out=d_new_tensor, mode="clip")
        if d_old_tensor is not None:
            copy(xp, d_out, d_old_tensor)
            d_old_tensor[rows] = 0

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        zeros = w.zeros_like(ins["new_tensor"])
        return {
            "old_tensor": w._contrib_index_copy(heads["out"], ins["index_vector"], zeros),
            "new_tensor": w.take(heads["out"], ins["index_vector"]),
        }
