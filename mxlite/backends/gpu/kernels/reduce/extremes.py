"""Maxima and minima over axes, what backward needs of them, and their positions.

The array is read once for the result and once more to record, in a bit, which elements are equal to it.
Positions take one pass; if rows are long and few, they are searched in segments, whose best a
second kernel selects.
"""

from __future__ import annotations

import ctypes
import functools
from math import prod
from typing import Any

from .....core.dtype import as_dtype
from .....graph.ir import Shape
from .....graph.opdef import DType, Op
from .....ops.reduce.extremes import BitsLike, max, min
from .....ops.reduce.positions import argmax, argmax_channel, argmin
from .....ops.reduce.reduce import kept_shape
from .....ops.scratch import carve, scratch_bytes
from ....base import ChosenKernel, connected, Request
from ....elementwise.collapse import collapsed
from ...compiler.kinds import computed_in, known
from ...compiler.source import KernelSource, NAMES, shared
from ...compiler.structure import declared
from ...handwritten.fold import Fold, LARGEST, SAME, SMALLEST, sum_type
from ...handwritten.layout import Divisor, MOST, power_of_two
from ...runtime.device import Arguments, Device, InOrder, nothing, pointer, Run

AXES = 6
THREADS = 256
BLOCKS_PER_MULTIPROCESSOR = 16
BLOCKS = 1024
LEAST_STRETCH = 2048

_BYTE, _PLACE = as_dtype("uint8"), as_dtype("int64")


class Axes(ctypes.Structure):
    """Lengths of axes, and the strides of an array that is broadcast along some."""

    _fields_ = declared("extremes", "Axes", Divisor=Divisor)


class Positions(ctypes.Structure):
    """The structure of this name in extremes.cuh."""

    _fields_ = declared("extremes", "Positions", Divisor=Divisor)


@functools.lru_cache(maxsize=64)
def source(dtype: DType) -> KernelSource:
    """The kernels for arrays of one dtype."""
    types = f"typedef {NAMES[str(dtype)]} T;\ntypedef {computed_in(dtype)} C;\n"
    return KernelSource(shared("types") + types + shared("math", "index", "extremes"))


def axes_of(shape: Shape, target: Shape) -> Axes | None:
    """`shape`'s axes for an array of shape `target`; None if there are too many."""
    lengths, (strides,) = collapsed(shape, [target])
    if len(lengths) > AXES or prod(shape) > MOST:
        return None
    made = Axes()
    for i in range(AXES):
        made.lengths[i] = Divisor(1)
    for i, (n, s) in enumerate(zip(lengths, strides), AXES - len(lengths)):
        made.lengths[i], made.strides[i] = Divisor(n), s
    return made


def _each(device: Device, name: str, dtype: DType, n: int, values: list[Any]) -> Run:
    blocks = -(-n // THREADS)
    if blocks > device.multiprocessors * BLOCKS_PER_MULTIPROCESSOR:
        blocks = device.multiprocessors * BLOCKS_PER_MULTIPROCESSOR
    function = device.function(source(dtype), name)
    return device.launch(function, (blocks, 1, 1), (THREADS, 1, 1), 0, Arguments(values))


def _extreme(device: Device, r: Request, how: int) -> ChosenKernel | None:
    (shape,), target = r.inputs, kept_shape(r.attrs, r.inputs[0])
    n, outputs = prod(shape), prod(target)
    fold = Fold(device, r.dtype, shape, target, SAME, how)
    axes = axes_of(shape, target) if n else Axes()
    if not fold.fits or axes is None:
        return None
    pieces = [((outputs,), r.dtype), ((fold.workspace,), _BYTE)]

    def connect(xp: Any, a: Any, data: Any, *, out: Any, chosen: Any, work: Any) -> Run:
        if not n or not outputs:
            return nothing
        whole, rest = carve(work, pieces)
        kept = whole if out is None else out
        runs = [fold.call(data, kept, rest)]
        if chosen is not None:
            places = [pointer(device.address(x)) for x in (data, kept, chosen)]
            values = [*places, ctypes.c_int64(n), axes]
            runs.append(_each(device, "bits_of_equals", r.dtype, -(-n // 8), values))
        return InOrder(runs)

    name = "cuda max" if how == LARGEST else "cuda min"
    return connected(connect, scratch_bytes(pieces), name, like=r.op.forward)


def _numbers(device: Device, bits: Any, kept: Any, out: Any, axes: Axes) -> Run:
    places = [None if x is None else device.address(x) for x in (bits, kept, out)]
    values = [*map(ctypes.c_void_p, places), ctypes.c_int64(out.size), axes]
    return _each(device, "numbers_of_bits", out.dtype, out.size, values)


def _extreme_gradient(device: Device, r: Request) -> ChosenKernel | None:
    (shape,) = r.inputs
    axes = axes_of(shape, kept_shape(r.attrs, shape)) if prod(shape) else None
    if axes is None or not known(r.dtype):
        return None

    def connect(xp: Any, a: Any, d_out: Any, chosen: Any, *, d_data: Any) -> Run:
        return nothing if d_data is None else _numbers(device, chosen, d_out, d_data, axes)

    return connected(connect, 0, "cuda extreme gradient", like=r.op.forward)


def _bits(device: Device, r: Request) -> ChosenKernel | None:
    shape = r.inputs[1]
    if not 0 < prod(shape) <= MOST or not known(r.dtypes[1]):
        return None

    def connect(xp: Any, a: Any, data: Any, like: Any = None, *, out: Any) -> Run:
        return nothing if out is None else _numbers(device, data, None, out, Axes())

    return connected(connect, 0, "cuda bits", like=r.op.forward)


def _positions(device: Device, r: Request, axis: int | None, smallest: bool) -> ChosenKernel | None:
    (shape,) = r.inputs
    if axis is None:
        outer, length, inner = 1, prod(shape), 1
    else:
        axis %= len(shape)
        outer, length, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    lines = outer * inner
    if not 0 < lines <= MOST or not 0 < length <= MOST or not known(r.dtype):
        return None
    across = inner > 1
    if across:
        x = 32 if lines >= 32 else power_of_two(lines)
        y = THREADS // x if length > THREADS // x else power_of_two(length)
    else:
        x = THREADS if length > THREADS else power_of_two(length)
        y = THREADS // x
    blocks = -(-lines // (x if across else y))
    stretch = length
    if blocks < BLOCKS // 2 and length > 2 * LEAST_STRETCH:
        stretch = -(-length * blocks // BLOCKS)
        stretch = LEAST_STRETCH if stretch < LEAST_STRETCH else stretch
    splits = -(-length // stretch)
    some = splits * lines if splits > 1 else 0
    pieces = [((some,), sum_type(r.dtype)), ((some,), _PLACE)]

    def connect(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> Run:
        if out is None:
            return nothing
        made = Positions(device.address(data), device.address(out), lines=lines, length=length)
        made.stretch, made.inner, made.smallest, made.across = stretch, Divisor(inner), smallest, across
        if some:
            made.values, made.places = map(device.address, carve(work, pieces))
        function = device.function(source(r.dtype), "extreme_positions")
        run = device.launch(function, (blocks, splits, 1), (x, y, 1), 0, Arguments([made]))
        if not some:
            return run
        return InOrder([run, _each(device, "best_positions", r.dtype, lines, [made, ctypes.c_int(splits)])])

    def like(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None: ...

    return connected(connect, scratch_bytes(pieces), "cuda positions", like=like)


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""
    assert max.grad_op is not None and min.grad_op is not None
    return {
        max: [lambda r: _extreme(device, r, LARGEST)],
        min: [lambda r: _extreme(device, r, SMALLEST)],
        max.grad_op: [lambda r: _extreme_gradient(device, r)],
        min.grad_op: [lambda r: _extreme_gradient(device, r)],
        BitsLike: [lambda r: _bits(device, r)],
        argmax: [lambda r: _positions(device, r, r.attrs.axis, False)],
        argmin: [lambda r: _positions(device, r, r.attrs.axis, True)],
        argmax_channel: [lambda r: _positions(device, r, 1, False)],
    }
