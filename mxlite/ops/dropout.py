"""Dropout (N. Srivastava et al., 2014, "Dropout: a simple way to prevent neural networks from
overfitting")."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from ..core.dtype import as_dtype, float32
from ..core.errors import OpAttributeError, ShapeError
from ..graph.ir import Shape
from ..graph.opdef import DType, Op, Shapes
from .philox import RandomStream
from .scratch import carve, Piece, scratch_bytes

_STEP = 8192  # numbers drawn at a time


class Dropout(Op):
    """Set each element to 0 with probability `p`, multiply the others by 1 / (1 - p).

    data: (...)  ->  out: (...). Identity at inference, unless `mode` is 'always'. Along `axes` one draw
    serves all.

    Element i is kept where number i of the node's random stream is at least `p`. Backward draws the same
    numbers again: no mask is stored, and a forward that is computed a second time gives the same bits.
    p = 1 gives zeros (MXNet 1.9.1: nan). `cudnn_off` has no effect.
    """

    inputs = ("data",)
    same_shape = True
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}
    cheap = True
    random = True

    @dataclass(frozen=True)
    class Attrs:
        p: float = 0.5
        mode: Literal["training", "always"] = "training"
        axes: tuple[int, ...] = ()
        cudnn_off: bool = False

        def __post_init__(self) -> None:
            if not 0 <= self.p <= 1:
                raise OpAttributeError(f"p must be in [0, 1], got {self.p}.")

    @classmethod
    def draws(cls, a: Any, train: bool) -> bool:
        return a.p > 0 and (train or a.mode == "always")

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        _drawn(a, data)
        return (data,), (data,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 12 * prod(inputs[0])  # ten rounds of the generator make four numbers

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return cls.flops(a, inputs, outputs)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(a, inputs[0]))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(a, inputs[0]))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any, rng: Any, train: bool) -> None:
        if out is not None:
            _apply(xp, a, data, out, work, rng, train)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, *, d_data: Any, work: Any, rng: Any, train: bool) -> None:
        if d_data is not None:
            _apply(xp, a, d_out, d_data, work, rng, train)


def _drawn(a: Any, shape: Shape) -> Shape:
    """Shape of the random numbers: 1 along `axes`."""
    for axis in a.axes:
        if not -len(shape) <= axis < len(shape):
            raise ShapeError(f"axes {a.axes} has {axis}, which is not an axis of data {shape}.")
    shared = {axis % len(shape) for axis in a.axes}
    return tuple(1 if i in shared else n for i, n in enumerate(shape))


def _pieces(a: Any, shape: Shape) -> list[Piece]:
    """Random numbers, all of them where they are shared, and the generator's own scratch."""
    size = prod(_drawn(a, shape))
    kept = size if a.axes else min(size, _STEP)
    return [((kept,), float32), ((RandomStream.work_bytes(min(size, _STEP)),), _BYTE)]


_BYTE = as_dtype("uint8")


def _apply(xp: Any, a: Any, x: Any, out: Any, work: Any, rng: Any, train: bool) -> None:
    """out = x * mask / (1 - p)."""
    if a.p == 0 or not (train or a.mode == "always"):
        if x is not out:
            xp.copyto(out, x)
        return
    scale = 1 / (1 - a.p) if a.p < 1 else 0.0
    numbers, own = carve(work, _pieces(a, x.shape))
    drawn = _drawn(a, x.shape)
    if a.axes:
        for i in range(0, numbers.size, _STEP):
            _mask(xp, rng, numbers[i : i + _STEP], own, i, a.p, scale)
        xp.multiply(x, numbers.reshape(drawn), out=out, casting="unsafe")
        return
    flat, result = x.reshape(-1), out.reshape(-1)
    for i in range(0, flat.size, _STEP):
        some = flat[i : i + _STEP]
        _mask(xp, rng, numbers[: some.size], own, i, a.p, scale)
        xp.multiply(some, numbers[: some.size], out=result[i : i + _STEP], casting="unsafe")


def _mask(xp: Any, rng: Any, numbers: Any, own: Any, start: int, p: float, scale: float) -> None:
    """Fill `numbers` with `scale` where random numbers `[start, ...)` are at least p, with 0 elsewhere."""
    rng.fill_uniform(xp, numbers, own, start)
    xp.greater_equal(numbers, p, out=numbers)
    xp.multiply(numbers, scale, out=numbers)
