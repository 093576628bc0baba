"""Dense layers with prepacked weights, for inference, where weights do not change.

For a few rows of data oneDNN's blocked kernel spends as long to copy the transposed weight into its blocks
as to multiply. With the weight in that order it computes the same numbers, to the bit. One row is read in
the order of the plain weight (`compiled/nests/row_product.py`), which is faster.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ...core.cached import cached_property
from ...core.dtype import float32
from .convolution.slabs import Slabs
from .onednn import bind, Memory, reorder, Run
from .onednn.constants import BIAS, DST, SRC, WEIGHTS
from .onednn.library import library, OneDNNError
from .onednn.memory import memory_any
from .onednn.primitive import cached, Primitive
from .onednn.product import Layout
from .products import product_of, Term

FEWEST, MOST = 4, 128
"""Rows of data for which it pays: 4 rows 1.0 to 2.8 times as fast, 64 rows 1.08 to 1.19, 128 rows 1.05 to
1.13, 256 rows 1.02 to 1.06 (K and N from 256 to 4096, one thread, 2026-11-28). Of fewer another kernel reads
the plain weight, and many rows hide the copy."""


class DenseWay:
    """data (rows, K) times weight (N, K) in oneDNN's blocks, plus a bias. Raises OneDNNError.

    `layout` is that of the weight, of `layout.nbytes` bytes; `nbytes` and `scratch`: scratch of the product,
    and of packing.
    """

    def __init__(self, rows: int, n: int, k: int, bias: bool) -> None:
        x, y, out = _sides(rows, n, k)
        row = Layout((1, n), (n, 1))
        blocks = memory_any((k, n), float32)
        self._product = Primitive("matmul", x.memory, blocks, row.memory if bias else None, out.memory)
        wanted = self._product.wants(WEIGHTS)
        if wanted is None or "brg" not in self._product.implementation or wanted == y.memory:
            raise OneDNNError("its kernel has no blocks of weights")
        self._data, self._weight, self._bias, self._out = x.memory, wanted, row.memory, out.memory
        self.layout, self._plain, self.shape = _turned(wanted), Layout.dense(n, k).memory, (n, k)
        self._move = reorder(self._plain, self.layout)
        self.name = f"onednn {self._product.implementation}, packed weight"
        self.nbytes, self.scratch = self._product.scratch, self._move.scratch

    @cached_property
    def slabs(self) -> Slabs | None:
        """Slabs by which the weight can be packed in place; None if it cannot."""
        try:
            return Slabs(self.shape, float32, self.layout)
        except LookupError:
            return None

    def pack(self, weight: Any, held: Any, work: Any) -> Run:
        """The call that reorders `weight` into `held`, of `layout.nbytes` bytes."""
        return bind(self._move, {SRC: (self._plain, weight), DST: (self.layout, held)}, work)

    def connect(
        self, data: Any, packed: Any, bias: Any, addend: Any, out: Any, work: Any, factor: Any
    ) -> Run:
        """The call of the product; there is no addend and no factor."""
        arrays = {SRC: (self._data, data), WEIGHTS: (self._weight, packed), DST: (self._out, out)}
        if bias is not None:
            arrays[BIAS] = self._bias, bias
        return bind(self._product, arrays, work)


def dense_way(rows: int, n: int, k: int, bias: bool) -> DenseWay | None:
    """How to multiply so many rows by a packed weight; None where a plain one is as good."""
    if not FEWEST <= rows <= MOST:
        return None
    term = Term("data", "weight", "out", _sides(rows, n, k), "bias" if bias else "")
    plain = product_of(float32, term)
    if plain is None or not plain.name.startswith("onednn brg"):
        return None
    return _made(rows, n, k, bias)


_made = cached(DenseWay)


def _sides(rows: int, n: int, k: int) -> tuple[Layout, Layout, Layout]:
    return Layout.dense(rows, k), Layout.dense(n, k).turned, Layout.dense(rows, n)


def _turned(layout: Memory) -> Memory:
    """The same bytes as a matrix of the other order of axes."""
    lib = library()
    assert lib is not None
    return Memory(lib.new("dnnl_memory_desc_permute_axes", layout.handle, (ctypes.c_int * 2)(1, 0)))
