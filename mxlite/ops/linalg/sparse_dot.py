"""Parts of products of a csr matrix with a dense one, on the arrays of the csr form."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.dtype import FLAGS
from ...core.errors import OperatorError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..index.places import bounded

_int64 = np.dtype(np.int64)
_PRODUCTS = 1 << 13  # size of a block of products in elements


def require_rising(ends: Any, size: int, what: str) -> None:
    """Raise OperatorError unless `ends` rise within [0, size]."""
    if len(ends) and (ends[0] < 0 or ends[-1] > size or (ends[1:] < ends[:-1]).any()):
        raise OperatorError(f"{what}: where rows begin must rise within [0, {size}].", operation=what)


def require_csr(indices: Any, indptr: Any, columns: int, what: str) -> None:
    """Raise OperatorError for columns out of range, and for elements that are in no row."""
    require_rising(indptr, len(indices), what)
    if indptr[0] != 0 or indptr[-1] != len(indices):
        raise OperatorError(
            f"{what}: rows must go from 0 to {len(indices)}, got {indptr[0]} to {indptr[-1]}.", operation=what
        )
    bounded(np, indices, columns, "raise", what)


class SumsOfRows(Op):
    """Sums of rows of a matrix, each times a number, ``out[i] = sum of data[k] * rhs[lines[k]] for k in
    [ends[i], ends[i + 1])``: a csr matrix times a dense one.

    data: (E,);  lines: (E,) and ends: (M + 1,) int64, `ends` rising;  rhs: (L, K) of the dtype of `data`  ->
    out: (M, K). Generated code adds elements in their order.
    """

    op_name = "_sums_of_rows"
    inputs = ("data", "lines", "ends", "rhs")

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data, lines, ends, rhs = shapes
        if len(data) != 1 or lines != data or len(ends) != 1 or not ends[0] or len(rhs) != 2:
            raise ShapeError(
                f"data and lines must be (E,), ends (M + 1,) and rhs (L, K), got {data}, {lines}, {ends} and "
                f"{rhs}."
            )
        return shapes, ((ends[0] - 1, rhs[1]),)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        kind = dtypes[0] or dtypes[3]
        return (kind, _int64, _int64, kind), (kind,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * inputs[0][0] * outputs[0][1]

    @staticmethod
    def check(lines: Any, ends: Any, count: int) -> None:
        """Raise OperatorError for lines that `count` rows do not have."""
        require_rising(ends, len(lines), "_sums_of_rows")
        bounded(np, lines, count, "raise", "_sums_of_rows")

    @classmethod
    def forward(cls, xp: Any, a: Any, data: Any, lines: Any, ends: Any, rhs: Any, *, out: Any) -> None:
        cls.check(lines, ends, len(rhs))
        out.fill(0)
        rows = np.flatnonzero(ends[1:] > ends[:-1])
        most = max(1, _PRODUCTS // max(1, rhs.shape[1]))
        at = 0
        while at < len(rows):
            begin = ends[rows[at]]
            upto = max(at + 1, int(np.searchsorted(ends[rows + 1], begin + most, side="right")))
            span = slice(begin, ends[rows[upto - 1] + 1])
            products = data[span, None] * rhs[lines[span]]
            out[rows[at:upto]] = xp.add.reduceat(products, ends[rows[at:upto]] - begin, axis=0)
            at = upto


class ByColumns(Op):
    """The elements of a csr matrix, column by column, those of a column in the order of rows.

    data: (E,);  indices: (E,) and indptr: (M + 1,) int64, as csr has them  ->  values: (E,), their rows: (E,)
    and offsets of the columns, starts: (`columns` + 1,), both int64.
    """

    op_name = "_by_columns"
    inputs = ("data", "indices", "indptr")
    outputs = ("values", "rows", "starts")

    @record
    class Attrs:
        columns: int

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data, indices, indptr = shapes
        if len(data) != 1 or indices != data or len(indptr) != 1 or not indptr[0]:
            raise ShapeError(
                f"data and indices must be (E,), indptr (M + 1,), got {', '.join(map(str, shapes))}."
            )
        return shapes, (data, data, (a.columns + 1,))

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return (dtypes[0], _int64, _int64), (dtypes[0], _int64, _int64)

    @classmethod
    def forward(
        cls, xp: Any, a: Any, data: Any, indices: Any, indptr: Any, *, values: Any, rows: Any, starts: Any
    ) -> None:
        require_csr(indices, indptr, a.columns, cls.op_name)
        order = np.argsort(indices, kind="stable")
        if values is not None:
            xp.take(data, order, out=values, mode="clip")
        if rows is not None:
            xp.take(np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), order, out=rows, mode="clip")
        if starts is not None:
            starts[0] = 0
            xp.cumsum(np.bincount(indices, minlength=a.columns), out=starts[1:])


class SumsByColumns(Op):
    """A csr matrix, transposed, times a dense one, ``out[c] = sum of data[k] * rhs[i] for the elements k of
    column c, in row i``; ``touched[c]`` is 1 where there are any, else 0.

    data: (E,);  indices: (E,) and indptr: (M + 1,) int64;  rhs: (M, K) of the dtype of `data`  ->  out:
    (`columns`, K), touched: (`columns`,) uint8. Elements are added in their order.
    """

    op_name = "_sums_by_columns"
    inputs = ("data", "indices", "indptr", "rhs")
    outputs = ("out", "touched")
    Attrs = ByColumns.Attrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data, indices, indptr, rhs = shapes
        if len(data) != 1 or indices != data or len(rhs) != 2 or indptr != (rhs[0] + 1,):
            raise ShapeError(
                f"data and indices must be (E,), indptr (M + 1,) and rhs (M, K), got "
                f"{', '.join(map(str, shapes))}."
            )
        return shapes, ((a.columns, rhs[1]), (a.columns,))

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        kind = dtypes[0] or dtypes[3]
        return (kind, _int64, _int64, kind), (kind, FLAGS[3])

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * inputs[0][0] * outputs[0][1]

    @classmethod
    def forward(
        cls, xp: Any, a: Any, data: Any, indices: Any, indptr: Any, rhs: Any, *, out: Any, touched: Any
    ) -> None:
        require_csr(indices, indptr, a.columns, cls.op_name)
        if touched is not None:
            touched.fill(0)
            touched[indices] = 1
        if out is None:
            return
        out.fill(0)
        most = max(1, _PRODUCTS // max(1, rhs.shape[1]))
        for begin in range(0, len(data), most):
            end = min(begin + most, len(data))
            rows = np.searchsorted(indptr, np.arange(begin, end), side="right") - 1
            xp.add.at(out, indices[begin:end], data[begin:end, None] * rhs[rows])
