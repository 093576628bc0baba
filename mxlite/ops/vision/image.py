"""Conversions of images to a network's input: MXNet's `image` operators without random numbers."""

from __future__ import annotations

from typing import Any

from ...core.dtype import float32
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..declared import Declared
from ..shape.reshape import Rearrangement


def _require_image(data: Any, layout: str) -> None:
    if len(data) not in (3, 4):
        raise ShapeError(f"data must be an image {layout} or several (N, {layout[1:]}, got {data}.")


class _image_normalize(Declared):
    """Each channel less its mean, by its deviation, ``out = (data - mean) / std``.

    data: (C, H, W) or (N, C, H, W), C 1 or 3, of a floating type  ->  out: the same. `mean` and `std` have a
    number for each channel, or one for all; zeros in `std` are refused.
    """

    inputs = ("data",)
    in_place = {"out": "data"}
    accepts = "float"
    backward_in_place = {"d_data": "d_out"}
    backward_reads = ("d_out",)

    @record
    class Attrs:
        mean: tuple[float, ...] = (0.0,)
        std: tuple[float, ...] = (1.0,)

        def __post_init__(self) -> None:
            if not all(self.std):
                raise OpAttributeError(f"parameter 'std' must not be 0, got {self.std}.")

    @staticmethod
    def infer_shape(a, data):
        _require_image(data, "(C, H, W)")
        if data[-3] not in (1, 3):
            raise ShapeError(f"data must have 1 or 3 channels on axis {len(data) - 3}, got {data}.")
        for name, values in (("mean", a.mean), ("std", a.std)):
            if len(values) != 1 and len(values) < data[-3]:
                raise ShapeError(f"{name} {values} has no number for each of {data[-3]} channels.")
        return (data,), (data,)

    @staticmethod
    def compute(t, a, data):
        return {"out": (data - _by_channel(t, a.mean, data)) / _by_channel(t, a.std, data)}

    @staticmethod
    def compute_gradient(t, a, heads, arrays):
        return {"d_data": heads["out"] / _by_channel(t, a.std, heads["out"])}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._image_normalize(heads["out"], std=a.std)}


def _by_channel(t: Any, values: tuple[float, ...], image: Any) -> Any:
    """The number of each channel, or that of all."""
    first, *others = values[: image.shape[-3]]
    found = t.constant(first)
    for channel, value in enumerate(others, 1):
        found = t.where("eq", t.index(image, -3), float(channel), t.constant(value), found)
    return found


class _image_to_tensor(Op):
    """Pixels of 0 to 255 as numbers of 0 to 1, channels first, ``out = data / 255``.

    data: (H, W, C) or (N, H, W, C) of any type  ->  out: (C, H, W) or (N, C, H, W), float32. No gradient.
    """

    inputs = ("data",)

    @staticmethod
    def infer_shape(a, data):
        _require_image(data, "(H, W, C)")
        return (data,), ((*data[:-3], data[-1], *data[-3:-1]),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, (float32,)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, xp.moveaxis(data, -1, -3), casting="unsafe")
        xp.divide(out, 255, out=out)


class _Turned(Rearrangement):
    """Base: an image reversed along one of its axes, which is its own inverse."""

    abstract = True
    axis: int

    @staticmethod
    def infer_shape(a, data):
        _require_image(data, "(H, W, C)")
        return (data,), (data,)

    @classmethod
    def forward(cls, xp, a, data, *, out):
        xp.copyto(out, xp.flip(data, cls.axis))

    @classmethod
    def derivative(cls, w, a, ins, outs, heads):
        return {"data": w.reverse(heads["out"], axis=(cls.axis,))}


class _image_flip_left_right(_Turned):
    """An image mirrored, left to right. data: (H, W, C) or (N, H, W, C)  ->  out: the same."""

    axis = -2


class _image_flip_top_bottom(_Turned):
    """An image upside down. data: (H, W, C) or (N, H, W, C)  ->  out: the same."""

    axis = -3


class _image_crop(Rearrangement):
    """The part of an image that begins at column `x` and row `y`.

    data: (H, W, C) or (N, H, W, C)  ->  out: (`height`, `width`, C) or (N, `height`, `width`, C). The
    gradient is 0 outside the part.
    """

    @record
    class Attrs:
        x: int
        y: int
        width: int
        height: int

        def __post_init__(self) -> None:
            if min(self.x, self.y) < 0 or min(self.width, self.height) < 1:
                raise OpAttributeError(
                    f"x and y must be at least 0, width and height at least 1; got {self.x}, {self.y}, "
                    f"{self.width}, {self.height}."
                )

    @staticmethod
    def infer_shape(a, data):
        _require_image(data, "(H, W, C)")
        if a.y + a.height > data[-3] or a.x + a.width > data[-2]:
            raise ShapeError(
                f"rows [{a.y}, {a.y + a.height}) and columns [{a.x}, {a.x + a.width}) are not all in {data}."
            )
        return (data,), ((*data[:-3], a.height, a.width, data[-1]),)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data[_part(a)])


def _part(a: Any) -> Any:
    return ..., slice(a.y, a.y + a.height), slice(a.x, a.x + a.width), slice(None)
