"""Kernels that consist mainly of matrix products: the products to compute, and their calls.

An operator lists for each output the `Term`s that compute it; the kernel is the sequence of calls for the
requested outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from ...core.dtype import float32
from ...graph.opdef import DType, Signature
from ...te.epilogue import Epilogue
from ..base import ChosenKernel, connected, Knobs, Request
from ..composed_space import ComposedSpace
from .compiled.matrix import product as compiled
from .compiled.matrix.schedule import CACHE_NBYTES, default, DEPTH, MatricesForm, MatricesTask
from .compiled.nests import RowProduct
from .onednn import in_turn, library, Run
from .onednn.product import copies, Layout, Product, product
from .product_part import ProductPart

_bfloat16 = np.dtype(ml_dtypes.bfloat16)
SMALL = 1 << 21
"""Multiplications below which an imperative operation runs the reference kernel: creating a call of
oneDNN takes as long as those. A bound program creates its calls once. Products of 16 bits below it are not
generated either: blocks for them would be larger than the matrices."""


FEWEST, FAR = 5, 8
"""Rows, and second caches that the other matrix fills, from which on generated code multiplies a few rows
faster than oneDNN; half as many caches where oneDNN copies that matrix. 1.17 times, the geometric mean of 16
products of 5 to 18 rows and 4 to 64 MB, the least 1.03; of depth 384 0.93 and 1.00 (one thread, 2026-11)."""


class Term(NamedTuple):
    """out = alpha * x @ y: names of arrays, and their layouts. `view(array)` finds the first element.

    bias: the name of a row that is added. epilogue: applied to each number of the result. adds: factor of the
    old content of `out` (beta). alpha: None for a number that is known at run time, `factor` of `Product`.
    """

    x: str
    y: str
    out: str
    layouts: tuple[Layout, Layout, Layout]
    bias: str = ""
    alpha: float | None = 1.0
    adds: float = 0.0
    views: tuple[Callable[[Any], Any] | None, ...] = (None, None, None)
    epilogue: Epilogue | None = None

    @property
    def work(self) -> int:
        """Number of multiplications."""
        x, y, _ = self.layouts
        return prod(x.shape) * y.shape[-1]


def products(
    r: Request,
    terms: Sequence[Term],
    before: Callable[[Any, Mapping[str, Any]], Sequence[Run]] | None = None,
    least: int = 0,
    views: frozenset[str] = frozenset(),
) -> ChosenKernel | None:
    """The kernel of a request whose outputs are those of `terms`; None if oneDNN is no better.

    `views` are the arrays whose layouts in `terms` are those of the request, contiguous or not.

    `before(xp, arrays)`: calls that come first, for work that is no product; arrays by name, None if not
    wanted, and "work", of `least` bytes or more.
    """
    if len(set(r.dtypes)) != 1:
        return None
    used = [term for term in terms if r.is_used(term.out)]
    parts = [_part(r, term) for term in used]

    def kernel(knobs: Sequence[Knobs]) -> ChosenKernel | None:
        made: list[tuple[Term, Product]] = []
        for term, part, some in zip(used, parts, knobs):
            if (found := part.product(some)) is None:
                return None
            made.append((term, found))
        return _in_turn(r, made, before, least, views)

    if not used or (found := kernel([part.default for part in parts])) is None:
        return None
    return replace(found, space=ComposedSpace(parts, kernel))


def _part(r: Request, term: Term) -> ProductPart:
    """The part of a kernel that computes a term."""
    kinds = r.dtype, r.dtype, r.made(term.out)
    x, y, out = (replace(side, dtype=kind) for side, kind in zip(term.layouts, kinds))
    tile = r.tile
    return ProductPart(
        x,
        y,
        out,
        r.dtype if term.bias else None,
        lambda: product_of(r.dtype, term, tile.work, kinds, tile.any_width),
        term.alpha,
        term.adds,
        tile.any_width,
        term.epilogue is not None,
    )


def _in_turn(
    r: Request,
    made: Sequence[tuple[Term, Product]],
    before: Callable[[Any, Mapping[str, Any]], Sequence[Run]] | None,
    least: int,
    views: frozenset[str],
) -> ChosenKernel:
    """The kernel that computes some products, one after the other."""
    op = r.op
    ins = op.signature.needs

    def connect(xp: Any, a: Any, *inputs: Any, work: Any, **outs: Any) -> Run:
        arrays = {**dict(zip(ins, inputs)), **outs, "work": work}
        calls = list(before(xp, arrays)) if before is not None else []
        for term, how in made:
            if arrays[term.out] is None:
                continue
            x, y, out = (
                arrays[name] if view is None else view(arrays[name])
                for name, view in zip((term.x, term.y, term.out), term.views)
            )
            calls.append(how.bind(x, y, out, arrays.get(term.bias), work))
        return in_turn(calls)

    scratch = max(least, *(how.scratch for _, how in made))
    names = dict.fromkeys(how.name for _, how in made)
    signature = Signature(ins, op.signature.makes, frozenset({"work"}))
    kernel = connected(connect, scratch, ", ".join(names), like=op.forward if views else None, views=views)
    is_small = r.dtype == float32 and sum(term.work for term, _ in made) < SMALL
    return replace(kernel, signature=signature, bound_only=is_small)


def product_of(
    dtype: DType,
    term: Term,
    work: int = 0,
    kinds: tuple[DType, DType, DType] | None = None,
    any_width: bool = False,
) -> Product | None:
    """Product for a term of arrays of one type; None if there is no good one.

    work: multiplications of all terms that one call computes in turn, if this is one of several. kinds: the
    types of x, y and the result, of 16 bits or float32, if not all are `dtype`. any_width: as in
    `onednn.product`.
    """
    has_bias = bool(term.bias)
    if term.epilogue is not None:
        return _row_product(term) if dtype == float32 else None
    if dtype == float32:
        if not any_width:
            if (made := _row_product(term)) is not None or (made := _few_rows(term)) is not None:
                return made
        return product(*term.layouts, has_bias, term.alpha, term.adds, any_width)
    x, y, out = (replace(side, dtype=kind) for side, kind in zip(term.layouts, kinds or (dtype,) * 3))
    if x.dtype == y.dtype and multiplies(x.dtype):
        found = product(x, y, out, has_bias, term.alpha, term.adds, any_width)
        if found is not None:
            return found
    if dtype.itemsize != 2 or term.alpha != 1 or term.adds not in (0, 1):
        return None
    if max(term.work, work) < SMALL:  # they need less scratch without generated code
        return None
    return compiled.product(x, y, out, dtype if has_bias else None, bool(term.adds))


def _row_product(term: Term) -> Product | None:
    """The product of a matrix with one row, or one column, by code that reads the matrix where it lies.

    None if its sums are not along contiguous rows: a matrix that lies otherwise is read by a library better.
    """
    x, y, out = term.layouts
    if term.alpha != 1 or term.adds or len(x.shape) != 2 or 0 in (*x.shape, *y.shape):
        return None
    is_row = x.shape[0] == 1
    # A column is the row of the transposed product.
    row, matrix, made_of = (x, y.turned, out) if is_row else (y.turned, x, out.turned)
    rows, k = matrix.shape
    if row.shape[0] != 1 or matrix != Layout.dense(rows, k):
        return None
    if any(z.shape[1] > 1 and z.strides[1] != 1 for z in (row, made_of)):
        return None
    bias = (rows if is_row else 1) if term.bias else 0
    try:
        made = RowProduct(rows, k, bias, term.epilogue)
    except LookupError:
        return None

    def bound(x_at: Any, y_at: Any, out_at: Any, bias_at: Any = None, work: Any = None) -> Run:
        both = (y_at, x_at) if is_row else (x_at, y_at)
        return made.connect(*both, bias_at, out_at, work)

    return Product(made.name, made.nbytes, bound)


def _few_rows(term: Term) -> Product | None:
    """The product of a few rows and a matrix that comes from far away, by generated code that reads it once,
    where it lies; None where a library is as fast."""
    x, y, out = term.layouts
    (m, k), n = x.shape[-2:], y.shape[-1]
    if len(x.shape) != 2 or term.alpha != 1 or term.adds not in (0, 1) or out.is_turned:
        return None
    if m < FEWEST or k < DEPTH:  # of few steps, the sums are moved as much as y
        return None
    is_far = y.dtype.itemsize * k * n >= (FAR // 2 if copies(n) else FAR) * CACHE_NBYTES
    form = MatricesForm(a_turned=x.is_turned, b_turned=y.is_turned)
    if not is_far or default(MatricesTask(form, m, n, k), 1).packs_b:
        return None
    return compiled.product(x, y, out, float32 if term.bias else None, bool(term.adds))


def multiplies(dtype: DType) -> bool:
    """True if oneDNN multiplies numbers of this 16-bit type natively, and fast."""
    lib = library()
    return dtype == _bfloat16 and lib is not None and lib.has_bf16
