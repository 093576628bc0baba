"""oneDNN's dense layers with prepacked weights, for inference.

Its blocked kernel reads the weight in blocks of columns. One that lies as the user has it, a row for each
unit, is copied into them at each call: that takes as long as the product itself for one row of data, and a
tenth to a fifth of the time for hundreds. In the layout that the kernel asks for, it is read where it lies.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from ...core.cached import cached_property
from ...core.dtype import float32
from ...graph.opdef import DType
from ..base import Request
from .onednn import bind, cached, memory, memory_any, Primitive, reorder, Run
from .onednn.constants import BIAS, DST, SRC, WEIGHTS
from .products import multiplies
from .runtime.threads import num_threads
from .slabs import Slabs


class PackedDense:
    """out = data @ weight.T + bias for data (M, K), with the weight (N, K) in the layout of oneDNN's kernel.

    Raises LookupError where oneDNN has no good kernel, or one that reads the plain weight.
    """

    def __init__(self, m: int, k: int, n: int, dtype: DType, has_bias: bool) -> None:
        made = _primitive(m, k, n, dtype, has_bias)
        self.plain = memory((k, n), dtype, (1, 0))
        if made is None or (layout := made.wants(WEIGHTS)) is None or layout == self.plain:
            raise LookupError
        self.shape, self.dtype, self.layout = (m, k, n), dtype, layout
        self._product, self._reorder = made, reorder(self.plain, layout)

    @property
    def name(self) -> str:
        return f"onednn {self._product.implementation}"

    @property
    def nbytes(self) -> int:
        """Bytes of work for `connect`."""
        return self._product.scratch

    @property
    def scratch(self) -> int:
        """Bytes of work for `pack`."""
        return self._reorder.scratch

    @cached_property
    def slabs(self) -> Slabs | None:
        """Slabs by which the weight can be packed in place; None if it cannot."""
        _, k, n = self.shape
        try:
            return Slabs((k, n), self.dtype, self.layout, axis=1)
        except LookupError:
            return None

    def pack(self, weight: Any, held: Any, work: Any) -> Run:
        """The call that reorders `weight` into `held`, of `layout.nbytes` bytes."""
        return bind(self._reorder, {SRC: (self.plain, weight), DST: (self.layout, held)}, work)

    def connect(
        self, data: Any, weight: Any, bias: Any, addend: Any, out: Any, work: Any, factor: Any = None
    ) -> Run:
        """The call of the product with a packed weight."""
        m, k, n = self.shape
        arrays = {
            SRC: (memory((m, k), self.dtype), data),
            WEIGHTS: (self.layout, weight),
            DST: (memory((m, n), self.dtype), out),
        }
        if bias is not None:
            arrays[BIAS] = (memory((1, n), self.dtype), bias)
        return bind(self._product, arrays, work)


def packed_dense(r: Request) -> PackedDense | None:
    """How to compute a FullyConnected with a packed weight; None where the plain one is as good."""
    (n, k), m = r.inputs[1], prod(r.outputs[0][:-1])
    if len(set(r.dtypes)) != 1 or 0 in (m, k, n) or not (r.dtype == float32 or multiplies(r.dtype)):
        return None
    return _once(num_threads(), m, k, n, r.dtype, not r.attrs.no_bias)


@lru_cache(maxsize=1024)
def _once(threads: int, *args: Any) -> PackedDense | None:
    try:
        return PackedDense(*args)
    except LookupError:
        return None


@cached
def _primitive(m: int, k: int, n: int, dtype: DType, has_bias: bool) -> Primitive:
    row = memory((1, n), dtype) if has_bias else None
    return Primitive("matmul", memory((m, k), dtype), memory_any((k, n), dtype), row, memory((m, n), dtype))
