"""Sliding windows as columns, and columns summed as windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from math import prod
from typing import Any

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..scratch import accumulator, BLOCK, carve, Piece, scratch_bytes
from .conv import check_window
from .windows import output_size, per_axis, Slices, window_slices


@record
class _WindowAttrs:
    kernel: tuple[int, ...]
    stride: tuple[int, ...] = ()
    dilate: tuple[int, ...] = ()
    pad: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_window(self)


@record
class _Windows:
    """All windows over images of `size`."""

    size: Shape
    kernel: Shape
    stride: Shape
    dilate: Shape
    pad: Shape

    @property
    def out(self) -> Shape:
        return output_size(self.size, self.kernel, self.stride, self.dilate, self.pad)

    def slices(self) -> Iterator[tuple[int, Slices, Slices]]:
        return window_slices(self.size, self.kernel, self.stride, self.dilate, self.pad, self.out)

    def piece(self, rows: int, dtype: DType) -> Piece:
        """Scratch for the images of some channels."""
        size = prod(self.size)
        return (max(1, min(rows, BLOCK // max(1, size))) * size,), accumulator(dtype)


@lru_cache(maxsize=4096)
def windows_of(a: Any, size: Shape) -> _Windows:
    rank = len(a.kernel)
    return _Windows(
        size,
        a.kernel,
        per_axis("stride", a.stride, rank, 1),
        per_axis("dilate", a.dilate, rank, 1),
        per_axis("pad", a.pad, rank, 0),
    )


def _columns_of(xp: Any, w: _Windows, images: Any, columns: Any) -> None:
    """columns[n, c, k, o] = the element k of window o, 0 in the padding."""
    n, c = images.shape[:2]
    by_tap = columns.reshape(n, c, prod(w.kernel), *w.out)
    if any(w.pad):
        columns.fill(0)
    for k, inside, outputs in w.slices():
        xp.copyto(by_tap[:, :, k, *outputs], images[:, :, *inside])


def _images_of(xp: Any, w: _Windows, columns: Any, images: Any, work: Any) -> None:
    """images = the columns summed into their sources."""
    rows = images.shape[0] * images.shape[1]
    by_tap = columns.reshape(rows, prod(w.kernel), *w.out)
    target = images.reshape(rows, *w.size)
    (scratch,) = carve(work, [w.piece(rows, images.dtype)])
    step = max(1, len(scratch) // max(1, prod(w.size)))
    for i in range(0, rows, step):
        m = min(step, rows - i)
        total = scratch[: m * prod(w.size)].reshape(m, *w.size)
        total.fill(0)
        for k, inside, outputs in w.slices():
            place = total[:, *inside]
            xp.add(place, by_tap[i : i + m, k, *outputs], out=place)
        xp.copyto(target[i : i + m], total, casting="unsafe")


def _image_bytes(a: Any, images: Shape, dtype: DType) -> int:
    """Scratch of `_images_of`."""
    n, c, *size = images
    return scratch_bytes([windows_of(a, tuple(size)).piece(n * c, dtype)])


def _infer(a: Any, images: Shape, what: str) -> Shape:
    """Shape of the columns of `images`."""
    rank = len(a.kernel)
    if len(images) != rank + 2:
        raise ShapeError(f"{what} must have {rank + 2} axes (N, C, ...) for kernel {a.kernel}, got {images}.")
    w = windows_of(a, images[2:])
    return images[0], images[1] * prod(a.kernel), prod(w.out)


class im2col(Op):
    """Each window of an image as a column.

    data: (N, C, H, W)  ->  out: (N, C * KH * KW, OH * OW), where OH = (H + 2 * pad - ((KH - 1) * dilate +
    1)) // stride + 1. One to three spatial axes. Padding is 0. The gradient is `col2im`; it reads no input.
    """

    inputs = ("data",)
    accepts = "float"
    cheap = True
    Attrs = _WindowAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        return shapes, (_infer(a, shapes[0], "data"),)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return _image_bytes(a, inputs[0], dtype)

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any) -> None:
        if out is not None:
            _columns_of(xp, windows_of(a, data.shape[2:]), data, out)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, *, d_data: Any, work: Any) -> None:
        if d_data is not None:
            _images_of(xp, windows_of(a, d_data.shape[2:]), d_out, d_data, work)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        return {"data": w._im2col_d_data(heads["out"], ins["data"], **asdict(a))}


class Im2colDataGradient(Op):
    """Gradient of `im2col` in its data.

    grad: (N, C * KH * KW, OH * OW);  like: (N, C, H, W), whose shape counts  ->  out: as `like`.
    """

    op_name = "_im2col_d_data"
    inputs = ("grad", "like")
    shape_only = ("like",)
    accepts = "float"
    Attrs = _WindowAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        return (_infer(a, shapes[1], "like"), shapes[1]), (shapes[1],)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return _image_bytes(a, outputs[0], dtype)

    @staticmethod
    def forward(xp: Any, a: Any, grad: Any, like: Any, *, out: Any, work: Any) -> None:
        _images_of(xp, windows_of(a, out.shape[2:]), grad, out, work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, *, d_grad: Any) -> None:
        im2col.forward(xp, a, d_out, out=d_grad)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        return {"grad": w.im2col(heads["out"], **asdict(a))}


class col2im(Op):
    """Columns summed into the elements that `im2col` of an image would read.

    data: (N, C * KH * KW, OH * OW)  ->  out: (N, C, H, W) with H, W = `output_size`. Where windows overlap
    their numbers are added, so it is the gradient of `im2col`, not its inverse; its own gradient is `im2col`.
    """

    inputs = ("data",)
    accepts = "float"
    cheap = True

    @record
    class Attrs:
        output_size: tuple[int, ...]
        kernel: tuple[int, ...]
        stride: tuple[int, ...] = ()
        dilate: tuple[int, ...] = ()
        pad: tuple[int, ...] = ()

        def __post_init__(self) -> None:
            check_window(self)
            if len(self.output_size) != len(self.kernel) or any(n < 1 for n in self.output_size):
                raise OpAttributeError(
                    f"output_size must be {len(self.kernel)} numbers of at least 1 as kernel has, "
                    f"got {self.output_size}."
                )

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        taps, windows = prod(a.kernel), prod(windows_of(a, a.output_size).out)
        if len(data) != 3 or data[1] % taps or data[2] != windows:
            raise ShapeError(f"data must be (N, C * {taps}, {windows}) for this kernel and size, got {data}.")
        return shapes, ((data[0], data[1] // taps, *a.output_size),)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return _image_bytes(a, outputs[0], dtype)

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        if out is not None:
            _images_of(xp, windows_of(a, a.output_size), data, out, work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, *, d_data: Any) -> None:
        if d_data is not None:
            _columns_of(xp, windows_of(a, a.output_size), d_out, d_data)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        windows = {k: v for k, v in asdict(a).items() if k != "output_size"}
        return {"data": w.im2col(heads["out"], **windows)}
