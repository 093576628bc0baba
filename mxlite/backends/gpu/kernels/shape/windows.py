"""im2col, col2im and their gradients: a thread for each element that is written, which gathers."""

from __future__ import annotations

from functools import partial
from typing import Any

from .....graph.ir import Shape
from .....ops.nn.im2col import col2im, im2col, Im2colDataGradient, windows_of
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating
from ...compiler.source import structure
from ...handwritten.each import each, typed
from ...rows import answer, are_few, table
from ...runtime.device import Device, Run

PARTS = "size out kernel stride dilate pad".split()


_Windows: Any = structure("images", "Windows")


def _windows(attrs: Any, size: Shape) -> Any:
    """The windows as a kernel's argument; missing axes come first."""
    w, made = windows_of(attrs, size), _Windows()
    for name in PARTS:
        missing = (0 if name == "pad" else 1,) * (3 - len(size))
        getattr(made, name)[:] = missing + tuple(getattr(w, name))
    return made


def _row(device: Device, r: Request, kernel: str) -> ChosenKernel | None:
    if not floating(r.dtypes[0]) or not are_few(r):
        return None
    of = r.op.forward_op or r.op
    size = {im2col: r.inputs[0][2:], col2im: getattr(r.attrs, "output_size", ())}.get(of, r.inputs[-1][2:])
    windows, (made,) = _windows(r.attrs, size), r.op.output_names(r.attrs)

    def connect(a: Any, given: Any, *shapes_only: Any, **rest: Any) -> Run:
        out, text = rest[made], typed(str(r.dtypes[0]), "images")
        return each(device, text, kernel, out.size, given, out, windows)

    return answer(r, connect, 0, "cuda windows")


_columns, _images = partial(_row, kernel="columns_of"), partial(_row, kernel="images_of")

rows = table(
    (im2col, _columns, _images), (col2im, _images, _columns), (Im2colDataGradient, _images, _columns)
)
