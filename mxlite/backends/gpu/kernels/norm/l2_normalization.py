"""L2Normalization and its gradient: sums of squares are reduced, then an elementwise pass reads the data."""

from __future__ import annotations

from math import prod
from typing import Any

from .....core.dtype import as_dtype
from .....graph.ir import Shape
from .....ops.norm.l2_normalization import L2Normalization
from .....ops.scratch import carve, scratch_bytes
from .....te.expression import ExpressionValue, Writer
from ....base import ChosenKernel, Request
from ...handwritten.fold import ADD, Fold, PRODUCT, SQUARE, sum_type
from ...rows import answer, table
from ...runtime.device import Device, InOrder, Run
from ..arithmetic.elementwise import loop


def _kept(a: Any, shape: Shape) -> tuple[Shape, Shape]:
    """The data's shape as (N, C, the rest), and that of the sums."""
    n, *rest = shape
    if a.mode == "instance":
        return (n, prod(rest), 1), (n, 1, 1)
    view = (n, rest[0], prod(rest[1:]))
    return view, (n, 1, view[2]) if a.mode == "channel" else (n, view[1], 1)


class _Norm:
    """Data that both directions need."""

    def __init__(self, device: Device, r: Request) -> None:
        self.shape, self.target = _kept(r.attrs, r.inputs[0])
        self.wide = sum_type(r.dtype)
        self.squares = Fold(device, r.dtype, self.shape, self.target, SQUARE, ADD)
        self.products = Fold(device, r.dtype, self.shape, self.target, PRODUCT, ADD, others=[self.shape])
        self.fits = self.squares.fits and self.products.fits and prod(self.shape) > 0
        scratch = max(self.squares.workspace, self.products.workspace)
        n = (prod(self.target),)
        self.pieces = [(n, self.wide), (n, self.wide), ((scratch,), as_dtype("uint8"))]


def _forward(device: Device, r: Request) -> ChosenKernel | None:
    norm = _Norm(device, r)

    def divide(w: Writer, x: ExpressionValue, squares: ExpressionValue) -> ExpressionValue:
        return x / w("sqrt", squares + w.constant(r.attrs.eps))

    made = loop(device, divide, [norm.shape, norm.target], [r.dtype, norm.wide], norm.shape, r.dtype)
    if not norm.fits or made is None:
        return None

    def connect(a: Any, data: Any, *, out: Any, work: Any) -> Run:
        squares, _, rest = carve(work, norm.pieces)
        return InOrder([norm.squares.call(data, squares, rest), made.call(data, squares, out)])

    return answer(r, connect, scratch_bytes(norm.pieces), "cuda L2 norm")


def _backward(device: Device, r: Request) -> ChosenKernel | None:
    norm = _Norm(device, r)

    def slope(
        w: Writer, d: ExpressionValue, x: ExpressionValue, squares: ExpressionValue, products: ExpressionValue
    ) -> ExpressionValue:
        inverse = 1 / w("sqrt", squares + w.constant(r.attrs.eps))
        return (d - x * inverse * (products * inverse)) * inverse

    views = [norm.shape, norm.shape, norm.target, norm.target]
    made = loop(device, slope, views, [r.dtype, r.dtype, norm.wide, norm.wide], norm.shape, r.dtype)
    if not norm.fits or made is None:
        return None

    def connect(a: Any, d_out: Any, data: Any, *, d_data: Any, work: Any) -> Run:
        squares, products, rest = carve(work, norm.pieces)
        return InOrder(
            [
                norm.squares.call(data, squares, rest),
                norm.products.call(d_out, products, rest, [data]),
                made.call(d_out, data, squares, products, d_data),
            ]
        )

    return answer(r, connect, scratch_bytes(norm.pieces), "cuda L2 norm gradient")


rows = table((L2Normalization, _forward, _backward))
