"""Dense layers with an elementwise prologue, applied a block at a time: its result lies in scratch.

for rows [p, q), columns [a, b)    made = function(data[p:q, a:b])      a block, small enough for the cache
                                   out[p:q] += made @ weight[:, a:b].T

for columns [a, b), rows [p, q)    slope = d_out[p:q] @ weight[:, a:b]
                                   made, d_data[p:q, a:b] = function(data[p:q, a:b]), slope * its slope there
                                   d_weight[:, a:b] += d_out[p:q].T @ made

In 16 bits every number is rounded once: the output is computed over all columns at once, the weight gradient
over all rows, or accumulated in float32 if the update follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .....core.dtype import float32
from .....graph.ir import Shape
from .....graph.opdef import DType
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import ChosenKernel, connected, Request
from ....elementwise.expression import Expression, Writer
from ....elementwise.rules import write
from ....fused.loaded_dense import LoadedDense, LoadedDenseGradient, LoadedDenseUpdate
from ...compiled import call, elementwise, storable, threads_for, usable
from ...kernel_row import BOTH, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of
from ...onednn.product import Layout, Product
from ...products import product_of, Term
from ..generated.compiled_update import code_of


class LoadedBlock(NamedTuple):
    """Approximate number of rows and columns of a block; None: all."""

    rows: int | None
    columns: int | None


FORWARD, BACKWARD = LoadedBlock(1024, 256), LoadedBlock(256, 256)
"""Blocks in float32. Kernels copy both factors of a product: forward the weight's columns once for each block
of rows, backward all of d_out once for each block of columns."""

NARROW_FORWARD, NARROW_BACKWARD = LoadedBlock(256, None), LoadedBlock(256, 256)
"""Blocks in 16 bits, where kernels of small blocks are as fast as those of large ones."""

LEAST_BYTES = 512 * 1024
"""Least bytes of the function's result: smaller ones stay in the cache anyway."""

LEAST_COLUMNS = 512
"""Least columns of data, for the same reason."""

_COPY = Expression(1, 0, (), (0,))
_ROWS, _COLUMNS = 16, 256  # whole vectors; products over columns that are no multiple of 256 are slower
_byte = np.dtype("uint8")


class _Sizes(NamedTuple):
    """data (n, k), weight (m, k), out (n, m); blocks of `height` x `width`, last ones smaller."""

    n: int
    m: int
    k: int
    height: int
    width: int

    @property
    def bands(self) -> list[slice]:
        """Column ranges of the blocks."""
        return _parts(self.k, self.width)

    @property
    def chunks(self) -> list[slice]:
        """Row ranges of the blocks."""
        return _parts(self.n, self.height)

    @property
    def widths(self) -> set[int]:
        return set(map(_length, self.bands))

    @property
    def heights(self) -> set[int]:
        return set(map(_length, self.chunks))


def _parts(count: int, each: int) -> list[slice]:
    return [slice(at, min(at + each, count)) for at in range(0, count, each)]


def _length(part: slice) -> int:
    length: int = part.stop - part.start
    return length


def _sizes(dtypes: Iterable[DType], data: Shape, weight: Shape, block: LoadedBlock) -> _Sizes | None:
    """Blocks of about this size; None if they bring no gain."""
    kinds = set(dtypes)
    if not usable() or len(kinds) > 1 or weight[1] < LEAST_COLUMNS:
        return None
    (dtype,), (m, k) = kinds, weight
    n = prod(data) // k
    if dtype.itemsize > 4 or dtype.name not in storable() or dtype.itemsize * n * k < LEAST_BYTES:
        return None
    return _Sizes(n, m, k, _even(n, block.rows, _ROWS), _even(k, block.columns, _COLUMNS))


def _even(count: int, wanted: int | None, multiple: int) -> int:
    """About `wanted`, such that parts of `count` are about equal and the last is not too small for good
    products; all of it for None.
    """
    if wanted is None:
        return count
    each = -(-count // max(1, round(count / wanted)))
    each = -(-each // multiple) * multiple
    while each < count and count % each in range(1, _ROWS):
        each += _ROWS
    return min(count, each)


def _forward(r: Request) -> ChosenKernel | None:
    """The output."""
    s = _sizes(r.dtypes, r.inputs[0], r.inputs[1], FORWARD if r.dtype == float32 else NARROW_FORWARD)
    made = None if s is None else _function(r.attrs, r.dtype)
    if s is None or made is None:
        return None
    loops = {(h, c): _loop(made, r.dtype, (h, c), (s.k, c)) for h in s.heights for c in s.widths}
    starts = len(s.bands) == 1  # the first product writes all
    terms: dict[tuple[int, int, bool], Product] = {}
    for h in s.heights:
        for c in s.widths:
            for adds in (False,) if starts else (False, True):
                layouts = Layout.dense(h, c), Layout((c, s.m), (1, s.k)), Layout.dense(h, s.m)
                bias = "bias" if starts and not r.attrs.no_bias else ""
                found = product_of(r.dtype, Term("made", "weight", "out", layouts, bias, adds=adds))
                if found is None:
                    return None
                terms[h, c, adds] = found
    copy = elementwise.Loop(_COPY, (), [(s.m,)], [r.dtype], (s.n, s.m), [r.dtype])
    pieces = _scratch(s, r.dtype, terms.values())

    def connect(xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any) -> Run:
        near, rest = carve(work, pieces)
        data, out = data.reshape(s.n, s.k), out.reshape(s.n, s.m)
        is_there = bias is not None and not starts
        calls: list[Run] = [copy.call(bias, out)] if is_there else []
        for rows in s.chunks:
            for band in s.bands:
                h, c = _length(rows), _length(band)
                part = near[: h * c]
                calls.append(loops[h, c].call(data[rows, band], part))
                term = terms[h, c, is_there or band.start > 0]
                calls.append(term.bind(part, weight[:1, band], out[rows], bias if starts else None, rest))
        return in_turn(calls)

    return connected(connect, scratch_bytes(pieces), _name(s, terms.values()))


class _Bands:
    """Products for the gradients of a layer: the calls of a band, without those that consume d_weight."""

    def __init__(self, s: _Sizes, a: Any, weight: DType, dtype: DType, total: DType, lead: int) -> None:
        """weight: the type of the weight. total: that of d_weight. lead: row stride of the array that
        d_weight's columns are written to, 0 for that of a band.
        """
        made = _function_and_slope(a, dtype)
        if made is None:
            raise LookupError
        self.s = s
        sizes = [(h, c) for h in s.heights for c in s.widths]
        self.loops = {(h, c): _loop(made, dtype, (h, c), (c, s.k, c, s.k)) for h, c in sizes}
        self.rounds: dict[int, elementwise.Loop] = {}
        if weight != dtype:
            self.rounds = {
                c: elementwise.Loop(_COPY, (), [(s.m, c)], [weight], (s.m, c), [dtype], (s.k, c))
                for c in s.widths
            }
        self.by_data: dict[tuple[int, int], Product] = {}
        self.by_weight: dict[tuple[int, int, bool], Product] = {}
        each = s.n * s.m * s.k
        for h, c in sizes:
            d_out, near = Layout.dense(h, s.m), Layout.dense(h, c)
            columns = Layout((s.m, c), (c if self.rounds else s.k, 1))
            self.by_data[h, c] = _known(dtype, Term("d_out", "weight", "slope", (d_out, columns, near)), each)
            for adds in (False, True) if len(s.chunks) > 1 else (False,):
                layouts = d_out.turned, near, Layout((s.m, c), (lead or c, 1))
                term = Term("d_out", "made", "d_weight", layouts, adds=adds)
                self.by_weight[h, c, adds] = _known(dtype, term, each, total)
        products = [*self.by_data.values(), *self.by_weight.values()]
        self.pieces = [
            ((s.m * s.width if self.rounds else 0,), dtype),
            *_scratch(s, dtype, products),
        ]
        self.name = _name(s, products)

    def calls(
        self, band: slice, d_out: Any, weight: Any, data: Any, d_data: Any, d_weight: Any, work: Any
    ) -> list[Run]:
        """Calls for the columns `band`; `d_weight` begins with them."""
        s, c = self.s, _length(band)
        rounded, near, rest = carve(work, self.pieces)
        d_out, data, d_data = d_out.reshape(s.n, s.m), data.reshape(s.n, s.k), d_data.reshape(s.n, s.k)
        found = []
        columns = weight[:1, band]
        if self.rounds:
            found.append(self.rounds[c].call(columns, rounded))
            columns = rounded
        for rows in s.chunks:
            h = _length(rows)
            part = near[: h * c]
            found += [
                self.by_data[h, c].bind(d_out[rows], columns, part, None, rest),
                self.loops[h, c].call(part, data[rows, band], part, d_data[rows, band]),
                self.by_weight[h, c, rows.start > 0].bind(d_out[rows], part, d_weight, None, rest),
            ]
        return found


def _known(dtype: DType, term: Term, work: int, made: DType | None = None) -> Product:
    """The product, with a result of type `made`; raises LookupError if there is none."""
    found = product_of(dtype, term, work, (dtype, dtype, made or dtype))
    if found is None:
        raise LookupError
    return found


def _gradient(r: Request) -> ChosenKernel | None:
    """The gradients in data and weight."""
    block = BACKWARD if r.dtype == float32 else NARROW_BACKWARD._replace(rows=None)
    s = _sizes(r.dtypes, r.inputs[2], r.inputs[1], block)
    try:
        bands = None if s is None else _Bands(s, r.attrs, r.dtype, r.dtype, r.dtype, s.k)
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
    """The data gradient, and the step on the weight."""
    a = r.attrs
    weight, kind = r.inputs[2], r.dtypes[2]
    asked = Request(
        a.op,
        a.attrs,
        (weight, weight, *r.inputs[3:]),
        (),
        kind,
        (kind, float32, *r.dtypes[3:]),
    )
    block = BACKWARD if r.dtype == float32 else NARROW_BACKWARD
    s = _sizes(r.dtypes[:2], r.inputs[1], weight, block) if kind == float32 else None
    step = None if s is None else code_of(asked, in_rows=True)
    try:
        bands = None if s is None else _Bands(s, a.layer, kind, r.dtype, float32, 0)
    except LookupError:
        return None
    if s is None or step is None or bands is None:
        return None
    own = scratch_bytes(bands.pieces)
    pieces: list[Piece] = [((s.m * s.width,), float32), ((own,), _byte)]

    def connect(
        xp: Any, a: Any, d_out: Any, data: Any, weight: Any, *others: Any, d_data: Any, work: Any
    ) -> Run:
        *states, hyper = others
        gradient, rest = carve(work, pieces)
        rates = address_of(hyper) + hyper.strides[0] * a.attrs.row
        calls: list[Run] = []
        for band in s.bands:
            calls += bands.calls(band, d_out, weight, data, d_data, gradient, rest)
            c = _length(band)
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
    """The function and its gradient, which reads the incoming gradient and data."""
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
    made: tuple[Expression, tuple[float, ...]], dtype: DType, shape: tuple[int, int], leads: Sequence[int]
) -> elementwise.Loop:
    expression, constants = made
    ins, outs = expression.num_inputs, len(expression.outputs)
    return elementwise.Loop(expression, constants, [shape] * ins, [dtype] * ins, shape, [dtype] * outs, leads)


def _scratch(s: _Sizes, dtype: DType, terms: Iterable[Product]) -> list[Piece]:
    """Scratch of a block, and of the products."""
    return [((s.height * s.width,), dtype), ((max(p.scratch for p in terms),), _byte)]


def _name(s: _Sizes, terms: Iterable[Product]) -> str:
    names = dict.fromkeys(p.name for p in terms)
    return f"{', '.join(names)}, {s.height} rows, {s.width} columns at a time"


ROWS = kernel_rows(
    BOTH,
    {
        LoadedDense: _forward,
        LoadedDenseGradient: _gradient,
        LoadedDenseUpdate: _update,
    },
)
