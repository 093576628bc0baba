"""Products of a csr matrix, as generated code."""

from __future__ import annotations

from functools import partial
from typing import Any

from .....ops.linalg.sparse_dot import ByColumns, require_csr, SumsByColumns, SumsOfRows
from ....base import ChosenKernel, connected, Request
from ...compiled import call, threads_for, usable
from ...compiled.matrix.sparse_dot import by_columns, columns_sums, sums
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of


def _can_sum(r: Request) -> bool:
    return usable() and r.dtype.name in ("float32", "float64") and r.dtypes[3] == r.dtype


def _sums_row(r: Request) -> ChosenKernel | None:
    if not _can_sum(r):
        return None
    module, (rows, columns) = sums(r.dtype.name), r.outputs[0]
    threads = threads_for(r.dtype.itemsize * columns * (rows + r.inputs[0][0]))

    def connect(xp: Any, a: Any, data: Any, lines: Any, ends: Any, rhs: Any, *, out: Any) -> Run:
        if out is None or not out.size:
            return in_turn(())
        arrays = (data, lines, ends, rhs, out)
        args = [*map(address_of, arrays), rows, columns]
        run = call(module, "sums", args, threads, keep=arrays)
        return in_turn((partial(SumsOfRows.check, lines, ends, len(rhs)), run))

    return connected(connect, 0, "compiled sums of rows")


def _columns_row(r: Request) -> ChosenKernel | None:
    nbytes = r.dtype.itemsize
    if not usable() or nbytes not in (4, 8):
        return None
    module = by_columns(nbytes)

    def connect(
        xp: Any, a: Any, data: Any, indices: Any, indptr: Any, *, values: Any, rows: Any, starts: Any
    ) -> Run:
        arrays = (data, indices, indptr, values, rows, starts)
        if any(x is None for x in arrays):
            return partial(ByColumns.forward, xp, a, *arrays[:3], values=values, rows=rows, starts=starts)
        args = [*map(address_of, arrays), len(indptr) - 1, a.columns, len(data)]
        run = call(module, "sort", args, 1, keep=arrays)
        return in_turn((partial(require_csr, indices, indptr, a.columns, ByColumns.op_name), run))

    return connected(connect, 0, "compiled counting sort")


def _columns_sums_row(r: Request) -> ChosenKernel | None:
    if not _can_sum(r):
        return None
    module, (columns, width) = columns_sums(r.dtype.name), r.outputs[0]
    threads = threads_for(r.dtype.itemsize * width * (columns + r.inputs[0][0]))

    def connect(
        xp: Any, a: Any, data: Any, indices: Any, indptr: Any, rhs: Any, *, out: Any, touched: Any
    ) -> Run:
        arrays = (data, indices, indptr, rhs, out, touched)
        if out is None or touched is None:
            return partial(SumsByColumns.forward, xp, a, *arrays[:4], out=out, touched=touched)
        args = [*map(address_of, arrays), len(rhs), width, columns]
        run = call(module, "sums", args, threads, keep=arrays)
        return in_turn((partial(require_csr, indices, indptr, columns, SumsByColumns.op_name), run))

    return connected(connect, 0, "compiled sums by columns")


SERVES = ("ops.linalg.sparse_dot",)
ROWS = kernel_rows(
    GENERATED, {SumsOfRows: _sums_row, ByColumns: _columns_row, SumsByColumns: _columns_sums_row}
)
