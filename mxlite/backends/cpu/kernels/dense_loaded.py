"""Dense layers that apply a function to what they read: bands of columns, with the function's in scratch.

for columns [a, b)    made = function(data[:, a:b])            a band, small enough for the cache
                      out += made @ weight[:, a:b].T

for columns [a, b)    slope = d_out @ weight[:, a:b]
                      made, d_data[:, a:b] = function(data[:, a:b]), slope * its slope there
                      d_weight[:, a:b] = d_out.T @ made
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ....core.dtype import float32
from ....graph.ir import Shape
from ....graph.opdef import DType
from ....ops.scratch import carve, Piece, scratch_bytes
from ...base import ChosenKernel, connected, Request
from ...dense.loaded import _loaded_dense, _loaded_dense_gradient, _loaded_dense_update
from ...elementwise.expression import Expression, Writer
from ...elementwise.rules import write
from ..compiled import call, elementwise, threads_for, usable
from ..onednn import in_turn, Run
from ..onednn.primitive import address_of
from ..onednn.product import Layout, Product, product
from .compiled_update import code_of

COLUMNS, GRADIENT_COLUMNS = 256, 1024
"""Of a band forwards, where each number is copied once however narrow bands are, and backwards, where a
product copies all of d_out for every band. Products over columns that are no multiple of 256 are slower."""

LEAST_BYTES = 512 * 1024
"""Of what the function would make: less stays in the cache anyway."""

_byte = np.dtype("uint8")


class _Sizes(NamedTuple):
    """data (n, k), weight (m, k), out (n, m); bands of `width` columns but for the last one."""

    n: int
    m: int
    k: int
    width: int

    @property
    def bands(self) -> list[slice]:
        return [slice(at, min(at + self.width, self.k)) for at in range(0, self.k, self.width)]

    @property
    def widths(self) -> set[int]:
        return {band.stop - band.start for band in self.bands}


def _sizes(dtypes: Sequence[DType], data: Shape, weight: Shape, columns: int) -> _Sizes | None:
    """Bands of about `columns` columns, two of them at least; None where they bring nothing."""
    m, k = weight
    if not usable() or any(d != float32 for d in dtypes) or 4 * prod(data) < LEAST_BYTES or k < 2 * COLUMNS:
        return None
    even = -(-k // max(2, round(k / columns)))
    return _Sizes(prod(data) // k, m, k, -(-even // COLUMNS) * COLUMNS)


def _forward(r: Request) -> ChosenKernel | None:
    """The output."""
    s = _sizes(r.dtypes, r.inputs[0], r.inputs[1], COLUMNS)
    made = None if s is None else _function(r.attrs, r.dtype)
    if s is None or made is None:
        return None
    loops = {c: _loop(made, (s.n, c), (s.k, c)) for c in s.widths}
    out = Layout.dense(s.n, s.m)
    terms: dict[tuple[int, bool], Product] = {}
    for c in s.widths:
        for adds in (False, True):
            x, y = Layout.dense(s.n, c), Layout((s.m, c), (s.k, 1))
            found = product(x, y.turned, out, False, 1.0, adds)
            if found is None:
                return None
            terms[c, adds] = found
    copy = elementwise.Loop(Expression(1, 0, (), (0,)), (), [(s.m,)], [r.dtype], (s.n, s.m), [r.dtype])
    pieces = _scratch(s, r.dtype, list(terms.values()))

    def connect(xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any) -> Run:
        near, rest = carve(work, pieces)
        data = data.reshape(s.n, s.k)
        calls: list[Run] = [] if bias is None else [copy.call(bias, out)]
        for band in s.bands:
            c = band.stop - band.start
            part = near[: s.n * c]
            calls.append(loops[c].call(data[:, band], part))
            term = terms[c, bias is not None or band.start > 0]
            calls.append(term.bind(part, weight[:1, band], out, None, rest))
        return in_turn(calls)

    return connected(connect, scratch_bytes(pieces), _name(s, terms.values()))


class _Bands:
    """How the gradients of a layer are made: the calls of a band, but for what is done with d_weight's."""

    def __init__(self, s: _Sizes, a: Any, dtype: DType, lead: int) -> None:
        """`lead`: elements from row to row of where d_weight's columns are made, 0 for those of a band."""
        made = _function_and_slope(a, dtype)
        if made is None:
            raise LookupError
        self.s = s
        self.loops = {c: _loop(made, (s.n, c), (c, s.k, c, s.k)) for c in s.widths}
        self.terms: dict[int, tuple[Product, Product]] = {}
        d_out = Layout.dense(s.n, s.m)
        for c in s.widths:
            near, weight = Layout.dense(s.n, c), Layout((s.m, c), (s.k, 1))
            by_data = product(d_out, weight, near)
            by_weight = product(d_out.turned, near, Layout((s.m, c), (lead or c, 1)))
            if by_data is None or by_weight is None:
                raise LookupError
            self.terms[c] = by_data, by_weight
        products = [p for pair in self.terms.values() for p in pair]
        self.pieces = _scratch(s, dtype, products)
        self.name = _name(s, products)

    def calls(
        self, band: slice, d_out: Any, weight: Any, data: Any, d_data: Any, d_weight: Any, work: Any
    ) -> list[Run]:
        """For the columns `band`; `d_weight` begins where they do."""
        near, rest = carve(work, self.pieces)
        n, k, c = self.s.n, self.s.k, band.stop - band.start
        by_data, by_weight = self.terms[c]
        part = near[: n * c]
        known, made = data.reshape(n, k)[:, band], d_data.reshape(n, k)[:, band]
        return [
            by_data.bind(d_out, weight[:1, band], part, None, rest),
            self.loops[c].call(part, known, part, made),
            by_weight.bind(d_out, part, d_weight, None, rest),
        ]


def _gradient(r: Request) -> ChosenKernel | None:
    """The gradients in data and weight."""
    s = _sizes(r.dtypes, r.inputs[2], r.inputs[1], GRADIENT_COLUMNS)
    try:
        bands = None if s is None else _Bands(s, r.attrs, r.dtype, s.k)
    except LookupError:
        return None
    if s is None or bands is None:
        return None

    def connect(
        xp: Any, a: Any, d_out: Any, weight: Any, data: Any, *, d_data: Any, d_weight: Any, work: Any
    ) -> Run:
        calls: list[Run] = []
        for band in s.bands:
            calls += bands.calls(band, d_out, weight, data, d_data, d_weight[:1, band], work)
        return in_turn(calls)

    return connected(connect, scratch_bytes(bands.pieces), bands.name)


def _update(r: Request) -> ChosenKernel | None:
    """The gradient in data, and the step on the weight."""
    a = r.attrs
    weight = r.inputs[2]
    asked = Request(
        a.op,
        a.attrs,
        (weight, weight, *r.inputs[3:]),
        (),
        r.dtypes[2],
        (r.dtypes[2], r.dtype, *r.dtypes[3:]),
    )
    s = _sizes(r.dtypes[:3], r.inputs[1], weight, GRADIENT_COLUMNS)
    step = None if s is None else code_of(asked, in_rows=True)
    try:
        bands = None if s is None else _Bands(s, a.layer, r.dtype, 0)
    except LookupError:
        return None
    if s is None or step is None or bands is None:
        return None
    own = scratch_bytes(bands.pieces)
    pieces: list[Piece] = [((s.m * s.width,), r.dtype), ((own,), _byte)]

    def connect(
        xp: Any, a: Any, d_out: Any, data: Any, weight: Any, *others: Any, d_data: Any, work: Any
    ) -> Run:
        *states, hyper = others
        gradient, rest = carve(work, pieces)
        rates = address_of(hyper) + hyper.strides[0] * a.attrs.row
        calls: list[Run] = []
        for band in s.bands:
            calls += bands.calls(band, d_out, weight, data, d_data, gradient, rest)
            c = band.stop - band.start
            slots = [rates, s.m, c]
            for x, lead in ((weight, s.k), (gradient, c), *((x, s.k) for x in states)):
                first = x if x is gradient else x[:1, band]
                slots += [address_of(first), lead]
            nbytes = 4 * s.m * c * (2 + len(states))
            calls.append(call(step, "update", slots, threads_for(2 * nbytes), keep=(work, *others, weight)))
        return in_turn(calls)

    return connected(connect, scratch_bytes(pieces), f"{bands.name}, update", like=r.op.forward, mutates=True)


def _function(a: Any, dtype: DType) -> tuple[Expression, tuple[float, ...]] | None:
    """The function as an expression, and its constants."""
    w = Writer()
    made = write(w, a.function, a.given, {"data": w.input()}, dtype)
    return None if made is None else w.expression([made["out"]])


def _function_and_slope(a: Any, dtype: DType) -> tuple[Expression, tuple[float, ...]] | None:
    """The function and its gradient, of the gradient that arrives and data."""
    w = Writer()
    d, data = w.input(), w.input()
    made = write(w, a.function, a.given, {"data": data}, dtype)
    if made is None:
        return None
    known = {"d_out": d, "data": data, **made}
    op = a.function.grad_op
    back = write(w, op, a.given, {n: known[n] for n in op.input_names(a.given)}, dtype)
    return None if back is None else w.expression([made["out"], back["d_data"]])


def _loop(
    made: tuple[Expression, tuple[float, ...]], shape: tuple[int, int], leads: Sequence[int]
) -> elementwise.Loop:
    expression, constants = made
    ins, outs = expression.num_inputs, len(expression.outputs)
    return elementwise.Loop(
        expression, constants, [shape] * ins, [float32] * ins, shape, [float32] * outs, leads
    )


def _scratch(s: _Sizes, dtype: DType, terms: Sequence[Product]) -> list[Piece]:
    """A band, and what the products need."""
    return [((s.n * s.width,), dtype), ((max(p.scratch for p in terms),), _byte)]


def _name(s: _Sizes, terms: Any) -> str:
    names = dict.fromkeys(p.name for p in terms)
    return f"{', '.join(names)}, {s.width} columns at a time"


ROWS = {
    _loaded_dense: [_forward],
    _loaded_dense_gradient: [_gradient],
    _loaded_dense_update: [_update],
}
