"""Local response normalization (A. Krizhevsky, I. Sutskever, G. Hinton, 2012, "ImageNet classification with
deep convolutional neural networks")."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from ...core.errors import OpAttributeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_rank, Shapes
from ..scratch import accumulator, BLOCK, carve, Piece, scratch_bytes


class LRN(Op):
    """Divide by a power of the squares of neighbouring channels, ``out = data * s ** -beta``.

    data: (N, C, ...)  ->  out: as data. ``s = knorm + alpha / nsize * sum of data^2`` over the channels up to
    (nsize - 1) // 2 away. Backward recomputes s from the data.
    """

    inputs = ("data",)
    accepts = "float"
    in_place = {"out": "data"}
    backward_in_place = {"d_data": ("d_out", "data")}
    cheap = True

    @record
    class Attrs:
        nsize: int
        alpha: float = 1e-4
        beta: float = 0.75
        knorm: float = 2.0

        def __post_init__(self) -> None:
            if self.nsize < 1:
                raise OpAttributeError(f"nsize must be at least 1, got {self.nsize}.")

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        require_rank(data, 2, "data")
        return (data,), (data,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return (a.nsize + 12) * prod(inputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(inputs[0], dtype, 2))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(inputs[0], dtype, 4))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        if out is None:
            return
        boxes = carve(work, _pieces(data.shape, data.dtype, 2))[0]
        x, y = (v.reshape(*v.shape[:2], -1) if v.size else v.reshape(0, 1, 1) for v in (data, out))
        for where in _blocks(x.shape):
            square, total = (_like(b, x[where]) for b in boxes)
            xp.multiply(x[where], x[where], out=square, dtype=square.dtype)
            _base(xp, a, square, total)
            xp.power(total, -a.beta, out=total)
            xp.multiply(x[where], total, out=y[where], casting="unsafe")

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, data: Any, *, d_data: Any, work: Any) -> None:
        # d_data = d * s^-beta - 2 * alpha * beta / nsize * data * window sum of (d * data * s^(-beta - 1))
        if d_data is None:
            return
        boxes = carve(work, _pieces(data.shape, data.dtype, 4))[0]
        x, d, result = (
            v.reshape(*v.shape[:2], -1) if v.size else v.reshape(0, 1, 1) for v in (data, d_out, d_data)
        )
        for where in _blocks(x.shape):
            square, base, power, spread = (_like(b, x[where]) for b in boxes)
            xp.multiply(x[where], x[where], out=square, dtype=square.dtype)
            _base(xp, a, square, base)
            xp.power(base, -a.beta, out=power)
            xp.multiply(power, d[where], out=power)
            xp.divide(power, base, out=square)
            xp.multiply(square, x[where], out=square)
            _window(xp, a, square, spread)
            xp.multiply(spread, x[where], out=spread)
            xp.multiply(spread, 2 * a.alpha * a.beta / a.nsize, out=spread)
            xp.subtract(power, spread, out=result[where], casting="unsafe")


def _base(xp: Any, a: Any, square: Any, out: Any) -> None:
    _window(xp, a, square, out)
    xp.multiply(out, a.alpha / a.nsize, out=out)
    xp.add(out, a.knorm, out=out)


def _window(xp: Any, a: Any, x: Any, out: Any) -> None:
    """out[c] = the sum of x over the channels near c."""
    xp.copyto(out, x)
    for k in range(1, min((a.nsize - 1) // 2, x.shape[1] - 1) + 1):
        xp.add(out[:, k:], x[:, :-k], out=out[:, k:])
        xp.add(out[:, :-k], x[:, k:], out=out[:, :-k])


def _steps(n: int, c: int, p: int) -> tuple[int, int]:
    """Samples and positions of a block, which has all channels."""
    if c * p <= BLOCK:
        return max(1, min(n, BLOCK // max(1, c * p))), max(1, p)
    return 1, max(1, BLOCK // c)


def _blocks(shape: tuple[int, int, int]) -> Iterator[tuple[slice, slice, slice]]:
    n, c, p = shape
    rows, columns = _steps(n, c, p)
    for i in range(0, n, rows):
        for j in range(0, p, columns):
            yield slice(i, i + rows), slice(None), slice(j, j + columns)


def _pieces(shape: Shape, dtype: DType, boxes: int) -> list[Piece]:
    n, c, *rest = shape
    rows, columns = _steps(n, c, prod(rest))
    return [((boxes, rows * c * columns), accumulator(dtype))]


def _like(box: Any, x: Any) -> Any:
    return box[: x.size].reshape(x.shape)
