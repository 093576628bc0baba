"""Dropout (N. Srivastava et al., 2014, "Dropout: a simple way to prevent neural networks from
overfitting")."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, Literal

from ...core.dtype import as_dtype, float32
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..layout import first
from ..random.philox import RandomStream
from ..scratch import carve, Piece, scratch_bytes

_STEP = 8192  # numbers drawn at a time


class Dropout(Op):
    """Set each element to 0 with probability `p`, multiply the others by 1 / (1 - p).

    data: (...)  ->  out: (...). Identity at inference, unless `mode` is 'always'. Along `axes` one draw
    serves all.

    Element i is kept if number i of the node's random stream is at least `p`. Backward draws the same
    numbers: no mask is stored, and a recomputed forward gives the same bits.
    p = 1 gives zeros (MXNet 1.9.1: nan). `cudnn_off` has no effect.
    """

    inputs = ("data",)
    same_shape = True
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}
    cheap = True
    random = True
    flops_per_input = 12

    @record
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
    def plain(shape: Shape) -> Shape:
        """A shape in the order of axes in which random numbers are counted."""
        return shape

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        _drawn(a, cls.plain(shapes[0]))
        return shapes, shapes

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return cls.flops(a, inputs, outputs)

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(a, cls.plain(inputs[0])))

    backward_workspace = workspace

    @classmethod
    def forward(cls, xp: Any, a: Any, data: Any, *, out: Any, work: Any, rng: Any, train: bool) -> None:
        if out is not None:
            cls.apply(xp, a, data, out, work, rng, train)

    @classmethod
    def backward(cls, xp: Any, a: Any, d_out: Any, *, d_data: Any, work: Any, rng: Any, train: bool) -> None:
        if d_data is not None:
            cls.apply(xp, a, d_out, d_data, work, rng, train)

    @staticmethod
    def apply(xp: Any, a: Any, x: Any, out: Any, work: Any, rng: Any, train: bool) -> None:
        """out = x * mask / (1 - p)."""
        if _is_copied(xp, a, x, out, train):
            return
        numbers, own = carve(work, _pieces(a, x.shape))
        if a.axes:
            _share(xp, a, x, out, numbers, own, rng)
            return
        flat, result = x.reshape(-1), out.reshape(-1)
        for i in range(0, flat.size, _STEP):
            some = flat[i : i + _STEP]
            _mask(xp, rng, numbers[: some.size], own, i, a.p)
            xp.multiply(some, numbers[: some.size], out=result[i : i + _STEP], casting="unsafe")


class DropoutChannelsLast(Dropout):
    """Dropout of a channels-last array, bit for bit that of Dropout in the usual order.

    data: (N, *S, C)  ->  out: as data. The element of sample n, channel c, position s has the number that it
    has in an array (N, C, *S). `axes` count as they do there.
    """

    op_name = "_dropout_channels_last"
    plain = staticmethod(first)

    @staticmethod
    def apply(xp: Any, a: Any, x: Any, out: Any, work: Any, rng: Any, train: bool) -> None:
        _apply_in_order(xp, a, xp.moveaxis(x, -1, 1), xp.moveaxis(out, -1, 1), work, rng, train)


def _drawn(a: Any, shape: Shape) -> Shape:
    """Shape of the random numbers: 1 along `axes`."""
    for axis in a.axes:
        if not -len(shape) <= axis < len(shape):
            raise ShapeError(f"axes {a.axes} has {axis}, which is not an axis of data {shape}.")
    shared = {axis % len(shape) for axis in a.axes}
    return tuple(1 if i in shared else n for i, n in enumerate(shape))


def numbers(a: Any, shape: Shape, is_last: bool) -> tuple[Shape, Shape]:
    """Axes of the data in memory order, and the strides of an element's random number along them.

    is_last: True if channels are last. Axes of length 1 are left out, others joined if possible.
    """
    drawn = _drawn(a, first(shape) if is_last else shape)
    steps = [0 if n == 1 else prod(drawn[i + 1 :]) for i, n in enumerate(drawn)]
    if is_last:
        steps = [steps[0], *steps[2:], steps[1]]
    joined: list[tuple[int, int]] = []
    for n, step in zip(shape, steps):
        if n != 1 and joined and joined[-1][1] == step * n:
            joined[-1] = joined[-1][0] * n, step
        elif n != 1:
            joined.append((n, step))
    return tuple(n for n, _ in joined), tuple(step for _, step in joined)


def _pieces(a: Any, shape: Shape) -> list[Piece]:
    """Random numbers, all of them if they are shared, and the generator's own scratch."""
    size = prod(_drawn(a, shape))
    kept = size if a.axes else min(size, _STEP)
    return [((kept,), float32), ((RandomStream.work_bytes(min(size, _STEP)),), _BYTE)]


_BYTE = as_dtype("uint8")


def _apply_in_order(xp: Any, a: Any, x: Any, out: Any, work: Any, rng: Any, train: bool) -> None:
    """`Dropout.apply` for x and out (N, C, *S) whose elements lie in another order; S may be joined.

    Numbers are drawn for as many channels of a sample as the scratch holds, or for a part of one.
    """
    if _is_copied(xp, a, x, out, train):
        return
    numbers, own = carve(work, _pieces(a, x.shape))
    if a.axes:
        _share(xp, a, x, out, numbers, own, rng)
        return
    samples, channels, *rest = x.shape
    positions = prod(rest)
    x, out = (v.reshape(samples, channels, positions) for v in (x, out))
    some, stretch = max(1, _STEP // max(1, positions)), min(max(1, positions), _STEP)
    for n, c, s in product(range(samples), range(0, channels, some), range(0, positions, stretch)):
        part = n, slice(c, c + some), slice(s, s + stretch)
        data = x[part]
        drawn = numbers[: data.size]
        _mask(xp, rng, drawn, own, (n * channels + c) * positions + s, a.p)
        xp.multiply(data, drawn.reshape(data.shape), out=out[part], casting="unsafe")


def _is_copied(xp: Any, a: Any, x: Any, out: Any, train: bool) -> bool:
    """True if nothing is to be dropped; then `out` is already set to x."""
    if a.p != 0 and (train or a.mode == "always"):
        return False
    if x is not out:
        xp.copyto(out, x)
    return True


def _share(xp: Any, a: Any, x: Any, out: Any, numbers: Any, own: Any, rng: Any) -> None:
    """`Dropout.apply` with one number for all elements along `axes`."""
    for i in range(0, numbers.size, _STEP):
        _mask(xp, rng, numbers[i : i + _STEP], own, i, a.p)
    xp.multiply(x, numbers.reshape(_drawn(a, x.shape)), out=out, casting="unsafe")


def _mask(xp: Any, rng: Any, numbers: Any, own: Any, start: int, p: float) -> None:
    """Fill `numbers`: 1 / (1 - p) where random numbers `[start, ...)` are at least p, 0 elsewhere."""
    scale = 1 / (1 - p) if p < 1 else 0.0
    rng.fill_uniform(xp, numbers, own, start)
    xp.greater_equal(numbers, p, out=numbers)
    xp.multiply(numbers, scale, out=numbers)
