"""One element along an axis for each index of the others."""

from __future__ import annotations

from math import prod
from typing import Any, Literal

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..blocks import copy
from .places import along_bytes, places_along


@record
class _PickAttrs:
    axis: int | None = -1
    keepdims: bool = False
    mode: Literal["clip", "wrap"] = "clip"

    def __post_init__(self) -> None:
        if self.axis is None:
            raise OpAttributeError("pick needs an axis; pick(data.reshape(-1), index) picks of all elements.")


def _picked_shapes(a: Any, data: Any, index: Any) -> tuple[Any, Any]:
    """Shapes of `index` and of the result."""
    if not -len(data) <= a.axis < len(data):
        raise ShapeError(f"axis {a.axis} is not one of data {data}.")
    axis = a.axis % len(data)
    kept = (*data[:axis], 1, *data[axis + 1 :])
    gone = (*data[:axis], *data[axis + 1 :]) or (1,)
    if index is not None and index not in (kept, gone):
        raise ShapeError(f"index must be {gone} or {kept} for data {data} and axis {a.axis}, got {index}.")
    if not data[axis] and prod(gone):
        raise ShapeError(f"axis {a.axis} of data {data} has nothing to pick.")
    return gone if index is None else index, kept if a.keepdims else gone


def _places(xp: Any, a: Any, shape: Any, index: Any, work: Any) -> Any:
    """Flat indices of the picked elements."""
    axis = a.axis % len(shape)
    kept = index.reshape(*shape[:axis], 1, *shape[axis + 1 :])
    return places_along(xp, kept, shape, axis, a.mode, work, "pick")


class pick(Op):
    """One element along `axis` for each index of the others, ``out[i] = data[i, index[i]]``.

    data: (...);  index: `data`'s shape without `axis` (or with it, 1 long), in any dtype  ->
    out: the same without `axis`, or with it when `keepdims`. mode: "clip" moves an index out of range to
    the nearest end, "wrap" counts round. The gradient is 0 at elements not picked; `index` has none.
    """

    aliases = ("choose_element_0index",)
    inputs = ("data", "index")
    inferred = ("index",)

    Attrs = _PickAttrs
    flops_per_output = 0
    same_type = ("data",)

    @staticmethod
    def infer_shape(a, data, index=None):
        index, out = _picked_shapes(a, data, index)
        return (data, index), (out,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return along_bytes(outputs[0])

    backward_workspace = workspace

    @staticmethod
    def compute(t, a, data, index):
        axis = a.axis % len(data.shape)
        if a.mode != "clip":
            return None
        kept = (*data.shape[:axis], 1, *data.shape[axis + 1 :])
        return {"out": t.pick(data, t.view(index, kept), axis)}

    @staticmethod
    def forward(xp, a, data, index, *, out, work):
        places = _places(xp, a, data.shape, index, work)
        if out.size:
            xp.take(data.reshape(-1), places, out=out.reshape(-1), mode="clip")

    @staticmethod
    def backward(xp, a, d_out, index, *, d_data, work):
        places = _places(xp, a, d_data.shape, index, work)
        d_data.fill(0)
        d_data.reshape(-1)[places] = d_out.reshape(-1)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        zeros = w.zeros_like(ins["data"])
        gradient = w._pick_add(
            zeros, ins["index"], heads["out"], axis=a.axis, keepdims=a.keepdims, mode=a.mode
        )
        return {"data": gradient}


class PickAdd(Op):
    """`data` with one number added along `axis` for each index of the others: the gradient of `pick`.

    data: (...);  index, parameters: as in `pick`;  updates: as the result of `pick`  ->  out: as `data`.
    """

    op_name = "_pick_add"
    inputs = ("data", "index", "updates")
    inferred = ("index", "updates")
    in_place = {"out": "data"}
    gradient_is = {"data": "d_out"}

    Attrs = _PickAttrs
    same_type = ("data", "updates")

    @staticmethod
    def infer_shape(a, data, index=None, updates=None):
        index, picked = _picked_shapes(a, data, index)
        return (data, index, picked), (data,)

    @staticmethod
    def flops(a, inputs, outputs):
        return prod(inputs[2])

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return along_bytes(inputs[2])

    backward_workspace = workspace

    @staticmethod
    def compute(t, a, data, index, updates):
        axis = a.axis % len(data.shape)
        if a.mode != "clip":
            return None
        kept = (*data.shape[:axis], 1, *data.shape[axis + 1 :])
        return {"out": t.add_at(data, t.view(index, kept), t.view(updates, kept), axis)}

    @staticmethod
    def forward(xp, a, data, index, updates, *, out, work):
        places = _places(xp, a, data.shape, index, work)
        copy(xp, data, out)
        # No two of them are one element, so no sum is long.
        xp.add.at(out.reshape(-1), places, updates.reshape(-1))

    @staticmethod
    def backward(xp, a, d_out, index, *, d_updates, work):
        places = _places(xp, a, d_out.shape, index, work)
        if d_updates.size:
            xp.take(d_out.reshape(-1), places, out=d_updates.reshape(-1), mode="clip")

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        taken = w.pick(heads["out"], ins["index"], axis=a.axis, keepdims=a.keepdims, mode=a.mode)
        return {"updates": taken}


class fill_element_0index(Op):
    """`lhs` with one element of each row overwritten, ``out[i, rhs[i]] = mhs[i]``.

    lhs: (N, K);  mhs: (N,);  rhs: (N,) in any dtype  ->  out: as `lhs`. An index out of range is moved to the
    nearest end. The gradient of `lhs` is 0 at the overwritten elements.
    """

    inputs = ("lhs", "mhs", "rhs")
    inferred = ("mhs", "rhs")
    in_place = {"out": "lhs"}
    backward_in_place = {"d_lhs": "d_out"}
    flops_per_output = 0
    same_type = ("lhs", "mhs")

    @staticmethod
    def infer_shape(a, lhs, mhs=None, rhs=None):
        if len(lhs) != 2 or (lhs[0] and not lhs[1]):
            raise ShapeError(f"lhs must be (N, K) with K above 0, got {lhs}.")
        return (lhs, lhs[:1], lhs[:1]), (lhs,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return along_bytes(inputs[1])

    backward_workspace = workspace

    @staticmethod
    def compute(t, a, lhs, mhs, rhs):
        named = _named_column(t, lhs, rhs)
        return {"out": t.where("eq", t.index(lhs, 1), named, t.view(mhs, named.shape), lhs)}

    @staticmethod
    def compute_gradient(t, a, heads, arrays):
        d = heads["out"]
        named = _named_column(t, d, arrays["rhs"])
        return {"d_lhs": t.where("eq", t.index(d, 1), named, 0.0, d), "d_mhs": t.pick(d, named, 1)}

    @staticmethod
    def forward(xp, a, lhs, mhs, rhs, *, out, work):
        places = places_along(xp, rhs[:, None], lhs.shape, 1, "clip", work, "fill_element_0index")
        copy(xp, lhs, out)
        out.reshape(-1)[places] = mhs

    @staticmethod
    def backward(xp, a, d_out, rhs, *, d_lhs, d_mhs, work):
        places = places_along(xp, rhs[:, None], d_out.shape, 1, "clip", work, "fill_element_0index")
        if d_mhs is not None and d_mhs.size:
            xp.take(d_out.reshape(-1), places, out=d_mhs, mode="clip")
        if d_lhs is not None:
            copy(xp, d_out, d_lhs)
            d_lhs.reshape(-1)[places] = 0

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        head, index = heads["out"], ins["rhs"]
        return {
            "lhs": w.fill_element_0index(head, w.zeros_like(ins["mhs"]), index),
            "mhs": w.pick(head, index, axis=1),
        }


def _named_column(t: Any, rows: Any, index: Any) -> Any:
    """The column that each index names, (N, 1)."""
    column = t.trunc(t.view(index, (*index.shape, 1)))
    return t("min", t("max", column, 0.0), float(rows.shape[1] - 1))
