"""Classifiers with their cross-entropy, a band of rows at a time: products and generated code in turn."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ....core.dtype import float32
from ....ops.scratch import carve, Piece, scratch_bytes
from ...base import ChosenKernel, connected, Request
from ...dense_cross_entropy import _dense_cross_entropy, band_rows
from ..compiled import call, cross_entropy, storable, threads_for, usable
from ..compiled.column_sum import ColumnSum
from ..onednn import in_turn, Run
from ..onednn.primitive import address_of
from ..onednn.product import Layout, Product
from ..products import product_of, Term
from .compiled_cross_entropy import add_up, LABELS

_byte = np.dtype("uint8")


class _Band(NamedTuple):
    """What is made of `rows` rows. Gradients that are sums over rows are made anew or added to."""

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


def _bands(r: Request) -> ChosenKernel | None:
    labels = r.dtypes[r.op.input_names(r.attrs).index("label")].name
    if len({*r.dtypes[: 2 + (not r.attrs.no_bias)]}) > 1 or labels not in LABELS or not usable():
        return None
    if r.dtype.itemsize > 4 or r.dtype.name not in storable():
        return None
    count, (classes, width) = r.inputs[0][0], r.inputs[1]
    if 0 in (count, classes, width):
        return None
    length = band_rows(count, classes, r.dtype)
    whole = _band(r, length)
    rest = _band(r, count % length) if count % length else whole
    if whole is None or rest is None:
        return None
    form = cross_entropy.Form(r.dtype.name, labels, True, float32.name if r.attrs.gradients else "")
    code = cross_entropy.code(form, classes)
    threads = threads_for(16 * length * classes)
    pieces: list[Piece] = [
        ((length, classes), r.dtype),
        ((count,), float32),
        ((max(whole.scratch, rest.scratch),), _byte),
    ]

    def connect(
        xp: Any, a: Any, data: Any, weight: Any, bias: Any, label: Any, d_out: Any, *,
        out: Any, d_data: Any, d_weight: Any, d_bias: Any, work: Any,
    ) -> Run:  # fmt: skip
        scores, losses, scratch = carve(work, pieces)
        x = data.reshape(count, width)
        d_x = None if d_data is None else d_data.reshape(count, width)
        head = 0 if d_out is None else address_of(d_out)
        calls: list[Run] = []
        for begin in range(0, count, length):
            band = whole if begin + length <= count else rest
            part = slice(begin, begin + band.rows)
            made, later = scores[: band.rows], begin > 0
            calls.append(band.scores.bind(x[part], weight, made, bias, scratch))
            at = [address_of(z) for z in (made, label[part], losses[part])]
            slots = [*at, head, at[0], band.rows, classes]
            calls.append(call(code, "cross_entropy", slots, threads, keep=(work, label, d_out)))
            if band.to_weight is not None and d_weight is not None:
                calls.append(band.to_weight[later].bind(made, x[part], d_weight, None, scratch))
            if band.to_bias is not None and d_bias is not None:
                calls.append(band.to_bias[later].connect(made, d_bias, scratch[: band.to_bias[0].nbytes]))
            if band.to_data is not None and d_x is not None:
                calls.append(band.to_data.bind(made, weight, d_x[part], None, scratch))
        if out is not None:
            calls.append(partial(add_up, losses, out))
        return in_turn(calls)

    name = f"{whole.scores.name}, compiled cross entropy, {length} rows at a time"
    return connected(connect, scratch_bytes(pieces), name)


def _band(r: Request, rows: int) -> _Band | None:
    """None where there is no good product of this size."""
    classes, width = r.inputs[1]
    data, weight, scores = (
        Layout.dense(*shape) for shape in ((rows, width), (classes, width), (rows, classes))
    )
    bias = "" if r.attrs.no_bias else "bias"
    terms = [Term("data", "weight", "scores", (data, weight.turned, scores), bias)]
    if r.is_used("d_data"):
        terms.append(Term("scores", "weight", "d_data", (scores, weight, data)))
    if r.is_used("d_weight"):
        layouts = (scores.turned, data, weight)
        terms += [Term("scores", "data", "d_weight", layouts, adds=adds) for adds in (False, True)]
    made: dict[tuple[str, bool], Product] = {}
    for term in terms:
        work = r.inputs[0][0] * classes * width
        found = product_of(r.dtype, term, work, float32 if term.out == "d_weight" else None)
        if found is None:
            return None
        made[term.out, term.adds] = found
    to_weight = sums = None
    if r.is_used("d_weight"):
        to_weight = made["d_weight", False], made["d_weight", True]
    if r.is_used("d_bias"):
        try:
            sums = (
                ColumnSum(rows, classes, r.dtype, float32),
                ColumnSum(rows, classes, r.dtype, float32, True),
            )
        except LookupError:
            return None
    return _Band(rows, made["scores", False], made.get(("d_data", False)), to_weight, sums)


ROWS = {_dense_cross_entropy: [_bands]}
