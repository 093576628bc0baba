"""Softmax along an axis and its kin, forward and backward: rows that fit a block's registers are read once.

A row of the last axis belongs to a group of threads: up to 512 numbers to part of a warp, longer ones to a
block, which keeps the first 16384 and reads the rest twice. (8192 of doubles, in gradients, and for lengths
that are not whole packs.) Rows along an inner axis are read twice, neighbours by neighbouring threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from .....graph.ir import Shape
from .....graph.opdef import DType, Op
from .....ops.loss.loss import SoftmaxOutput
from .....ops.loss.softmax import log_softmax, softmax, SoftmaxActivation, softmin
from .....ops.norm.views import along
from ....base import ChosenKernel, Request
from ...compiler.kinds import computed_in, floating, kind, known, wide
from ...compiler.source import assembled, KernelSource, NAMES, structure, typedefs
from ...handwritten.each import launch
from ...handwritten.layout import columns, Divisor, MOST, rows as rows_of
from ...rows import answer, table
from ...runtime.device import Device, Run

Cube = tuple[int, int, int]
"""(outer, length, inner) of rows along an axis."""

SOFTMAX, LOG_SOFTMAX, LOSS, LOSS_GRADIENT = range(4)


Forward: Any = structure("softmax", "Softmax", Divisor=Divisor)
Gradient: Any = structure("softmax_gradient", "SoftmaxGradient", Divisor=Divisor)


def source(file: str, data: str, out: str) -> KernelSource:
    """The kernels of a file for these types of the data and the result."""
    types = typedefs(X=NAMES[data], Y=NAMES[out], C=wide(data, out))
    types += f"enum {{ WIDTH = {_width(data, out)} }};\n"
    return assembled("types", types, "math", "index", "whole", "checks", "group", file)


def _width(*dtypes: str) -> int:
    """Elements of a vector load: 16 bytes of the widest type."""
    return 2 if "float64" in dtypes else 4 if "float32" in dtypes else 8


def cube(shape: Shape, axis: int) -> Cube:
    outer, _, length, _, inner = along(shape, axis)
    return outer, length, inner


def fits(lines: Cube, *dtypes: DType) -> bool:
    outer, length, inner = lines
    return floating(*dtypes) and outer * inner <= MOST and length <= MOST


def rows_run(
    device: Device, file: str, made: Any, lines: Cube, dtypes: tuple[DType, DType], addresses: Sequence[int],
    most_threads: int = 1024,
) -> Run:  # fmt: skip
    """The kernel of the file that suits the rows; its choice is filled in into `made`.

    `addresses` are those that are read and written in packs.
    """
    outer, length, inner = lines
    made.lines, made.length, made.inner = outer * inner, length, Divisor(inner)
    text = source(file, *map(str, dtypes))
    if inner > 1:
        layout, form = columns(outer * inner, length), "columns"
    else:
        width = _width(*map(str, dtypes))
        pack = width if length % width == 0 else 1
        held = 64 // (pack * (8 if computed_in(*dtypes) == "double" else 4)) if pack > 1 else 8
        layout = rows_of(outer, length // pack, held, most_threads)
        form = "wide" if pack > 1 else "single"
        made.group = layout.group
        made.vector = all(a % (pack * max(d.itemsize for d in dtypes)) == 0 for a in addresses)
    name = file.removeprefix("softmax_")
    return launch(device, text, f"{name}_{form}", layout.grid, layout.block, made)


def forward_run(
    device: Device, lines: Cube, data: Any, out: Any, dtypes: tuple[DType, DType], **parameters: Any
) -> Run:
    """Softmax of `data` into `out`; see the structure `Softmax` for parameters."""
    made = Forward(data=device.address(data), **{"scale": 1.0, **parameters})
    places = [made.data]
    if out is not None:
        made.out = device.address(out)
        places.append(made.out)
    return rows_run(device, "softmax", made, lines, dtypes, places)


def _types(r: Request, lines: Cube) -> tuple[DType, DType] | None:
    """Types of the data and the result; None if there is no kernel for them."""
    (out_type,) = (r.op.forward_op or r.op).infer_type(r.attrs, *r.dtypes)[1]
    assert out_type is not None
    return (r.dtype, out_type) if fits(lines, r.dtype, out_type) and known(*r.dtypes) else None


def _forward(device: Device, r: Request, lines: Cube, scale: float, mode: int) -> ChosenKernel | None:
    dtypes = _types(r, lines)
    if dtypes is None:
        return None

    def connect(a: Any, data: Any, second: Any = None, *, out: Any, work: Any) -> Run:
        more = {}
        if second is not None and r.op in _SIGNS:
            more = {"limit": device.address(second), "limit_kind": kind(second.dtype)}
        return forward_run(device, lines, data, out, dtypes, scale=scale, mode=mode, **more)

    return answer(r, connect, 0, "cuda softmax")


def _gradient(device: Device, r: Request, lines: Cube, scale: float, logarithm: bool) -> ChosenKernel | None:
    dtypes = _types(r, lines)
    if dtypes is None:
        return None

    def connect(a: Any, d_out: Any, out: Any, length: Any = None, *, d_data: Any, work: Any) -> Run:
        places = tuple(device.address(x) for x in (d_out, out, d_data))
        made = Gradient(*places, scale=scale, logarithm=logarithm)
        if length is not None:
            made.limit, made.limit_kind = device.address(length), kind(length.dtype)
        return rows_run(device, "softmax_gradient", made, lines, dtypes, places, 512)

    return answer(r, connect, 0, "cuda softmax gradient")


_SIGNS: dict[type[Op], float] = {softmax: 1.0, softmin: -1.0, log_softmax: 1.0}
"""Operators with an axis, a temperature and lengths of rows, and the sign of their data."""


def _softmax(device: Device, r: Request) -> ChosenKernel | None:
    scale, lines = _SIGNS[r.op] / (r.attrs.temperature or 1), cube(r.inputs[0], r.attrs.axis)
    return _forward(device, r, lines, scale, LOG_SOFTMAX if r.op is log_softmax else SOFTMAX)


def _softmax_gradient(device: Device, r: Request) -> ChosenKernel | None:
    op: Any = r.op.forward_op
    scale, lines = _SIGNS[op] / (r.attrs.temperature or 1), cube(r.inputs[0], r.attrs.axis)
    return _gradient(device, r, lines, scale, op is log_softmax)


def _plain(device: Device, r: Request) -> ChosenKernel | None:
    lines = output_cube if r.op is SoftmaxOutput else _mode_cube
    return _forward(device, r, lines(r.attrs, r.inputs[0]), 1.0, SOFTMAX)


def _plain_gradient(device: Device, r: Request) -> ChosenKernel | None:
    return _gradient(device, r, _mode_cube(r.attrs, r.inputs[0]), 1.0, False)


def _mode_cube(a: Any, shape: Shape) -> Cube:
    return cube(shape, 1 if a.mode == "channel" else -1)


def output_cube(a: Any, shape: Shape) -> Cube:
    """The rows of a SoftmaxOutput."""
    if a.multi_output or a.preserve_shape:
        return cube(shape, 1 if a.multi_output else -1)
    return shape[0], prod(shape[1:]), 1


rows = table(
    *((op, _softmax, _softmax_gradient) for op in _SIGNS),
    (SoftmaxActivation, _plain, _plain_gradient),
    (SoftmaxOutput, _plain, None),
)
