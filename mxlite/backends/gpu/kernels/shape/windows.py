"""im2col, col2im and their gradients: a thread for each element that is written, which gathers."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

from .....graph.ir import Shape
from .....graph.opdef import Op
from .....ops.nn.im2col import col2im, im2col, Im2colDataGradient, windows_of
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating
from ...compiler.structure import declared
from ...handwritten.each import each, typed
from ...rows import answer, are_few, table
from ...runtime.device import Device, Run

PARTS = "size out kernel stride dilate pad".split()


class _Windows(ctypes.Structure):
    """The structure Windows of images.cuh; missing axes come first."""

    _fields_ = declared("images", "Windows")

    def __init__(self, attrs: Any, size: Shape) -> None:
        w = windows_of(attrs, size)
        missing = 3 - len(size)
        for name in PARTS:
            getattr(self, name)[:] = (0 if name == "pad" else 1,) * missing + tuple(getattr(w, name))


def _row(device: Device, r: Request, kernel: str) -> ChosenKernel | None:
    if not floating(r.dtypes[0]) or not are_few(r):
        return None
    text = typed(str(r.dtypes[0]), "images")
    if r.op in (im2col, im2col.grad_op):
        size = r.inputs[0][2:]
    elif r.op in (col2im, col2im.grad_op):
        size = r.attrs.output_size
    else:
        size = r.inputs[1][2:]
    windows = _Windows(r.attrs, size)
    (made,) = r.op.output_names(r.attrs)

    def connect(a: Any, given: Any, *shapes_only: Any, **rest: Any) -> Run:
        out = rest[made]
        return each(device, text, kernel, out.size, given, out, windows)

    return answer(r, connect, 0, "cuda windows")


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""
    columns, images = partial(_row, kernel="columns_of"), partial(_row, kernel="images_of")
    return table(
        device, (im2col, columns, images), (col2im, images, columns), (Im2colDataGradient, images, columns)
    )
