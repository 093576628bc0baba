"""Maxima and minima over axes, what backward needs of them, and their positions.

The array is read once for the result and once more to record, in a bit, which elements are equal to it.
Positions take one pass; if rows are long and few, they are searched in segments, whose best a
second kernel selects.
"""

from __future__ import annotations

import ctypes
from functools import partial
from math import prod
from typing import Any

from .....core.dtype import as_dtype
from .....graph.ir import Shape
from .....graph.opdef import DType
from .....ops.reduce.extremes import BitsLike, max, min
from .....ops.reduce.positions import argmax, argmax_channel, argmin
from .....ops.reduce.reduce import kept_shape
from .....ops.scratch import carve, scratch_bytes
from ....base import ChosenKernel, Request
from ...compiler.kinds import computed_in, known
from ...compiler.source import assembled, KernelSource, NAMES, structure, typedefs
from ...handwritten.each import launch, spread, THREADS
from ...handwritten.fold import Fold, LARGEST, SAME, SMALLEST, sum_type
from ...handwritten.layout import collapsed, Divisor, MOST, power_of_two
from ...rows import answer, At, row, table, where
from ...runtime.device import Device, InOrder, nothing, Run

AXES = 6
BLOCKS = 1024
LEAST_STRETCH = 2048

_BYTE, _PLACE = as_dtype("uint8"), as_dtype("int64")


Axes: Any = structure("extremes", "Axes", Divisor=Divisor)
Positions: Any = structure("extremes", "Positions", Divisor=Divisor)


def source(dtype: DType) -> KernelSource:
    """The kernels for arrays of one dtype."""
    return assembled(
        "types", typedefs(T=NAMES[str(dtype)], C=computed_in(dtype)), "math", "index", "extremes"
    )


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


def _extreme(device: Device, r: Request, how: int) -> ChosenKernel | None:
    (shape,), target = r.inputs, kept_shape(r.attrs, r.inputs[0])
    n, outputs = prod(shape), prod(target)
    fold = Fold(device, r.dtype, shape, target, SAME, how)
    axes = axes_of(shape, target) if n else Axes()
    if not fold.fits or axes is None:
        return None
    pieces = [((outputs,), r.dtype), ((fold.workspace,), _BYTE)]

    def connect(a: Any, data: Any, *, out: Any, chosen: Any, work: Any) -> Run:
        if not n or not outputs:
            return nothing
        whole, rest = carve(work, pieces)
        kept = whole if out is None else out
        runs = [fold.call(data, kept, rest)]
        if chosen is not None:
            values = data, kept, chosen, ctypes.c_int64(n), axes
            runs.append(spread(device, source(r.dtype), "bits_of_equals", -(-n // 8), *values))
        return InOrder(runs)

    name = "cuda max" if how == LARGEST else "cuda min"
    return answer(r, connect, scratch_bytes(pieces), name)


def _numbers(device: Device, bits: Any, kept: Any, out: Any, axes: Axes) -> Run:
    values = bits, kept, out, ctypes.c_int64(out.size), axes
    return spread(device, source(out.dtype), "numbers_of_bits", out.size, *values)


def _axes(device: Device, r: Request) -> tuple[Device, Any] | None:
    (shape,) = r.inputs
    axes = axes_of(shape, kept_shape(r.attrs, shape)) if prod(shape) else None
    return None if axes is None or not known(r.dtype) else (device, axes)


@row(_axes, "cuda extreme gradient")
def _extreme_gradient(made: tuple[Device, Any], a: Any, d_out: Any, chosen: Any, *, d_data: Any) -> Run:
    return _numbers(made[0], chosen, d_out, d_data, made[1])


@row(where(lambda r: 0 < prod(r.inputs[1]) <= MOST and known(r.dtypes[1])), "cuda bits")
def _bits(at: At, a: Any, data: Any, like: Any = None, *, out: Any) -> Run:
    return _numbers(at.device, data, None, out, Axes())


def _positions(device: Device, r: Request, smallest: bool) -> ChosenKernel | None:
    (shape,), axis = r.inputs, 1 if r.op is argmax_channel else r.attrs.axis
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

    def connect(a: Any, data: Any, *, out: Any, work: Any = None) -> Run:
        made = Positions(device.address(data), device.address(out), lines=lines, length=length)
        made.stretch, made.inner, made.smallest, made.across = stretch, Divisor(inner), smallest, across
        if some:
            made.values, made.places = map(device.address, carve(work, pieces))
        text = source(r.dtype)
        run = launch(device, text, "extreme_positions", (blocks, splits), (x, y), made)
        return InOrder([run, spread(device, text, "best_positions", lines, made, splits)]) if some else run

    return answer(r, connect, scratch_bytes(pieces), "cuda positions")


rows = table(
    (max, partial(_extreme, how=LARGEST), _extreme_gradient),
    (min, partial(_extreme, how=SMALLEST), _extreme_gradient),
    (BitsLike, _bits, None),
    *((op, partial(_positions, smallest=op is argmin), None) for op in (argmax, argmin, argmax_channel)),
)
