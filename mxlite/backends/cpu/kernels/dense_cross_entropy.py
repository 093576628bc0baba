"""Classifiers with their cross-entropy, a band of rows at a time: products and generated code in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ....core import native
from ....core.dtype import float32
from ....ops.scratch import carve, Piece, scratch_bytes
from ...base import ChosenKernel, connected, Request
from ...dense_cross_entropy import _dense_cross_entropy, band_rows
from ...dense_cross_entropy_update import _dense_cross_entropy_update
from ..compiled import call, cross_entropy, storable, threads_for, update as compiled_update, usable
from ..compiled.column_sum import ColumnSum
from ..onednn import in_turn, Run
from ..onednn.primitive import address_of
from ..onednn.product import Layout, Product
from ..products import product_of, Term
from .compiled_cross_entropy import add_up, LABELS

_byte = np.dtype("uint8")


class _Band(NamedTuple):
    """What is made of `rows` rows. Gradients that are sums over rows are made anew or added to; see `_grown`
    for the weight's.
    """

    rows: int
    scores: Product
    to_data: Product | None = None
    to_weight: tuple[Product, Product] | None = None
    to_bias: tuple[ColumnSum, ColumnSum] | None = None

    @property
    def scratch(self) -> int:
        products = [self.scores, self.to_data, *(self.to_weight or ())]
        return max(
            *(p.scratch for p in products if p is not None), *(s.nbytes for s in self.to_bias or ()), 0
        )


class _Bands(NamedTuple):
    """All `rows` in bands like `whole`, the last one like `rest`."""

    rows: int
    whole: _Band
    rest: _Band
    code: native.Code
    pieces: list[Piece]  # a band of scores, the loss of each row, scratch
    classes: int
    width: int

    @property
    def name(self) -> str:
        return f"{self.whole.scores.name}, compiled cross entropy, {self.whole.rows} rows at a time"

    def calls(
        self, data: Any, weight: Any, bias: Any, label: Any, d_out: Any, outs: Any, work: Any,
        scaled: Callable[[Any], tuple[list[Run], Any]] = lambda rows: ([], rows),
    ) -> list[Run]:  # fmt: skip
        """outs: as of `_dense_cross_entropy`. `scaled(rows)`: calls that make of rows of data what the
        gradient in the weight is a product with, and that.
        """
        out, d_data, d_weight, d_bias = outs
        scores, losses, scratch = carve(work, self.pieces)
        x = data.reshape(self.rows, self.width)
        d_x = None if d_data is None else d_data.reshape(self.rows, self.width)
        head = 0 if d_out is None else address_of(d_out)
        threads = threads_for(16 * self.whole.rows * self.classes)
        calls: list[Run] = []
        for begin in range(0, self.rows, self.whole.rows):
            band = self.whole if begin + self.whole.rows <= self.rows else self.rest
            part = slice(begin, begin + band.rows)
            made, later = scores[: band.rows], begin > 0
            calls.append(band.scores.bind(x[part], weight, made, bias, scratch))
            at = [address_of(z) for z in (made, label[part], losses[part])]
            slots = [*at, head, at[0], band.rows, self.classes]
            calls.append(call(self.code, "cross_entropy", slots, threads, keep=(work, label, d_out)))
            if band.to_weight is not None and d_weight is not None:
                before, rows = scaled(x[part])
                calls += before
                calls.append(band.to_weight[later].bind(made, rows, d_weight, None, scratch))
            if band.to_bias is not None and d_bias is not None:
                calls.append(band.to_bias[later].connect(made, d_bias, scratch[: band.to_bias[0].nbytes]))
            if band.to_data is not None and d_x is not None:
                calls.append(band.to_data.bind(made, weight, d_x[part], None, scratch))
        if out is not None:
            calls.append(partial(add_up, losses, out))
        return calls


def _bands(r: Request, gradients: bool, to_weight: Sequence[float]) -> _Bands | None:
    """How to make the loss, and with `gradients` those that are wanted; None where there is no good way.

    to_weight: what the first band's gradient in the weight, and that of the others, is added to: times this
    what is there. Nothing where it is not wanted.
    """
    kinds = dict(zip(r.op.input_names(r.attrs), r.dtypes))
    if len({kinds[n] for n in ("data", "weight", "bias") if n in kinds}) > 1 or not usable():
        return None
    if kinds["label"].name not in LABELS or r.dtype.itemsize > 4 or r.dtype.name not in storable():
        return None
    count, (classes, width) = r.inputs[0][0], r.inputs[1]
    if 0 in (count, classes, width):
        return None
    length = band_rows(count, classes, r.dtype)
    whole = _band(r, length, to_weight)
    rest = _band(r, count % length, to_weight) if count % length else whole
    if whole is None or rest is None:
        return None
    form = cross_entropy.Form(r.dtype.name, kinds["label"].name, True, float32.name if gradients else "")
    pieces: list[Piece] = [
        ((length, classes), r.dtype),
        ((count,), float32),
        ((max(whole.scratch, rest.scratch),), _byte),
    ]
    return _Bands(count, whole, rest, cross_entropy.code(form, classes), pieces, classes, width)


def _loss(r: Request) -> ChosenKernel | None:
    made = _bands(r, r.attrs.gradients, (0, 1) if r.is_used("d_weight") else ())
    if made is None:
        return None

    def connect(
        xp: Any, a: Any, data: Any, weight: Any, bias: Any, label: Any, d_out: Any, *,
        out: Any, d_data: Any, d_weight: Any, d_bias: Any, work: Any,
    ) -> Run:  # fmt: skip
        outs = out, d_data, d_weight, d_bias
        return in_turn(made.calls(data, weight, bias, label, d_out, outs, work))

    return connected(connect, scratch_bytes(made.pieces), made.name)


def _update(r: Request) -> ChosenKernel | None:
    """The first band scales the momentum that the gradient is added to. What scales the gradient scales the
    rows of data that it is a product with, which are fewer numbers.
    """
    op, attrs = r.attrs.op.step_of, r.attrs.attrs
    keeps, grows = r.attrs.growth
    if r.dtype != float32:
        return None
    made = _bands(r, True, (keeps, 1))
    if made is None:
        return None
    kinds = (float32.name, float32.name)
    rest = compiled_update.code(op, replace(attrs, row=0), kinds, False, rest=True)
    size = prod(r.inputs[1])
    threads = threads_for(4 * size * float32.itemsize)
    pieces: list[Piece] = [
        ((scratch_bytes(made.pieces),), _byte),
        ((made.whole.rows, made.width), float32),
        ((1,), float32),
    ]

    def connect(
        xp: Any, a: Any, data: Any, weight: Any, bias: Any, label: Any, d_out: Any, state: Any, hyper: Any, *,
        out: Any, d_data: Any, d_bias: Any, work: Any,
    ) -> Run:  # fmt: skip
        for_bands, rows, factor = carve(work, pieces)

        def set_factor() -> None:
            factor[0] = np.float32(hyper[attrs.row, 0] * grows)

        def scaled(x: Any) -> tuple[list[Run], Any]:
            into = rows[: len(x)]
            return [partial(np.multiply, x, factor, into)], into

        outs = out, d_data, state, d_bias
        calls = made.calls(data, weight, bias, label, d_out, outs, for_bands, scaled)
        slots = [
            address_of(hyper) + hyper.strides[0] * attrs.row,
            size,
            address_of(weight),
            address_of(state),
        ]
        after = call(rest, "update", slots, threads, keep=(weight, state, hyper))
        return in_turn([set_factor, *calls, after])

    name = f"{made.name}, {op.op_name}"
    return connected(connect, scratch_bytes(pieces), name, mutates=True)


def _band(r: Request, rows: int, to_weight: Sequence[float]) -> _Band | None:
    """None where there is no good product of this size."""
    classes, width = r.inputs[1]
    data, weight, scores = (
        Layout.dense(*shape) for shape in ((rows, width), (classes, width), (rows, classes))
    )
    work = r.inputs[0][0] * classes * width
    bias = "" if r.attrs.no_bias else "bias"

    def found(x: str, y: str, out: str, layouts: Any, bias: str = "", adds: float = 0) -> Product | None:
        term = Term(x, y, out, layouts, bias, adds=adds)
        return product_of(r.dtype, term, work, float32 if out == "d_weight" else None)

    forward = found("data", "weight", "scores", (data, weight.turned, scores), bias)
    to_data = found("scores", "weight", "d_data", (scores, weight, data)) if r.is_used("d_data") else None
    grown = [found("scores", "data", "d_weight", (scores.turned, data, weight), adds=x) for x in to_weight]
    made = [p for p in grown if p is not None]
    if forward is None or len(made) < len(grown) or (to_data is None and r.is_used("d_data")):
        return None
    sums = None
    if r.is_used("d_bias"):
        try:
            fresh, more = (ColumnSum(rows, classes, r.dtype, float32, adds) for adds in (False, True))
        except LookupError:
            return None
        sums = fresh, more
    return _Band(rows, forward, to_data, (made[0], made[1]) if made else None, sums)


ROWS = {_dense_cross_entropy: [_loss], _dense_cross_entropy_update: [_update]}
