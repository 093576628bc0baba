"""Look-up tables of rows."""

from __future__ import annotations

from math import prod
from typing import Any

from ...core.dtype import as_dtype, float32
from ...core.errors import DTypeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..blocks import iota, PIECE
from .places import bounded, combine, is_small_float, whole


class Embedding(Op):
    """Rows of a table, ``out[...] = weight[data[...]]``.

    data: (...) whole numbers in any dtype;  weight: (`input_dim`, `output_dim`)  ->  out: (..., `output_dim`)
    An index out of range is moved to the nearest end. The gradient of `weight` is dense, summed in the order
    of the indices; `data` has none. With `sparse_grad` lazy updates leave unused rows alone.
    """

    inputs = ("data", "weight")
    inferred = ("weight",)
    cheap = True
    flops_per_output = 0

    @record
    class Attrs:
        input_dim: int
        output_dim: int
        dtype: str = "float32"
        sparse_grad: bool = False

    @staticmethod
    def infer_shape(a, data, weight=None):
        if a.input_dim < 1 or a.output_dim < 1:
            raise ShapeError(
                f"input_dim and output_dim must be at least 1, got {a.input_dim}, {a.output_dim}."
            )
        return (data, (a.input_dim, a.output_dim)), ((*data, a.output_dim),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        # float32 is also the value of `dtype` when nobody set it: then the weight decides.
        dtype = dtypes[1] if a.dtype == "float32" else as_dtype(a.dtype)
        if dtype is not None and dtypes[1] not in (None, dtype):
            raise DTypeError(f"weight must be {dtype}, as the parameter 'dtype' says, got {dtypes[1]}.")
        return (dtypes[0], dtype), (dtype,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return 8 * prod(inputs[0])

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return 16 * prod(inputs[0])

    @staticmethod
    def compute(t, a, data, weight):
        table = t.view(weight, (a.input_dim, 1, a.output_dim))
        return {"out": t.pick(table, t.view(data, (1, prod(data.shape), 1)), 0)}

    @staticmethod
    def forward(xp, a, data, weight, *, out, work):
        flat = bounded(xp, whole(xp, data, work), a.input_dim, "clip", "Embedding")
        if flat.size:
            xp.take(weight, flat, axis=0, out=out.reshape(flat.size, a.output_dim), mode="clip")

    @staticmethod
    def backward(xp, a, d_out, data, *, d_weight, work):
        flat = bounded(xp, whole(xp, data, work), a.input_dim, "clip", "Embedding")
        d_weight.fill(0)
        rows = d_out.reshape(flat.size, a.output_dim)
        if is_small_float(d_weight.dtype):
            _add_sorted(xp, d_weight, flat, rows, work[8 * flat.size :])
        else:
            combine(xp, xp.add, d_weight[None], flat, rows[None])

    @classmethod
    def by_rows(cls, a):
        """True if the gradient of `weight` may be stored by rows."""
        return a.sparse_grad

    @classmethod
    def touched_rows(cls, a, ins, out_rows, csr):
        return {"weight": frozenset([("_touched_rows", ins["data"], a.input_dim)])} if cls.by_rows(a) else {}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        zeros = w.zeros_like(ins["weight"])
        return {"weight": w.index_add(zeros, ins["data"], heads["out"], axis=0, mode="clip")}


class ContribSparseEmbedding(Embedding):
    """Rows of a table, ``out[...] = weight[data[...]]``: `Embedding` under the name of its sparse kind.

    Lazy updates leave unused rows alone. `sparse_grad` and `deterministic` are read and have
    no effect: equal runs always give equal bits.
    """

    op_name = "_contrib_SparseEmbedding"

    @record
    class Attrs:
        input_dim: int
        output_dim: int
        dtype: str = "float32"
        sparse_grad: bool = False
        deterministic: bool = False

    @classmethod
    def by_rows(cls, a):
        return True


def _add_sorted(xp: Any, target: Any, flat: Any, source: Any, work: Any) -> None:
    """``target[flat[i]] += source[i]`` with sums in float32; `target` is 0. Changes `flat`.

    The indices are sorted together with their positions (index * n + position is one whole number), so that
    the rows of one sum are adjacent; the sum that a piece leaves open is carried into the next. Scratch does
    not grow with `target`, which may be far larger than `source`.
    """
    n, width = source.shape
    if not n:
        return
    order = work[: 8 * n].view("int64")
    iota(xp, order)
    xp.multiply(flat, n, out=flat)
    xp.add(flat, order, out=flat)
    flat.sort()
    xp.remainder(flat, n, out=order)
    xp.floor_divide(flat, n, out=flat)
    columns = min(width, PIECE)
    rows = max(1, PIECE // columns)
    for left in range(0, width, columns):
        carried, last = None, -1
        for begin in range(0, n, rows):
            row, place = flat[begin : begin + rows], order[begin : begin + rows]
            part = source[place, left : left + columns].astype(float32)
            if row[0] == last:
                part[0] += carried
            first = xp.flatnonzero(xp.concatenate(([True], row[1:] != row[:-1])))
            sums = xp.add.reduceat(part, first, axis=0)
            target[row[first], left : left + columns] = sums
            carried, last = sums[-1], row[-1]
