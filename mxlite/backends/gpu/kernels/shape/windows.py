"""im2col, col2im and their gradients: a thread for each element that is written, which gathers."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from .....graph.ir import Shape
from .....graph.opdef import Op
from .....ops.nn.im2col import col2im, im2col, Im2colDataGradient, windows_of
from ....base import ChosenKernel, connected, Request
from ...compiler.kinds import floating
from ...compiler.structure import declared
from ...handwritten.each import each, typed
from ...handwritten.layout import MOST
from ...runtime.device import Device, nothing, Run

PARTS = "size out kernel stride dilate pad".split()


class _Windows(ctypes.Structure):
    """The structure Windows of images.cuh; missing axes come first."""

    _fields_ = declared("images", "Windows")

    def __init__(self, attrs: Any, size: Shape) -> None:
        w = windows_of(attrs, size)
        missing = 3 - len(size)
        for name in PARTS:
            getattr(self, name)[:] = (0 if name == "pad" else 1,) * missing + tuple(getattr(w, name))


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def row(r: Request, kernel: str) -> ChosenKernel | None:
        dtype = r.dtypes[0]
        if not floating(dtype) or any(prod(s) > MOST for s in (*r.inputs, *r.outputs)):
            return None
        (made,) = r.op.output_names(r.attrs)
        if r.op in (im2col, im2col.grad_op):
            size = r.inputs[0][2:]
        elif r.op in (col2im, col2im.grad_op):
            size = r.attrs.output_size
        else:
            size = r.inputs[1][2:]
        windows = _Windows(r.attrs, size)

        def connect(xp: Any, a: Any, given: Any, *shapes_only: Any, **rest: Any) -> Run:
            out = rest[made]
            if out is None:
                return nothing
            return each(device, typed(str(dtype), "images"), kernel, out.size, given, out, windows)

        return connected(connect, 0, "cuda windows", like=r.op.forward)

    table: dict[type[Op], list[Any]] = {}
    for op, forward, backward in (
        (im2col, "columns_of", "images_of"),
        (col2im, "images_of", "columns_of"),
        (Im2colDataGradient, "images_of", "columns_of"),
    ):
        assert op.grad_op is not None
        table[op] = [lambda r, kernel=forward: row(r, kernel)]
        table[op.grad_op] = [lambda r, kernel=backward: row(r, kernel)]
    return table
