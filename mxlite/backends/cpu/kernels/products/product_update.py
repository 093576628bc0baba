"""Updates fused into a gradient product, in bands: a product and a step for each band, in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .....graph.opdef import DType
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import Backend, ChosenKernel, connected, Request
from ....fused.product_update import band_rows, depth, ProductUpdate, step_bytes
from ...kernel_row import BOTH, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.product import Layout, Product
from ...products import product_of, Term
from ..generated.compiled_update import ROWS as STEPS

_byte = np.dtype("uint8")


@dataclass(frozen=True)
class Weight:
    """A matrix (rows, columns) that is updated by ``x.T @ y``, x: (depth, stride), of which `rows` columns
    are used, y: (depth, columns), both of `dtype`.

    parts: rows of x and y in the order in which their products are added up. step: attributes with the step's
    `op` and `attrs`. dtypes: those of the matrix, the step's states, and `hyper`, whose shape is `hyper`.
    any_width: True if few columns are as good as many, as in `onednn.product`.
    """

    rows: int
    columns: int
    parts: tuple[slice, ...]
    stride: int
    dtype: DType
    step: Any
    dtypes: tuple[DType, ...]
    hyper: tuple[int, ...]
    any_width: bool = False

    @property
    def depth(self) -> int:
        return sum(p.stop - p.start for p in self.parts)


class _Band(NamedTuple):
    """Kernels for a band of `rows` rows: the products of its gradient, and the step on them."""

    rows: int
    products: tuple[Product, ...]  # one for each part; those after the first accumulate
    step: ChosenKernel


class Bands(NamedTuple):
    """A weight's update, a band of rows at a time."""

    weight: Weight
    whole: _Band
    rest: _Band

    @property
    def length(self) -> int:
        """Number of rows of a band, except the last one."""
        return self.whole.rows

    @property
    def name(self) -> str:
        return f"{self.whole.products[0].name}, {self.whole.step.name}, {self.length} rows at a time"

    @property
    def numbers(self) -> int:
        """Number of elements of a band's gradient."""
        return self.length * self.weight.columns

    @property
    def for_product(self) -> int:
        """Bytes of scratch for products."""
        return max(p.scratch for band in (self.whole, self.rest) for p in band.products)

    @property
    def for_step(self) -> int:
        """Bytes of scratch for steps."""
        return max(self.whole.step.workspace, self.rest.step.workspace)

    def calls(
        self, xp: Any, x: Any, y: Any, own: Sequence[Any], hyper: Any, room: Sequence[Any]
    ) -> list[Run]:
        """x: (depth, rows), its rows `stride` apart. own: the matrix and states. room: buffers of a gradient,
        of the products' scratch, of the steps' scratch.
        """
        weight, (gradient, for_product, for_step) = self.weight, room
        made = gradient[: self.numbers].reshape(self.length, weight.columns)
        calls: list[Run] = []
        for begin in range(0, weight.rows, self.length):
            band = self.whole if begin + self.length <= weight.rows else self.rest
            part = slice(begin, begin + band.rows)
            for rows, product in zip(weight.parts, band.products):
                factors = x[rows][:1, part], y[rows]
                calls.append(product.bind(*factors, made[: band.rows], None, for_product))
            mine, *states = (z[part] for z in own)
            services = {"work": for_step} if "work" in band.step.signature.services else {}
            given = (mine, made[: band.rows], *states, hyper)
            calls.append(band.step.link(band.step.run, xp, weight.step.attrs, *given, **services))
        return calls


def bands(weight: Weight) -> Bands | None:
    """The bands of a weight; None if there is no good product of such sizes."""
    length = band_rows(weight.rows, weight.columns, weight.depth, weight.dtype)
    whole = _band(weight, length)
    rest = _band(weight, weight.rows % length) if weight.rows % length else whole
    return None if whole is None or rest is None else Bands(weight, whole, rest)


def _band(w: Weight, rows: int) -> _Band | None:
    products = []
    for i, part in enumerate(w.parts):
        count = part.stop - part.start
        x = Layout((rows, count), (1, w.stride))
        layouts = (x, Layout.dense(count, w.columns), Layout.dense(rows, w.columns))
        term = Term("x", "y", "gradient", layouts, adds=i > 0)
        found = product_of(w.dtype, term, w.rows * w.columns * w.depth, any_width=w.any_width)
        if found is None:
            return None
        products.append(found)
    return _Band(rows, tuple(products), step_kernel(w, (rows, w.columns)))


def step_kernel(w: Weight, shape: tuple[int, ...]) -> ChosenKernel:
    """The kernel of the step on part of a weight."""
    return step_of(w.step, shape, w.dtype, w.dtypes, w.hyper)


def step_of(
    step: Any, shape: tuple[int, ...], dtype: DType, kinds: tuple[DType, ...], hyper: tuple[int, ...]
) -> ChosenKernel:
    """The kernel of a step on `shape` elements, see `Weight` for the rest: gradients of `dtype`, `kinds` like
    `dtypes` there.
    """
    op, attrs = step.op, step.attrs
    shapes = (shape, shape, *(shape for _ in kinds[1:-1]), hyper)
    dtypes = (kinds[0], dtype, *kinds[1:])
    asked = Request(op, attrs, shapes, (), dtypes[0], dtypes)
    for row in STEPS.get(op, ()):
        if (made := row(asked)) is not None:
            return made
    reference = Backend.reference(op, attrs, shapes, (), dtypes[0])
    return replace(reference, workspace=step_bytes(step, shape, dtype))


def _update(r: Request) -> ChosenKernel | None:
    rows, columns = r.inputs[2]
    weight = Weight(
        rows, columns, (slice(0, depth(r.inputs)),), rows, r.dtype, r.attrs, r.dtypes[2:], r.inputs[-1]
    )  # fmt: skip
    made = bands(weight)
    if made is None:
        return None
    pieces: list[Piece] = [
        ((made.numbers,), r.dtype),
        ((made.for_product,), _byte),
        ((made.for_step,), _byte),
    ]

    def connect(xp: Any, a: Any, x: Any, y: Any, *arrays: Any, work: Any) -> Run:
        *own, hyper = arrays
        return in_turn(
            made.calls(xp, x.reshape(-1, rows), y.reshape(-1, columns), own, hyper, carve(work, pieces))
        )

    return connected(connect, scratch_bytes(pieces), made.name, like=r.op.forward, mutates=True)


ROWS = kernel_rows(BOTH, {ProductUpdate: _update})
