"""Matrix products with any strides: oneDNN's blocked kernel or its plain one, whichever suits the sizes.

oneDNN has two kernels for float32. The blocked one ("brg") copies a transposed right factor into blocks, and
one whose row length is a power of two, and reads any other in place: then rows that map to the same sets
of the cache evict each other, and it falls to a third of its speed. The plain one ("gemm", also used by
`dnnl_sgemm`) always copies both factors into panels: no sizes are bad for it, few are best.
`_plain_is_faster` says where it was measured to win. The plain kernel takes a few MB from the system
inside the library, which no plan counts.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ....core.dtype import float32
from ....graph.ir import Shape
from ....graph.opdef import DType
from ....ops.scratch import carve, Piece, scratch_bytes
from .constants import BIAS, DST, INFERENCE, SCALES, SRC, WEIGHTS
from .library import library, OneDNNError
from .memory import dense_strides, Memory, memory
from .primitive import address_of, Attr, bind, cached, in_turn, Primitive, reorder, Run

_byte = np.dtype("uint8")
_AVX2 = 0x7  # the plain kernel needs it: below, it is a loop


@dataclass(frozen=True)
class Layout:
    """Layout of matrices (..., rows, columns) in memory: strides in elements."""

    shape: Shape
    strides: Shape
    dtype: DType = float32

    @classmethod
    def dense(cls, *shape: int, dtype: DType = float32) -> Layout:
        """Layout in C order."""
        return cls(shape, dense_strides(shape, range(len(shape))), dtype)

    @property
    def turned(self) -> Layout:
        """Every matrix transposed in place."""
        (*a, n, m), (*s, j, i) = self.shape, self.strides
        # A stride along an axis of length 1 is arbitrary, but oneDNN takes it for the row stride.
        if m == 1 and j == 1:
            i = n
        elif n == 1 and i == 1:
            j = 1
        return Layout((*a, m, n), (*s, i, j), self.dtype)

    @property
    def memory(self) -> Memory:
        return memory(self.shape, self.dtype, None, self.strides)

    @property
    def is_turned(self) -> bool:
        """True if the matrices are column-major."""
        rows, columns = self.strides[-2:]
        return rows == 1 and columns != 1

    @property
    def lead(self) -> int | None:
        """Elements between two rows (or columns, if column-major); None if neither are contiguous."""
        (m, n), (i, j) = self.shape[-2:], self.strides[-2:]
        if self.is_turned:
            return j if j >= m else None
        return None if j != 1 or (m > 1 and i < n) else max(i, n)


@dataclass(frozen=True)
class Product:
    """A product out = alpha * x @ y (+ bias) (+ adds * out) with its implementation.

    `bind(x, y, out, bias, work)` takes arrays or addresses of first elements, and `work` of `scratch` bytes.
    For an alpha of None it takes `factor` too, an array of one float32 number that is read when it runs.
    """

    name: str
    scratch: int
    bind: Callable[..., Run]


@cached
def product(
    x: Layout,
    y: Layout,
    out: Layout,
    bias: bool = False,
    alpha: float | None = 1.0,
    adds: float = 0.0,
    any_width: bool = False,
    by_plain: bool | None = None,
) -> Product | None:
    """The product of matrices x (..., M, K) and y (..., K, N), plus `adds` times the old content of `out`.

    bias: (N,), contiguous. None if oneDNN has no good implementation; with `any_width` also a product with
    few columns, which fill no vectors, is accepted. by_plain: by the plain kernel where there is one, or by
    the blocked one, whatever suits the sizes.
    """
    m, n = x.shape[-2], y.shape[-1]
    if 0 in x.shape or 0 in y.shape or (n < 8 and m > n and not any_width):
        return None
    if out.is_turned:
        if bias:
            return None
        return turned(product(y.turned, x.turned, out.turned, False, alpha, adds, any_width, by_plain))
    plain = x.dtype == float32 == y.dtype == out.dtype and prod(x.shape[:-2]) == 1 and _has_plain()
    first = plain and (_plain_is_faster(x, y) if by_plain is None else by_plain)
    if first and not bias and (made := _plain(x, y, out, alpha, adds)) is not None:
        return made
    if first and bias and alpha == 1 and not adds:
        if (made := _with_bias(x, y, out)) is not None:
            return made
    made = _blocked(x, y, out, bias, alpha, adds)
    if made is None and plain and not bias:
        return _plain(x, y, out, alpha, adds)
    return made


def copies(n: int) -> bool:
    """True if the blocked kernel copies a right factor with rows of n numbers, which share cache sets."""
    return n > 256 and n & (n - 1) == 0


def _plain_is_faster(x: Layout, y: Layout) -> bool:
    """Heuristic from float32 products of M, N, K from 1 to 10000 on one thread with AVX-512: 4 to 8 % off."""
    (m, k), n = x.shape[-2:], y.shape[-1]
    if min(m, n) == 1:
        return True
    if y.is_turned:
        return not x.is_turned and (m < 4 or (m >= 384 and k >= 64))
    if x.is_turned and x.lead != m:  # the blocked kernel needs a contiguous copy
        return True
    if x.is_turned:  # a result with few columns
        return not (n <= 512 and n % 128 == 0 and k >= 16 and (k > 64 or m < 2048))
    stays = k * n <= 1 << 20  # y, in the cache, while the blocked kernel rereads it
    return not ((copies(n) and 4 < m <= 128) or (n <= 512 and n % 64 == 0 and m >= 128 and k >= 64 and stays))


def turned(made: Product | None) -> Product | None:
    """The product out.T = y.T @ x.T, with the arguments of that of x and y."""
    if made is None:
        return None

    def bound(x: Any, y: Any, out: Any, bias: Any = None, work: Any = None, **more: Any) -> Run:
        return made.bind(y, x, out, bias, work, **more)

    return Product(made.name, made.scratch, bound)


def _blocked(
    x: Layout, y: Layout, out: Layout, bias: bool, alpha: float | None, adds: float
) -> Product | None:
    attr = Attr()
    if alpha != 1:
        attr.scales(SRC)
    if adds:
        attr.add_to_output(adds)
    before = len(out.shape) - 1
    row = Layout((*(1,) * before, out.shape[-1]), (out.shape[-1],) * before + (1,), out.dtype)
    try:
        made = Primitive("matmul", x.memory, y.memory, row.memory if bias else None, out.memory, attr=attr)
    except OneDNNError:
        return None
    if x.is_turned and x.lead != x.shape[-2] and "brg" not in made.implementation:
        return _of_copy(x, y, out, bias, alpha, adds)
    if made.is_reference:
        return None
    own = (ctypes.c_float * 16)(1.0 if alpha is None else alpha)

    def bound(
        x_at: Any, y_at: Any, out_at: Any, bias_at: Any = None, work: Any = None, factor: Any = None
    ) -> Run:
        arrays = {SRC: (x.memory, x_at), WEIGHTS: (y.memory, y_at), DST: (out.memory, out_at)}
        if bias:
            arrays[BIAS] = (row.memory, bias_at)
        if alpha != 1:
            number = ctypes.addressof(own) if alpha is not None else factor
            arrays[SCALES | SRC] = (attr.operands[SCALES | SRC], number)
        run = bind(made, arrays, work)
        run.factor = own  # type: ignore[attr-defined]
        return run

    return Product(f"onednn {made.implementation}", made.scratch, bound)


def _of_copy(
    x: Layout, y: Layout, out: Layout, bias: bool, alpha: float | None, adds: float
) -> Product | None:
    """The product of a contiguous copy of x: with gaps there is no blocked kernel."""
    dense = Layout.dense(*x.turned.shape, dtype=x.dtype)
    made = _blocked(dense.turned, y, out, bias, alpha, adds)
    copy = reorder(x.turned.memory, dense.memory)
    if made is None or copy.is_reference or copy.scratch:
        return None
    pieces: list[Piece] = [(dense.shape, x.dtype), ((made.scratch,), _byte)]

    def bound(
        x_at: Any, y_at: Any, out_at: Any, bias_at: Any = None, work: Any = None, factor: Any = None
    ) -> Run:
        near, rest = carve(work, pieces)
        first = bind(copy, {SRC: (x.turned.memory, x_at), DST: (dense.memory, near)})
        return in_turn([first, made.bind(near, y_at, out_at, bias_at, rest, factor)])

    return Product(made.name, scratch_bytes(pieces), bound)


def _with_bias(x: Layout, y: Layout, out: Layout) -> Product | None:
    """The plain kernel with a bias, as an inner product; only for contiguous matrices."""
    k, n = y.shape[-2:]
    if (x, out) != (Layout.dense(*x.shape), Layout.dense(*out.shape)):
        return None
    if y.turned != Layout.dense(*y.turned.shape) or len(x.shape) != 2:
        return None
    weights, row = memory((n, k), float32), memory((n,), float32)
    try:
        made = Primitive("inner_product_forward", ctypes.c_int(INFERENCE), x.memory, weights, row, out.memory)
    except OneDNNError:
        return None
    if made.is_reference:
        return None

    def bound(x_at: Any, y_at: Any, out_at: Any, bias_at: Any = None, work: Any = None) -> Run:
        arrays = {
            SRC: (x.memory, x_at),
            WEIGHTS: (weights, y_at),
            BIAS: (row, bias_at),
            DST: (out.memory, out_at),
        }
        return bind(made, arrays, work)

    return Product(f"onednn {made.implementation}", made.scratch, bound)


def _has_plain() -> bool:
    lib = library()
    return lib is not None and lib.isa & _AVX2 == _AVX2


def _plain(x: Layout, y: Layout, out: Layout, alpha: float | None, adds: float) -> Product | None:
    """dnnl_sgemm: it selects its kernel at each call, and its threads too."""
    leads = x.lead, y.lead, out.lead
    if alpha is None or None in leads:
        return None
    lib = library()
    assert lib is not None
    (m, k), n = x.shape[-2:], y.shape[-1]
    kinds = [ctypes.c_char(b"T" if z.is_turned else b"N") for z in (x, y)]
    sizes = [ctypes.c_int64(z) for z in (m, n, k)]
    lead_x, lead_y, lead_out = (ctypes.c_int64(z or 0) for z in leads)
    factor, beta = ctypes.c_float(alpha), ctypes.c_float(adds)
    pointer, call = ctypes.c_void_p, lib.sgemm

    def bound(x_at: Any, y_at: Any, out_at: Any, bias: Any = None, work: Any = None) -> Run:
        run = functools.partial(
            call, *kinds, *sizes, factor, pointer(address_of(x_at)), lead_x,
            pointer(address_of(y_at)), lead_y, beta, pointer(address_of(out_at)), lead_out,
        )  # fmt: skip
        run.keep = (x_at, y_at, out_at)  # type: ignore[attr-defined]
        return run

    return Product("onednn gemm", 0, bound)
