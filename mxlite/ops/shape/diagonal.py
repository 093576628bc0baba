"""Diagonals and triangles of matrices."""

from __future__ import annotations

from typing import Any, ClassVar

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.opdef import require_rank
from ..blocks import copy
from .adjoint import adjoint_of
from .constant import Constant
from .reshape import axis_of, Move


class diag(Move):
    """The diagonal `k` of a matrix, or a matrix with `data` on its diagonal `k`; k > 0 is above the main one.

    data: (n,)  ->  out: (n + |k|, n + |k|), zeros elsewhere.
    data: (...), two axes or more  ->  out: without `axis1` and `axis2`, and a last axis along the diagonal
    of the matrices that they form; nothing on it if there is no such diagonal.
    """

    @record
    class Attrs:
        k: int = 0
        axis1: int = 0
        axis2: int = 1

    @staticmethod
    def infer_shape(a, data):
        require_rank(data, 1, "data")
        if len(data) == 1:
            n = data[0] + abs(a.k)
            return (data,), ((n, n),)
        i, j = axis_of(a.axis1, len(data)), axis_of(a.axis2, len(data))
        if i == j:
            raise ShapeError(f"axis1 {a.axis1} and axis2 {a.axis2} are one axis of data {data}.")
        rest = tuple(d for axis, d in enumerate(data) if axis not in (i, j))
        return (data,), ((*rest, _length(a.k, data[i], data[j])),)

    @staticmethod
    def forward(xp, a, data, *, out):
        if data.ndim == 1:
            out.fill(0)
            xp.copyto(_on(xp, out, a.k, 0, 1), data)
        else:
            xp.copyto(out, _on(xp, data, a.k, a.axis1, a.axis2))

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        if d_data.ndim == 1:
            xp.copyto(d_data, _on(xp, d_out, a.k, 0, 1))
        else:
            d_data.fill(0)
            xp.copyto(_on(xp, d_data, a.k, a.axis1, a.axis2), d_out)


_adjoint_diag = adjoint_of(diag)


def _length(k: int, rows: int, columns: int) -> int:
    return max(0, min(rows, columns - k) if k >= 0 else min(rows + k, columns))


def _on(xp: Any, matrix: Any, k: int, axis1: int, axis2: int) -> Any:
    """A writable view of the diagonal, its axis last."""
    m = xp.moveaxis(matrix, (axis1, axis2), (-2, -1))
    length = _length(k, m.shape[-2], m.shape[-1])
    start = m[..., max(-k, 0) :, max(k, 0) :]
    strides = (*m.strides[:-2], m.strides[-2] + m.strides[-1])
    return xp.lib.stride_tricks.as_strided(start, (*m.shape[:-2], length), strides)


class _Triangle(Move):
    """Base: one side of the diagonal `k` of the last two axes, with the diagonal; zeros on the other."""

    abstract = True
    lower: ClassVar[bool]
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}

    @record
    class Attrs:
        k: int = 0

    @staticmethod
    def infer_shape(a, data):
        require_rank(data, 2, "data")
        return (data,), (data,)

    @classmethod
    def compute(cls, t, a, data):
        row, column = t.index(data, -2) + float(a.k), t.index(data, -1)
        return {"out": t.where("le" if cls.lower else "ge", column, row, data, 0.0)}

    @classmethod
    def forward(cls, xp, a, data, *, out):
        _triangle(xp, data, out, a.k, cls.lower)

    @classmethod
    def backward(cls, xp, a, d_out, *, d_data):
        _triangle(xp, d_out, d_data, a.k, cls.lower)

    @classmethod
    def derivative(cls, w, a, ins, outs, heads):
        return {"data": getattr(w, cls.op_name)(heads["out"], k=a.k)}


def _triangle(xp: Any, data: Any, out: Any, k: int, lower: bool) -> None:
    """Copy a triangle, row by row of all matrices: row i keeps columns up to i + k, or from there on."""
    copy(xp, data, out)
    rows, columns = out.shape[-2:]
    for i in range(rows):
        edge = min(max(i + k + (1 if lower else 0), 0), columns)
        if lower:
            out[..., i, edge:] = 0
        else:
            out[..., i, :edge] = 0


class tril(_Triangle):
    """The lower triangle, ``out[..., i, j] = data[..., i, j] if j <= i + k else 0``.

    data: (..., M, N)  ->  out: same shape and dtype.
    """

    lower = True


class triu(_Triangle):
    """The upper triangle, ``out[..., i, j] = data[..., i, j] if j >= i + k else 0``.

    data: (..., M, N)  ->  out: same shape and dtype.
    """

    lower = False


class _eye(Constant):
    """Ones on the diagonal `k`, zeros elsewhere.

    ->  out: (`N`, `M`) of `dtype`, float32 unless given; M = 0 means square. `ctx` is where the array will
    live.
    """

    @record
    class Attrs:
        N: int
        M: int = 0
        k: int = 0
        ctx: str = ""
        dtype: str = "float32"

    @staticmethod
    def infer_shape(a):
        if a.N < 0 or a.M < 0:
            raise ShapeError(f"N and M must not be negative, got {a.N}, {a.M}.")
        return (), ((a.N, a.M or a.N),)

    @staticmethod
    def forward(xp, a, *, out):
        out.fill(0)
        _on(xp, out, a.k, 0, 1)[...] = 1
