"""Running sums and products along an axis: each number is read once and written once.

A row of the last axis has a block, which goes along it 1024 numbers at a time; other rows have a thread each.
"""

from __future__ import annotations

import ctypes
import functools
from math import prod
from typing import Any

from .....graph.opdef import DType, Op
from .....ops.reduce.cumulative import cumprod, cumsum
from ....base import ChosenKernel, connected, Request
from ...compiler.kinds import computed_in, floating, known
from ...compiler.source import KernelSource, NAMES, shared
from ...compiler.structure import declared
from ...handwritten.layout import Divisor, MOST
from ...runtime.device import Arguments, Device, nothing, Run

THREADS = 256
BLOCKS_PER_MULTIPROCESSOR = 16
SHORT = 32  # numbers of a row that one thread goes along


class Scan(ctypes.Structure):
    """The structure of this name in scan.cuh."""

    _fields_ = declared("scan", "Scan", Divisor=Divisor)


@functools.lru_cache(maxsize=64)
def source(data: DType, out: DType) -> KernelSource:
    """The kernels for these types of the data and the result."""
    types = f"typedef {NAMES[str(data)]} X;\ntypedef {NAMES[str(out)]} Y;\ntypedef {computed_in(out)} C;\n"
    whole = "" if floating(out) else "#define WHOLE\n"
    return KernelSource(shared("types") + types + whole + shared("index", "scan"))


def _scan(device: Device, r: Request, backwards: bool) -> ChosenKernel | None:
    a, (shape,) = r.attrs, r.inputs
    op = r.op.forward_op or r.op
    (wide,) = op.infer_type(a, *r.dtypes)[1]
    if wide is None or not known(r.dtype, wide) or (floating(r.dtype) and not floating(wide)):
        return None
    given, made = (wide, r.dtype) if backwards else (r.dtype, wide)
    if floating(given) != floating(made) and backwards:
        return None
    axis = None if a.axis is None else a.axis % len(shape)
    inner = 1 if axis is None else prod(shape[axis + 1 :])
    length = prod(shape) if axis is None else shape[axis]
    lines = prod(shape) // length if length else 0
    if not 0 < lines <= MOST or length > MOST:
        return None
    in_lines = inner == 1 and length > SHORT
    blocks = min(-(-lines // THREADS), device.multiprocessors * BLOCKS_PER_MULTIPROCESSOR)

    def connect(xp: Any, attrs: Any, data: Any, **outputs: Any) -> Run:
        (out,) = outputs.values()
        if out is None:
            return nothing
        scan = Scan(device.address(data), device.address(out), lines, length, Divisor(inner))
        scan.product, scan.exclusive, scan.reverse = op is cumprod, a.exclusive, a.reverse != backwards
        function = device.function(source(given, made), "scan_lines" if in_lines else "scan_columns")
        grid = (lines if in_lines else blocks, 1, 1)
        return device.launch(function, grid, (THREADS, 1, 1), 0, Arguments([scan]))

    return connected(connect, 0, "cuda running total", like=r.op.forward)


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""
    assert cumsum.grad_op is not None
    return {
        cumsum: [lambda r: _scan(device, r, False)],
        cumprod: [lambda r: _scan(device, r, False)],
        cumsum.grad_op: [lambda r: _scan(device, r, True)],
    }
