"""Sequences by their lengths, and triangles of matrices: each element is read and written at most once."""

from __future__ import annotations

import ctypes
import functools
from math import prod
from typing import Any

import numpy as np

from .....graph.ir import Shape
from .....graph.opdef import DType, Op
from .....ops.index.sequence import SequenceLast, SequenceMask, SequenceReverse
from .....ops.shape.diagonal import tril, triu
from ....base import ChosenKernel, connected, Request
from ...compiler.kinds import kind, known
from ...compiler.source import kernel, KernelSource, shared
from ...compiler.structure import declared
from ...handwritten.each import each, THREADS
from ...handwritten.layout import MOST
from ...handwritten.move import copied, UNITS
from ...runtime.device import Device, nothing, Run

SEQUENCES = ("masked", "last_of", "to_last", "turned")


class _Sequences(ctypes.Structure):
    """The structure Sequences of parts.cuh."""

    _fields_ = declared("parts", "Sequences")


@functools.cache
def source() -> KernelSource:
    """The kernels of parts.cuh for elements of 1, 2, 4 and 8 bytes."""
    text = ""
    for size in (1, 2, 4, 8):
        unit = UNITS[size]
        for name in SEQUENCES:
            text += kernel(f"{name}_{size}", ["int64 n", "Sequences s"], [f"{name}<{unit}>(n, s);"], THREADS)
        parameters = ["int64 n", f"const {unit} *data", f"{unit} *out", "int rows", "int columns", "int k"]
        body = ["triangle(n, data, out, rows, columns, k, lower);"]
        text += kernel(f"triangle_{size}", [*parameters, "int lower"], body, THREADS)
    return KernelSource(shared("types", "index", "whole", "parts") + text)


def _fits(r: Request) -> bool:
    return known(*r.dtypes) and all(prod(s) <= MOST for s in (*r.inputs, *r.outputs))


def _sequence(device: Device, r: Request, name: str) -> ChosenKernel | None:
    shape, (made,) = r.inputs[0], r.op.output_names(r.attrs)
    if not _fits(r):
        return None

    def connect(xp: Any, a: Any, given: Any, lengths: Any = None, **rest: Any) -> Run:
        out = rest[made]
        if out is None or not out.size:
            return nothing
        if lengths is None and name == "masked":
            return nothing if device.address(given) == device.address(out) else copied(device, given, out)
        s = _Sequences(device.address(given), None, device.address(out))
        if lengths is not None:
            s.lengths, s.kind = device.address(lengths), kind(lengths.dtype)
        if r.op is SequenceMask:
            s.value = _pattern(a.value, out.dtype)
        s.steps, s.samples, s.rest = shape[a.axis], shape[1 - a.axis], prod(shape[2:])
        s.samples_first = a.axis
        return each(device, source(), f"{name}_{out.dtype.itemsize}", out.size, s)

    return connected(connect, 0, "cuda sequences", like=r.op.forward)


def _pattern(value: float, dtype: DType) -> int:
    """Bytes of a number as the reference converts it."""
    with np.errstate(all="ignore"):
        return int.from_bytes(np.asarray(value).astype(dtype).tobytes(), "little")


def _triangle(device: Device, r: Request, lower: bool) -> ChosenKernel | None:
    shape: Shape = r.inputs[0]
    (made,) = r.op.output_names(r.attrs)
    if not _fits(r) or abs(r.attrs.k) > MOST:
        return None

    def connect(xp: Any, a: Any, given: Any, **rest: Any) -> Run:
        out = rest[made]
        if out is None:
            return nothing
        name = f"triangle_{out.dtype.itemsize}"
        return each(device, source(), name, out.size, given, out, *shape[-2:], a.k, int(lower))

    return connected(connect, 0, "cuda triangle", like=r.op.forward)


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""
    table: dict[type[Op], list[Any]] = {}
    for op, forward, backward in (
        (SequenceMask, "masked", "masked"),
        (SequenceLast, "last_of", "to_last"),
        (SequenceReverse, "turned", "turned"),
    ):
        assert op.grad_op is not None
        table[op] = [lambda r, name=forward: _sequence(device, r, name)]
        table[op.grad_op] = [lambda r, name=backward: _sequence(device, r, name)]
    for triangle, lower in ((tril, True), (triu, False)):
        assert triangle.grad_op is not None
        for side in (triangle, triangle.grad_op):
            table[side] = [lambda r, lower=lower: _triangle(device, r, lower)]
    return table
