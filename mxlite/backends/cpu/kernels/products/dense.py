"""FullyConnected on oneDNN's matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .....core.dtype import float32
from .....ops.nn.dense import add_rows, FullyConnected
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import ChosenKernel, connected, Request
from ....fused.accumulated_state import factor_of, StateTerm
from ....fused.dense_epilogue import DenseEpilogue
from ...compiled.nests import ColumnSum
from ...kernel_row import BOTH, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.product import Layout
from ...products import multiplies, product_of, products, Term

_byte = np.dtype("uint8")

COPIED_ROWS = 128
"""Rows of d_out or out up to which a product with the weight gets a contiguous copy: that takes less time."""


def sides(r: Request) -> tuple[Layout, Layout, Layout]:
    """Layouts of data (N, K), weight (M, K), out (N, M)."""
    (m, k), n = r.inputs[1], prod(r.outputs[0][:-1])
    return Layout.dense(n, k), Layout.dense(m, k), Layout.dense(n, m)


def _view(r: Request, name: str, layout: Layout) -> Layout:
    """The layout of an array that need not be contiguous."""
    strides = r.strides(name)
    return layout if strides is None else Layout(layout.shape, strides)


def _forward(r: Request) -> ChosenKernel | None:
    epilogue = r.attrs.epilogue if r.op is DenseEpilogue else None
    if epilogue is not None and r.train:  # in training, other passes look for a layer and what follows it
        return None
    data, weight, out = sides(r)
    bias = "" if r.attrs.no_bias else "bias"
    copies = out.shape[0] <= COPIED_ROWS
    layouts = data, _view(r, "weight", weight).turned, out if copies else _view(r, "out", out)
    term = Term("data", "weight", "out", layouts, bias, adds=r.adds("out"), epilogue=epilogue)
    return products(r, [term], views=frozenset({"weight"} if copies else {"weight", "out"}))


def _backward(r: Request) -> ChosenKernel | None:
    data, weight, out = sides(r)
    copies = r.is_used("d_data") and out.shape[0] <= COPIED_ROWS
    columns = out if copies else _view(r, "d_out", out)
    by_data = columns, _view(r, "weight", weight), data
    by_weight = columns.turned, data, _view(r, "d_weight", weight)
    terms = [
        Term("d_out", "weight", "d_data", by_data, adds=r.adds("d_data")),
        Term("d_out", "data", "d_weight", by_weight, adds=r.adds("d_weight")),
    ]
    views = frozenset({"weight", "d_weight"} | (set() if copies else {"d_out"}))
    sums = BiasSums.of(r, out)

    def before(xp: Any, arrays: Mapping[str, Any]) -> Sequence[Run]:
        return sums.calls(xp, *(arrays[n] for n in ("d_out", "d_bias", "work")))

    if not r.is_used("d_data") and not r.is_used("d_weight"):
        return None if sums.down is None or r.tile.keeps != 1 else _sums_alone(sums.down)
    if r.tile.is_special and r.is_used("d_bias"):
        return None
    return products(r, terms, before, sums.nbytes, views)


class BiasSums(NamedTuple):
    """The gradient of a bias: sums over `rows` rows of d_out. `down`: generated code, if there is any."""

    rows: int
    down: ColumnSum | None

    @classmethod
    def of(cls, r: Request, out: Layout) -> BiasSums:
        """The sums for a call, which computes d_bias or not."""
        rows, columns = out.shape
        adds, made = r.adds("d_bias") == 1, r.made("d_bias")
        try:
            down = ColumnSum(rows, columns, r.dtype, made, adds) if r.is_used("d_bias") else None
        except LookupError:
            down = None
        return cls(rows, down)

    @property
    def nbytes(self) -> int:
        """Bytes of scratch."""
        return 0 if self.down is None else self.down.nbytes

    def calls(self, xp: Any, d_out: Any, d_bias: Any, work: Any) -> list[Run]:
        """Calls that compute d_bias, if it is requested."""
        if d_bias is None:
            return []
        if self.down is not None:
            return [self.down.connect(d_out, d_bias, work[: self.nbytes])]
        return [partial(add_rows, xp, d_out.reshape(self.rows, -1), d_bias)]


def _sums_alone(down: ColumnSum) -> ChosenKernel:
    """The gradient of a bias, if another node computes those of data and weight."""

    def connect(xp: Any, a: Any, d_out: Any, *, d_bias: Any, work: Any) -> Run:
        return down.connect(d_out, d_bias, work[: down.nbytes])

    return connected(connect, down.nbytes, down.name)


def _state_term(r: Request) -> ChosenKernel | None:
    """The factor is applied to the rows of data, which are fewer numbers, in float32; or to the product, if
    that is one of 16 bits.
    """
    (n, m), (_, k), _ = r.inputs
    if float32 not in (r.dtype, r.made("term")) or r.dtypes[1] != r.dtype:
        return None
    scales_rows = not multiplies(r.dtype)
    layouts = Layout.dense(n, m).turned, Layout.dense(n, k), Layout.dense(m, k)
    term = Term("d_out", "data", "term", layouts, alpha=1.0 if scales_rows else None, adds=r.adds("term"))
    kinds = r.dtype, float32 if scales_rows else r.dtype, float32
    how = product_of(r.dtype, term, r.tile.work, kinds)
    if how is None:
        return None
    pieces: list[Piece] = [((1,), float32), ((n if scales_rows else 0, k), float32), ((how.scratch,), _byte)]

    def connect(xp: Any, a: Any, d_out: Any, data: Any, hyper: Any, *, term: Any, work: Any) -> Run:
        factor, rows, scratch = carve(work, pieces)

        def scale() -> None:
            factor[0] = factor_of(a, hyper, float32)

        calls: list[Run] = [scale]
        if scales_rows:
            wide = data
            if data.dtype != float32:
                calls.append(partial(np.copyto, rows, data))
                wide = rows
            calls.append(partial(np.multiply, wide, factor, rows))
        own = {} if scales_rows else {"factor": factor}
        calls.append(how.bind(d_out, rows if scales_rows else data, term, None, scratch, **own))
        return in_turn(calls)

    return connected(connect, scratch_bytes(pieces), how.name)


SERVES = (
    "backends.fused.dense_epilogue",
    "backends.fused.accumulated_state",
    "ops.nn.dense",
)
ROWS = {
    **kernel_rows(
        BOTH,
        {FullyConnected: _forward, FullyConnected.grad_op: _backward, StateTerm: _state_term},
        tiles=True,
    ),
    **kernel_rows(BOTH, {DenseEpilogue: _forward}),
}
