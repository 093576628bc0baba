"""Classifiers with their cross-entropy, a chunk of rows at a time: products and generated code in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .....core.dtype import float32
from .....core.machine_code import native
from .....graph.grouped import grouped
from .....graph.ir import Shape
from .....graph.opdef import DType
from .....ops.elementwise.cast import Cast
from .....ops.optim.update import settings
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import Backend, ChosenKernel, connected, Request
from ....fused.dense_cross_entropy import DenseCrossEntropy, LossGradients, LossInputs
from ....fused.dense_cross_entropy_update import DenseCrossEntropyUpdate, LossAndGradients
from ....fused.tile_sizes import score_tiles, weight_cast_tiles
from ...compiled import call, cross_entropy, storable, threads_for, usable
from ...compiled.nests import ColumnSum
from ...compiled.update import update_step
from ...kernel_row import BOTH, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of
from ...onednn.product import Layout, Product
from ...products import multiplies, product_of, Term
from ..generated.elementwise import ROWS as ELEMENTWISE

_byte = np.dtype("uint8")
_LABELS = ("float32", "int32", "uint8")


def _add_up(losses: Any, out: Any) -> None:
    """out (1,) = the sum of losses, accumulated in float64."""
    out[0] = np.add.reduce(losses, dtype=np.float64)


class _Casts:
    """Casts of float32 to `dtype`, with a kernel for each shape; those for `shapes` are created at once."""

    def __init__(self, dtype: DType, shapes: Iterable[Shape]) -> None:
        self.attrs = Cast.Attrs(dtype=dtype.name)
        self.kernels: dict[Shape, ChosenKernel] = {}
        for shape in shapes:
            self.kernel(shape)

    def kernel(self, shape: Shape) -> ChosenKernel:
        if shape not in self.kernels:
            asked = Request(Cast, self.attrs, (shape,), (shape,), float32, (float32,))
            found = (row(asked) for row in ELEMENTWISE.get(Cast, ()))
            whole = Backend.reference(Cast, self.attrs, (shape,), (shape,), float32)
            self.kernels[shape] = next((k for k in found if k is not None), whole)
        return self.kernels[shape]

    def call(self, source: Any, target: Any) -> Run:
        kernel = self.kernel(source.shape)
        return kernel.link(kernel.run, np, self.attrs, source, out=target)


class _Growth(NamedTuple):
    """Accumulation of the weight gradient: the beta of each chunk's product, the first number for the first
    chunk; empty if the gradient is not requested. alpha: as in `Term`. data: the type of the data rows in it.
    """

    adds: tuple[float, ...]
    data: DType
    alpha: float | None = 1.0


class _Chunk(NamedTuple):
    """Products for `rows` rows, with each block of the weight by its length. Gradients that are sums over
    rows are written or added to; see `_Growth` for the weight's.
    """

    rows: int
    scores: Mapping[int, Product]
    to_data: Mapping[tuple[int, bool], Product]  # the bool: True if it is added
    to_weight: tuple[Product, Product] | None = None
    to_bias: tuple[ColumnSum, ColumnSum] | None = None

    @property
    def scratch(self) -> int:
        products = [*self.scores.values(), *self.to_data.values(), *(self.to_weight or ())]
        return max(*(p.scratch for p in products), *(s.nbytes for s in self.to_bias or ()), 0)


class _Chunks(NamedTuple):
    """All `rows` in chunks like `whole`, the last one like `rest`. blocks: rows of the weight that are
    multiplied at a time, and first cast by `casts`, if there is one.
    """

    rows: int
    whole: _Chunk
    rest: _Chunk
    code: native.Code
    pieces: list[Piece]  # chunk of scores, loss of each row, scratch, 16-bit block, float32 gradient
    classes: int
    width: int
    blocks: Sequence[slice]
    casts: _Casts | None

    @property
    def name(self) -> str:
        narrowing = "" if self.casts is None else "compiled cast, "
        product = next(iter(self.whole.scores.values())).name
        return f"{narrowing}{product}, compiled cross entropy, {self.whole.rows} rows at a time"

    def calls(
        self,
        given: LossInputs,
        out: Any,
        gradients: LossGradients,
        work: Any,
        scaled: Callable[[Any], tuple[list[Run], Any, dict[str, Any]]] = lambda rows: ([], rows, {}),
    ) -> list[Run]:
        """`scaled(rows)` gives the calls that prepare rows of data as a factor of the weight gradient, that
        factor, and further arguments of the product.
        """
        data, weight, bias, label, d_out = given
        d_data, d_weight, d_bias = gradients
        scores, losses, scratch, held, wide = carve(work, self.pieces)
        x = data.reshape(self.rows, self.width)
        d_x = None if d_data is None else d_data.reshape(self.rows, self.width)
        head = 0 if d_out is None else address_of(d_out)
        threads = threads_for(16 * self.whole.rows * self.classes)
        calls: list[Run] = []

        def block(rows: slice) -> Any:
            """Rows of the weight, in the type of data."""
            if self.casts is None:
                return weight[rows]
            narrow = held[: rows.stop - rows.start]
            calls.append(self.casts.call(weight[rows], narrow))
            return narrow

        for begin in range(0, self.rows, self.whole.rows):
            chunk = self.whole if begin + self.whole.rows <= self.rows else self.rest
            part = slice(begin, begin + chunk.rows)
            made, later = scores[: chunk.rows], begin > 0
            for rows in self.blocks:
                how, y = chunk.scores[rows.stop - rows.start], block(rows)
                own = None if bias is None else bias[rows]
                calls.append(how.bind(x[part], y, made[:, rows], own, scratch))
            at = [address_of(z) for z in (made, label[part], losses[part])]
            slots = [*at, head, at[0], chunk.rows, self.classes]
            calls.append(call(self.code, "cross_entropy", slots, threads, keep=(work, label, d_out)))
            if chunk.to_weight is not None and d_weight is not None:
                before, factor, told = scaled(x[part])
                calls += before
                calls.append(chunk.to_weight[later].bind(made, factor, d_weight, None, scratch, **told))
            if chunk.to_bias is not None and d_bias is not None:
                calls.append(chunk.to_bias[later].connect(made, d_bias, scratch[: chunk.to_bias[0].nbytes]))
            if chunk.to_data and d_x is not None:
                into = d_x[part] if self.casts is None else wide[: chunk.rows]
                for rows in self.blocks:
                    how, y = chunk.to_data[rows.stop - rows.start, rows.start > 0], block(rows)
                    calls.append(how.bind(made[:, rows], y, into, None, scratch))
                if self.casts is not None:
                    calls.append(self.casts.call(into, d_x[part]))
        if out is not None:
            calls.append(partial(_add_up, losses, out))
        return calls


def _chunks(r: Request, gradients: bool, growth: _Growth) -> _Chunks | None:
    """Chunks for the loss, and with `gradients` for the requested ones; None if there is no good kernel."""
    kinds = dict(zip(r.op.input_names(r.attrs), r.dtypes))
    if kinds["weight"] not in (r.dtype, float32) or kinds.get("bias", r.dtype) != r.dtype or not usable():
        return None
    if kinds["label"].name not in _LABELS or r.dtype.itemsize > 4 or r.dtype.name not in storable():
        return None
    count, (classes, width) = r.inputs[0][0], r.inputs[1]
    if 0 in (count, classes, width):
        return None
    narrows = kinds["weight"] != r.dtype and multiplies(r.dtype)
    blocks = weight_cast_tiles(classes, width).tiles if narrows else [slice(0, classes)]
    length = score_tiles(count, classes, r.dtype).each
    kind = r.dtype if narrows else kinds["weight"]
    whole = _chunk(r, length, blocks, kind, narrows, growth)
    rest = _chunk(r, count % length, blocks, kind, narrows, growth) if count % length else whole
    if whole is None or rest is None:
        return None
    casts = None
    if narrows:
        each = {(s.stop - s.start, width) for s in blocks}
        casts = _Casts(r.dtype, each | {(whole.rows, width), (rest.rows, width)})
    form = cross_entropy.CrossEntropyForm(
        r.dtype.name, kinds["label"].name, True, float32.name if gradients else ""
    )
    pieces: list[Piece] = [
        ((length, classes), r.dtype),
        ((count,), float32),
        ((max(whole.scratch, rest.scratch),), _byte),
        ((blocks[0].stop if narrows else 0, width), r.dtype),
        ((length if narrows and whole.to_data else 0, width), float32),
    ]
    code = cross_entropy.code(form, classes)
    return _Chunks(count, whole, rest, code, pieces, classes, width, blocks, casts)


def _loss(r: Request) -> ChosenKernel | None:
    made = _chunks(r, r.attrs.gradients, _Growth((0, 1) if r.is_used("d_weight") else (), r.dtype))
    if made is None:
        return None

    @grouped
    def connect(xp: Any, a: Any, given: LossInputs, *, out: Any, gradients: LossGradients, work: Any) -> Run:
        return in_turn(made.calls(given, out, gradients, work))

    return connected(connect, scratch_bytes(made.pieces), made.name)


def _update(r: Request) -> ChosenKernel | None:
    """The first chunk scales the momentum that the gradient is added to. A factor of the gradient is applied
    to the rows of data in its product, which are fewer numbers, in float32; or to the product, if that
    is one of 16 bits.
    """
    op, attrs = r.attrs.op.step_of, r.attrs.attrs
    keeps, grows = r.attrs.growth
    if r.dtypes[1] != float32:
        return None
    if multiplies(r.dtype):
        growth = _Growth((keeps, 1), r.dtype, None)
    elif r.dtype == float32:
        growth = _Growth((keeps, 1), float32)
    else:  # a generated product has no beta other than 1
        growth = _Growth((1, 1), float32)
    made = _chunks(r, True, growth)
    if made is None:
        return None
    rest = update_step(op.rest, settings(op, attrs), (float32, float32), gradient=False)
    if rest is None:
        return None
    pieces: list[Piece] = [
        ((scratch_bytes(made.pieces),), _byte),
        ((0 if growth.alpha is None else made.whole.rows, made.width), float32),
        ((1,), float32),
    ]

    @grouped
    def connect(
        xp: Any, a: Any, given: LossInputs, state: Any, hyper: Any, *, outs: LossAndGradients, work: Any
    ) -> Run:
        for_chunks, rows, factor = carve(work, pieces)

        def set_factor() -> None:
            factor[0] = np.float32(hyper[attrs.row, 0] * grows)

        def scaled(x: Any) -> tuple[list[Run], Any, dict[str, Any]]:
            if growth.alpha is None:
                return [], x, {"factor": factor}
            into = rows[: len(x)]
            wide, source = ([], x) if x.dtype == float32 else ([partial(np.copyto, into, x)], into)
            return [*wide, partial(np.multiply, source, factor, into)], into, {}

        before: list[Run] = [set_factor]
        if growth.adds[0] != keeps:
            before.append(partial(np.multiply, state, np.float32(keeps), state))
        gradients = LossGradients(outs.d_data, state, outs.d_bias)
        calls = made.calls(given, outs.out, gradients, for_chunks, scaled)
        more, rates = rest.reads(hyper, attrs.row)
        return in_turn([*before, *calls, *more, rest.run(rates, [((given.weight, state), given.weight)])])

    name = f"{made.name}, {op.op_name}"
    return connected(connect, scratch_bytes(pieces), name, mutates=True)


def _chunk(
    r: Request, rows: int, blocks: Sequence[slice], weight: DType, apart: bool, growth: _Growth
) -> _Chunk | None:
    """None if there is no good product of this size. weight: the type of the weight's block. apart:
    True if the data gradient is accumulated in float32.
    """
    classes, width = r.inputs[1]
    scores, data = Layout((rows, classes), (classes, 1)), Layout.dense(rows, width)
    work = r.inputs[0][0] * classes * width
    bias = "" if r.attrs.no_bias else "bias"
    of_scores: dict[int, Product] = {}
    to_data: dict[tuple[int, bool], Product] = {}
    to_weight: list[Product] = []
    try:
        for count in {s.stop - s.start for s in blocks}:
            part, some = Layout((rows, count), (classes, 1)), Layout.dense(count, width)
            term = Term("data", "weight", "scores", (data, some.turned, part), bias)
            of_scores[count] = _known(r.dtype, term, work, (r.dtype, weight, r.dtype))
            if r.is_used("d_data"):
                made = float32 if apart else r.dtype
                for adds in (False, True) if apart else (False,):
                    term = Term("scores", "weight", "d_data", (part, some, data), adds=adds)
                    to_data[count, adds] = _known(r.dtype, term, work, (r.dtype, weight, made))
        for before in growth.adds:
            layouts = scores.turned, data, Layout.dense(classes, width)
            term = Term("scores", "data", "d_weight", layouts, alpha=growth.alpha, adds=before)
            to_weight.append(_known(r.dtype, term, work, (r.dtype, growth.data, float32)))
        sums = None
        if r.is_used("d_bias"):
            fresh, more = (ColumnSum(rows, classes, r.dtype, float32, adds) for adds in (False, True))
            sums = fresh, more
    except LookupError:
        return None
    return _Chunk(rows, of_scores, to_data, (to_weight[0], to_weight[1]) if to_weight else None, sums)


def _known(dtype: DType, term: Term, work: int, kinds: tuple[DType, DType, DType]) -> Product:
    """The product; raises LookupError if there is none."""
    found = product_of(dtype, term, work, kinds)
    if found is None:
        raise LookupError
    return found


SERVES = ("backends.fused.dense_cross_entropy", "backends.fused.dense_cross_entropy_update")
ROWS = kernel_rows(BOTH, {DenseCrossEntropy: _loss, DenseCrossEntropyUpdate: _update})
