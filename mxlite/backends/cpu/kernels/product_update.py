"""Updates that make their gradient in bands: a product and a step for each band, one behind the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ....ops.scratch import carve, Piece, scratch_bytes
from ...base import Backend, ChosenKernel, connected, Request
from ...product_update import _product_update, band_rows, depth, step_bytes
from ..onednn import in_turn, Run
from ..onednn.product import Layout, Product
from ..products import product_of, Term
from .compiled_update import ROWS as STEPS

_byte = np.dtype("uint8")


class _Band(NamedTuple):
    """How the gradient of `rows` rows is made, and the step on them."""

    rows: int
    product: Product
    step: ChosenKernel


def _update(r: Request) -> ChosenKernel | None:
    rows, columns = r.inputs[2]
    length = band_rows(rows, columns, depth(r.inputs), r.dtype)
    whole = _band(r, length)
    rest = _band(r, rows % length) if rows % length else whole
    if whole is None or rest is None:
        return None
    pieces: list[Piece] = [
        ((length, columns), r.dtype),
        ((max(whole.product.scratch, rest.product.scratch),), _byte),
        ((max(whole.step.workspace, rest.step.workspace),), _byte),
    ]

    def connect(xp: Any, a: Any, x: Any, y: Any, *arrays: Any, work: Any) -> Run:
        *own, hyper = arrays
        x = x.reshape(-1, rows)
        gradient, for_product, for_step = carve(work, pieces)
        calls: list[Run] = []
        for begin in range(0, rows, length):
            band = whole if begin + length <= rows else rest
            part = slice(begin, begin + band.rows)
            made = gradient[: band.rows]
            calls.append(band.product.bind(x[:1, part], y, made, None, for_product))
            weight, *states = (z[part] for z in own)
            services = {"work": for_step} if "work" in band.step.signature.services else {}
            given = (weight, made, *states, hyper)
            calls.append(band.step.link(band.step.run, xp, a.attrs, *given, **services))
        return in_turn(calls)

    name = f"{whole.product.name}, {whole.step.name}, {length} rows at a time"
    return connected(connect, scratch_bytes(pieces), name, like=r.op.forward, mutates=True)


def _band(r: Request, rows: int) -> _Band | None:
    """None where there is no good product of this size."""
    (total, columns), count = r.inputs[2], depth(r.inputs)
    x = Layout((rows, count), (1, total))
    layouts = (x, Layout.dense(count, columns), Layout.dense(rows, columns))
    found = product_of(r.dtype, Term("x", "y", "gradient", layouts), total * columns * count)
    if found is None:
        return None
    a = r.attrs
    shape = (rows, columns)
    shapes = (shape, shape, *(shape for _ in r.inputs[3:-1]), r.inputs[-1])
    dtypes = (r.dtypes[2], r.dtype, *r.dtypes[3:])
    asked = Request(a.op, a.attrs, shapes, (), dtypes[0], dtypes)
    for row in STEPS.get(a.op, ()):
        if (made := row(asked)) is not None:
            return _Band(rows, found, made)
    step = Backend.reference(a.op, a.attrs, shapes, (), dtypes[0])
    return _Band(rows, found, replace(step, workspace=step_bytes(a, shape, r.dtype)))


ROWS = {_product_update: [_update]}
