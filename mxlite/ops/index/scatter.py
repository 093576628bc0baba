"""Scatters of updates into an array, and their gradients; the operators are in `elements.py` and `gather.py`.

All of them come down to a target of rows (K, B), row numbers (n,), and updates (n, B). Single elements
are rows of one. `reduction` says how an old element and its updates are combined.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Literal

from ...core.dtype import float32
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..blocks import copy, PIECE
from ..shape.adjoint import given
from .places import add_into, along_bytes, combine, is_small_float

Reduction = Literal["none", "add", "mul", "min", "max"]


class Scatter(Op):
    """`data` with scattered updates. Subclasses define the positions."""

    inputs = ("data", "indices", "updates")
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}
    same_type = ("data", "updates")

    @classmethod
    def unneeded(cls, a):
        """Arrays that `backward` does not read, which depends on the reduction."""
        if a.reduction in ("none", "add"):
            return frozenset(("data", "updates", "out"))
        return frozenset(("out",)) if a.reduction == "mul" else frozenset()

    @staticmethod
    def flops(a, inputs, outputs):
        return 0 if a.reduction == "none" else prod(inputs[2])

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        wide = a.reduction in ("add", "mul") and is_small_float(dtype)
        return along_bytes(inputs[2]) + (4 * prod(inputs[0]) if wide else 0)

    @classmethod
    def backward_workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return along_bytes(inputs[2]) + gradient_bytes(a.reduction, inputs[0], dtype)


def scatter(xp: Any, reduction: str, target: Any, places: Any, updates: Any, work: Any) -> None:
    """Put `updates` (n, B) at `places` (n,) of `target` (K, B), which holds the data."""
    if not updates.size:  # rows may have no elements
        return
    if reduction == "none":
        target[places] = updates
    elif reduction == "add":
        add_into(xp, target[None], places, updates[None], work)
    elif reduction == "mul" and is_small_float(target.dtype):
        total = work[: 4 * target.size].view("float32").reshape(target.shape)
        xp.copyto(total, target)
        for at, columns, part in _cells(places, updates):
            _combine(xp, xp.multiply, total, at, columns, part.astype(float32))
        xp.copyto(target, total, casting="unsafe")
    else:
        ufunc = {"mul": xp.multiply, "min": xp.minimum, "max": xp.maximum}[reduction]
        combine(xp, ufunc, target[None], places, updates[None])


def scatter_gradient(
    xp: Any, reduction: str, arrays: tuple[Any, ...], places: Any, wanted: tuple[Any, Any], work: Any
) -> None:
    """Gradients of `scatter` from (d_out, data, updates, out), all seen as rows, into (d_data, d_updates).

    `d_data` may be `d_out`. Scratch: `gradient_bytes`.
    """
    d_out, data, updates, out = arrays
    d_data, d_updates = wanted
    if reduction in ("none", "add"):
        if d_updates is not None and d_updates.size:
            xp.take(d_out, places, axis=0, out=d_updates, mode="clip")
        if d_data is not None:
            copy(xp, d_out, d_data)
            if reduction == "none":
                d_data[places] = 0
        return
    share = _share_of_product if reduction == "mul" else _share_of_extreme
    of = share(xp, data, updates, out, places, work)
    if d_updates is not None:
        for at, columns, (head, part) in _cells(places, d_updates, updates):
            head[...] = d_out[at, columns] * of(part, at, columns)
    if d_data is not None:
        for at, columns, (head, part) in _cells(None, d_data, data):
            head[...] = d_out[at, columns] * of(part, at, columns)


def gradient_bytes(reduction: str, data: Shape, dtype: DType) -> int:
    """Scratch in bytes that `scatter_gradient` needs."""
    counted = {"mul": 4 + max(4, dtype.itemsize), "min": 4, "max": 4}.get(reduction, 0)
    return counted * prod(data)


def _share_of_extreme(xp: Any, data: Any, updates: Any, out: Any, places: Any, work: Any) -> Any:
    """The share of each element that equals the result in the gradient: 1 / number of equals, or 0."""
    ties = work[: 4 * out.size].view("float32").reshape(out.shape)
    xp.equal(data, out, out=ties)
    for at, columns, part in _cells(places, updates):
        _combine(xp, xp.add, ties, at, columns, (part == out[at, columns]).astype(float32))
    return lambda part, at, columns: (part == out[at, columns]) / ties[at, columns]


def _share_of_product(xp: Any, data: Any, updates: Any, out: Any, places: Any, work: Any) -> Any:
    """The product of the other factors. A factor of 0 is left out of the product and counted instead."""
    kind = float32 if data.dtype.itemsize < 4 else data.dtype
    product = work[: kind.itemsize * data.size].view(kind).reshape(data.shape)
    zeros = work[kind.itemsize * data.size :][: 4 * data.size].view("int32").reshape(data.shape)
    xp.copyto(product, data)
    xp.equal(data, 0, out=zeros)
    for _, _, part in _cells(None, product):
        part[part == 0] = 1
    for at, columns, part in _cells(places, updates):
        factor = part.astype(kind)
        none = factor == 0
        factor[none] = 1
        _combine(xp, xp.multiply, product, at, columns, factor)
        _combine(xp, xp.add, zeros, at, columns, none.astype("int32"))

    def others(part: Any, at: Any, columns: Any) -> Any:
        factor = part.astype(kind)
        none = factor == 0
        factor[none] = 1
        return product[at, columns] / factor * (zeros[at, columns] == none)

    return others


def _cells(places: Any, *arrays: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Parts of arrays (n, B) of about PIECE elements, with their row numbers and their columns.

    Without `places`, rows are numbered in order.
    """
    n, width = arrays[0].shape
    wide = min(width, PIECE)
    rows = max(1, PIECE // max(1, wide))
    for begin in range(0, n, rows):
        end = min(begin + rows, n)
        at = slice(begin, end) if places is None else places[begin:end]
        for left in range(0, width, wide):
            columns = slice(left, left + wide)
            parts = tuple(x[begin:end, columns] for x in arrays)
            yield at, columns, parts if len(parts) > 1 else parts[0]


def _combine(xp: Any, ufunc: Any, target: Any, at: Any, columns: Any, part: Any) -> None:
    """`combine` for a part of the columns; the part is then of one row."""
    if part.shape[1] == target.shape[1]:
        combine(xp, ufunc, target[None], at, part[None])
    else:
        into = target[at[0], columns]
        ufunc(into, part[0], out=into)


def as_rows(arrays: tuple[Any, ...], width: int) -> Any:
    """Arrays as rows of `width` elements; None stays None."""
    return tuple(None if x is None else x.reshape(x.size // width if width else 0, width) for x in arrays)


def written_derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any, taken: Any) -> Any:
    """Gradients of a scatter with operators; `taken` is the head gradient at the updates' positions."""
    op = "scatter_elements" if hasattr(a, "axis") else "scatter_nd_update"
    head = heads["out"]
    if a.reduction == "add":
        return {"data": head, "updates": taken}
    if a.reduction == "none":
        zeros = w.zeros_like(ins["updates"])
        return {"data": getattr(w, op)(head, ins["indices"], zeros, **given(a)), "updates": taken}
    axis = {"axis": a.axis} if hasattr(a, "axis") else {}

    def at_places(x: Any) -> Any:
        read = w.take_along_axis if axis else w.gather_nd
        return read(x, ins["indices"], **axis)

    if a.reduction == "mul":
        # Except at factors that are 0: the product of the others is the result divided by the factor.
        whole_product = w.elemwise_mul(head, outs["out"])
        return {
            "data": w.elemwise_div(whole_product, ins["data"]),
            "updates": w.elemwise_div(at_places(whole_product), ins["updates"]),
        }
    equal = w._equal(ins["data"], outs["out"])
    equal_updates = w._equal(ins["updates"], at_places(outs["out"]))
    ties = getattr(w, op)(equal, ins["indices"], equal_updates, **axis, reduction="add")
    share = w.elemwise_div(head, ties)
    return {
        "data": w.elemwise_mul(share, equal),
        "updates": w.elemwise_mul(at_places(share), equal_updates),
    }
