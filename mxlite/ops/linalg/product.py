"""Matrix products of two-byte floats: numpy has no fast one, and sums them in too few digits.

Blocks are copied to float32, multiplied by BLAS, summed in float32, and rounded once.
"""

from __future__ import annotations

from typing import Any

from ...core.dtype import float32
from ...graph.opdef import DType
from ..scratch import carve, Piece, scratch_bytes

_ROWS, _INNER, _COLUMNS = 256, 512, 512


def product_bytes(rows: int, inner: int, columns: int, dtype: DType) -> int:
    """Scratch of `product`, none for types that BLAS knows."""
    return scratch_bytes(_pieces(rows, inner, columns)) if dtype.itemsize == 2 else 0


def product(xp: Any, x: Any, y: Any, out: Any, work: Any) -> None:
    """out = x @ y, matrices of one type. work: `product_bytes` for their sizes, or for larger ones."""
    if x.dtype.itemsize > 2:
        xp.matmul(x, y, out=out)
        return
    (rows, inner), columns = x.shape, y.shape[1]
    left, right, total, term = carve(work, _pieces(rows, inner, columns))
    for i in range(0, rows, _ROWS):
        for j in range(0, columns, _COLUMNS):
            target = out[i : i + _ROWS, j : j + _COLUMNS]
            into = _first(total, target.shape)
            into.fill(0)
            for k in range(0, inner, _INNER):
                a, b = x[i : i + _ROWS, k : k + _INNER], y[k : k + _INNER, j : j + _COLUMNS]
                wide_a, wide_b, more = _first(left, a.shape), _first(right, b.shape), _first(term, into.shape)
                xp.copyto(wide_a, a)
                xp.copyto(wide_b, b)
                xp.matmul(wide_a, wide_b, out=more)
                xp.add(into, more, out=into)
            xp.copyto(target, into, casting="unsafe")


def _pieces(rows: int, inner: int, columns: int) -> list[Piece]:
    m, k, n = min(rows, _ROWS), min(inner, _INNER), min(columns, _COLUMNS)
    return [((m * k,), float32), ((k * n,), float32), ((m * n,), float32), ((m * n,), float32)]


def _first(flat: Any, shape: tuple[int, ...]) -> Any:
    return flat[: shape[0] * shape[1]].reshape(shape)
