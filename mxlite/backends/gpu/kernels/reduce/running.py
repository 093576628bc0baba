"""Running sums and products along an axis: each number is read once and written once.

A row of the last axis has a block, which goes along it 1024 numbers at a time; other rows have a thread each.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from .....graph.opdef import DType
from .....ops.reduce.cumulative import cumprod, cumsum
from ....base import ChosenKernel, Request
from ...compiler.kinds import computed_in, floating, known
from ...compiler.source import assembled, KernelSource, NAMES, structure, typedefs
from ...handwritten.each import launch, spread, THREADS
from ...handwritten.layout import Divisor, MOST
from ...rows import answer, table
from ...runtime.device import Device, Run

SHORT = 32  # numbers of a row that one thread goes along


Scan: Any = structure("scan", "Scan", Divisor=Divisor)


def source(data: DType, out: DType) -> KernelSource:
    """The kernels for these types of the data and the result."""
    types = typedefs(X=NAMES[str(data)], Y=NAMES[str(out)], C=computed_in(out))
    return assembled("types", types, "" if floating(out) else "#define WHOLE\n", "index", "scan")


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

    def connect(attrs: Any, data: Any, **outputs: Any) -> Run:
        (out,) = outputs.values()
        scan = Scan(device.address(data), device.address(out), lines, length, Divisor(inner))
        scan.product, scan.exclusive, scan.reverse = op is cumprod, a.exclusive, a.reverse != backwards
        text = source(given, made)
        if in_lines:
            return launch(device, text, "scan_lines", lines, THREADS, scan)
        return spread(device, text, "scan_columns", lines, scan)

    return answer(r, connect, 0, "cuda running total")


_FORWARD, _BACKWARD = partial(_scan, backwards=False), partial(_scan, backwards=True)

rows = table((cumsum, _FORWARD, _BACKWARD), (cumprod, _FORWARD, None))
