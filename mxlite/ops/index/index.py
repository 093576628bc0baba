"""Index arithmetic: one-hot rows, masks, and multi-dimensional indices as flat ones."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...core.compat.npshape import UNKNOWN
from ...core.dtype import as_dtype
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import agreed_shape, Op, require_rank
from ..blocks import copy, PIECE, require_finite, weak


class one_hot(Op):
    """`on_value` at each index, `off_value` elsewhere.

    indices: (...) in any dtype  ->  out: (..., `depth`) of `dtype`. An index out of range gives a row of
    `off_value`. No gradient.
    """

    inputs = ("indices",)
    flops_per_output = 0

    @record
    class Attrs:
        depth: int
        on_value: float = 1.0
        off_value: float = 0.0
        dtype: str = "float32"

    @staticmethod
    def infer_shape(a, indices):
        if a.depth < 0:
            raise ShapeError(f"depth must be at least 0, got {a.depth}.")
        return (indices,), ((*indices, a.depth),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        dtype = as_dtype(a.dtype)
        require_finite(a.on_value, dtype, "on_value")
        require_finite(a.off_value, dtype, "off_value")
        return dtypes, (dtype,)

    @staticmethod
    def compute(t, a, indices):
        return {"out": _one_hot_rows(t, indices, a.depth, a.on_value, a.off_value)}

    @staticmethod
    def forward(xp, a, indices, *, out):
        _fill_one_hot(xp, indices, out, a.depth, a.on_value, a.off_value)


def _one_hot_rows(t: Any, indices: Any, depth: int, on: float, off: float) -> Any:
    number = t.trunc(t.view(indices, (prod(indices.shape), 1)))
    row = t.index(t.broadcast(0.0, (1, depth)), 1)
    return t.where("eq", row, number, t.constant(on), t.constant(off))


def _fill_one_hot(xp: Any, indices: Any, out: Any, depth: int, on: float, off: float) -> None:
    """Write only the positions that are named, a piece at a time."""
    on, off = weak(out, on), weak(out, off)
    out.fill(off)
    flat, into = indices.reshape(-1), out.reshape(-1)
    for begin in range(0, flat.size, PIECE):
        index = flat[begin : begin + PIECE].astype(np.int64)
        inside = (index >= 0) & (index < depth)
        index += xp.arange(begin, begin + index.size) * depth
        into[index[inside]] = on


class OnehotEncode(Op):
    """1 at each index, 0 elsewhere, ``out[i, lhs[i]] = 1``.

    lhs: (N,) in any dtype;  rhs: (N, K), read for its shape and dtype only  ->  out: (N, K). No gradient.
    (The old form of `one_hot`.)
    """

    op_name = "_onehot_encode"
    inputs = ("lhs", "rhs")
    shape_only = ("rhs",)
    flops_per_output = 0
    same_type = ("rhs",)

    @staticmethod
    def infer_shape(a, lhs, rhs):
        if len(rhs) != 2 or lhs != rhs[:1]:
            raise ShapeError(f"rhs must be (N, K) for lhs (N,), got {rhs} and {lhs}.")
        return (lhs, rhs), (rhs,)

    @staticmethod
    def compute(t, a, lhs, rhs):
        return {"out": _one_hot_rows(t, lhs, rhs.shape[1], 1.0, 0.0)}

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        _fill_one_hot(xp, lhs, out, out.shape[1], 1, 0)


class element_mask(Op):
    """Each row of `lhs` times one number, ``out[i, ...] = lhs[i, ...] * rhs[i]``.

    lhs: (N, ...);  rhs: (N,)  ->  out: as `lhs`. `rhs` is a mask: it has no gradient.
    """

    inputs = ("lhs", "rhs")
    accepts = "number"
    inferred = ("rhs",)
    in_place = {"out": "lhs"}
    backward_in_place = {"d_lhs": "d_out"}
    cheap = True

    @staticmethod
    def infer_shape(a, lhs, rhs=None):
        require_rank(lhs, 1, "lhs")
        return (lhs, lhs[:1]), (lhs,)

    @staticmethod
    def compute(t, a, lhs, rhs):
        return {"out": lhs * t.view(rhs, (*rhs.shape, *(1,) * (len(lhs.shape) - 1)))}

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.multiply(lhs, rhs.reshape(-1, *(1,) * (lhs.ndim - 1)), out=out)

    @staticmethod
    def backward(xp, a, d_out, rhs, *, d_lhs):
        xp.multiply(d_out, rhs.reshape(-1, *(1,) * (d_out.ndim - 1)), out=d_lhs)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"lhs": w.element_mask(heads["out"], ins["rhs"])}


@record
class _Grid:
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not self.shape or any(d < 1 for d in self.shape[1:]):
            raise OpAttributeError(
                f"needs the parameter shape, lengths of 1 or more (the first may be -1), got {self.shape}."
            )


class ravel_multi_index(Op):
    """Multi-dimensional indices into an array of `shape` as flat indices, in C order.

    data: (M, ...), column [:, j] an index in M axes  ->  out: (...), same dtype. The first length does not
    matter and may be -1; nothing is checked. No gradient.
    """

    aliases = ("_ravel_multi_index",)
    accepts = "number"
    inputs = ("data",)

    Attrs = _Grid

    @staticmethod
    def infer_shape(a, data):
        if data[:1] != (len(a.shape),):
            raise ShapeError(f"data must be ({len(a.shape)}, ...) for shape {a.shape}, got {data}.")
        return (data,), (data[1:],)

    @staticmethod
    def forward(xp, a, data, *, out):
        flat = data.reshape(len(data), prod(data.shape[1:]))
        into = out.reshape(-1)
        for begin in range(0, into.size, PIECE):
            total = flat[0, begin : begin + PIECE].astype(np.int64)
            for length, row in zip(a.shape[1:], flat[1:]):
                total *= length
                total += row[begin : begin + PIECE].astype(np.int64)
            into[begin : begin + PIECE] = total


class unravel_index(Op):
    """Flat indices as indices in the axes of `shape`.

    data: (...)  ->  out: (M, ...) of the same dtype, ``out[:, j]`` the index of the ``data[j]``-th element
    in C order. The first length does not matter and may be -1; nothing is checked. No gradient.
    """

    aliases = ("_unravel_index",)
    accepts = "number"
    inputs = ("data",)

    Attrs = _Grid

    @staticmethod
    def infer_shape(a, data):
        return (data,), ((len(a.shape), *data),)

    @staticmethod
    def forward(xp, a, data, *, out):
        flat, into = data.reshape(-1), out.reshape(len(out), data.size)
        for begin in range(0, flat.size, PIECE):
            rest = flat[begin : begin + PIECE].astype(np.int64)
            for axis in reversed(range(1, len(a.shape))):
                into[axis, begin : begin + PIECE] = rest % a.shape[axis]
                rest //= a.shape[axis]
            into[0, begin : begin + PIECE] = rest


class where(Op):
    """`x` where the condition is not 0, `y` elsewhere.

    condition: (...) as `x`, or (N,) for whole rows, in any dtype;  x, y: (N, ...)  ->  out: (N, ...).
    `condition` has no gradient.
    """

    inputs = ("condition", "x", "y")
    in_place = {"out": "y"}
    cheap = True
    elementwise = True
    backward_in_place = {"d_y": "d_out"}
    same_type = ("x", "y")

    @staticmethod
    def infer_shape(a, condition, x, y):
        if x != y:
            raise ShapeError(f"x and y must have one shape, got {x} and {y}.")
        if condition != x and (condition != x[:1] or not x):
            raise ShapeError(f"condition must be {x} or {x[:1]}, got {condition}.")
        return (condition, x, y), (x,)

    @staticmethod
    def infer_inputs(a, inputs, outputs):
        condition, x, y = inputs
        shape = next((s for s in (x, y, *outputs) if s is not None), None)
        if shape is None:
            return inputs
        rows = None if condition is None else (*condition, *(UNKNOWN,) * (len(shape) - len(condition)))
        for other in (x, y, *outputs, rows):
            if other is not None and shape is not None:
                shape = agreed_shape(shape, other)
        return inputs if shape is None else (condition, shape, shape)

    @classmethod
    def operand_shape(cls, a, name, shape, whole):
        # One condition for each row aligns at the front.
        return (*shape, *(1,) * (len(whole) - len(shape))) if name == "condition" else shape

    @staticmethod
    def compute(w, a, condition, x, y):
        return {"out": w("select", w("ne", condition, 0.0), x, y)}

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        chosen, d = w("ne", arrays["condition"], 0.0), heads["out"]
        return {"d_x": w("select", chosen, d, 0.0), "d_y": w("select", chosen, 0.0, d)}

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return prod(inputs[0])

    backward_workspace = workspace

    @staticmethod
    def forward(xp, a, condition, x, y, *, out, work):
        mask = _mask(xp, condition, x.ndim, work)
        copy(xp, y, out)
        xp.copyto(out, x, where=mask)

    @staticmethod
    def backward(xp, a, d_out, condition, *, d_x, d_y, work):
        mask = _mask(xp, condition, d_out.ndim, work)
        if d_x is not None:
            d_x.fill(0)
            xp.copyto(d_x, d_out, where=mask)
        if d_y is not None:
            copy(xp, d_out, d_y)
            xp.copyto(d_y, 0, where=mask)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        condition, head = ins["condition"], heads["out"]
        zeros = w.zeros_like(head)
        return {"x": w.where(condition, head, zeros), "y": w.where(condition, zeros, head)}


def _mask(xp, condition, rank, work):
    """A bool array in `work`, True where `condition` is not 0, that broadcasts over `rank` axes."""
    mask = work[: condition.size].view("bool").reshape(condition.shape)
    xp.not_equal(condition, 0, out=mask)
    return mask if condition.ndim == rank else mask.reshape(-1, *(1,) * (rank - 1))
