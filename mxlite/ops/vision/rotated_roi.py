"""Pooling over rotated regions of interest."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

import numpy as np

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..scratch import accumulator, carve, Piece, scratch_bytes
from .roi import check_size, regions

_SAMPLES = 256  # samples of a part at a time


class RROIAlign(Op):
    """The mean over samples of each part of each rotated region, linear between pixels.

    data: (N, C, H, W);  rois: (R, 6), rows of image number n, center x, center y, width, height, angle in
    degrees  ->  out: (R, C, PH, PW) with PH, PW = `pooled_size`.

    Centers and sizes are multiplied by `spatial_scale`; sizes are at least one pixel. Each part is sampled at
    `sampling_ratio` positions a side, by default ceil(height of a part) and ceil(width); (u, v) pixels right
    of and below the center lies at (u cos + v sin, v cos - u sin) from it. Samples more than one pixel
    outside the image are 0, and so is a region of image -1. `rois` have no gradient; in MXNet `data` has none
    either.

    J. Ma et al., 2018, "Arbitrary-oriented scene text detection via rotation proposals".
    """

    op_name = "_contrib_RROIAlign"
    inputs = ("data", "rois")
    accepts = "float"
    flops_per_output = 32

    @record
    class Attrs:
        pooled_size: tuple[int, ...]
        spatial_scale: float
        sampling_ratio: int = -1

        def __post_init__(self) -> None:
            check_size(self)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data, rois = shapes
        if len(data) != 4 or len(rois) != 2 or rois[1] != 6:
            raise ShapeError(f"data must be (N, C, H, W) and rois (R, 6), got {data} and {rois}.")
        return shapes, ((rois[0], data[1], *a.pooled_size),)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(inputs[0], dtype))

    backward_workspace = workspace

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, rois: Any, *, out: Any, work: Any) -> None:
        image, taken = carve(work, _pieces(data.shape, data.dtype))
        out.fill(0)
        held = -1
        for r, n, box in regions(rois, len(data)):
            if held != n:
                xp.copyto(image, data[n].reshape(image.shape))
                held = n
            for i, j, place, share in _samples(a, box, data.shape[2:], image.dtype):
                part = taken[: image.shape[0] * len(place)].reshape(-1, len(place))
                xp.take(image, place, axis=1, out=part, mode="clip")
                out[r, :, i, j] += part @ share

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, rois: Any, *, d_data: Any, work: Any) -> None:
        image, taken = carve(work, _pieces(d_data.shape, d_data.dtype))
        listed = list(regions(rois, len(d_data)))
        for n in range(len(d_data)):
            image.fill(0)
            for r, of, box in listed:
                for i, j, place, share in _samples(a, box, d_data.shape[2:], image.dtype) if of == n else ():
                    part = taken[: image.shape[0] * len(place)].reshape(-1, len(place))
                    xp.multiply(d_out[r, :, i, j, None], share, out=part)
                    for channel, terms in zip(image, part):
                        xp.add.at(channel, place, terms)
            xp.copyto(d_data[n], image.reshape(d_data.shape[1:]), casting="unsafe")


def _samples(
    a: Any, box: list[float], size: Shape, dtype: DType
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """(i, j, pixels, their weights in the mean) of each part (i, j), at most _SAMPLES samples at a time.

    Coordinates are computed in float32, as MXNet does: they decide which samples are outside.
    """
    t = np.float32
    center_x, center_y, width, height = (t(v) * t(a.spatial_scale) for v in box[:4])
    angle = t(box[4] * np.pi / 180)
    height, width = max(height, t(1)), max(width, t(1))
    (ph, pw), (bin_h, bin_w) = a.pooled_size, (height / t(a.pooled_size[0]), width / t(a.pooled_size[1]))
    count_h = a.sampling_ratio if a.sampling_ratio > 0 else ceil(bin_h)
    count_w = a.sampling_ratio if a.sampling_ratio > 0 else ceil(bin_w)
    for i, j in np.ndindex(ph, pw):
        for begin in range(0, count_h * count_w, _SAMPLES):
            number = np.arange(begin, min(begin + _SAMPLES, count_h * count_w))
            row, column = (k.astype(t) for k in np.divmod(number, count_w))
            v = -height / t(2) + t(i) * bin_h + (row + t(0.5)) * bin_h / t(count_h)
            u = -width / t(2) + t(j) * bin_w + (column + t(0.5)) * bin_w / t(count_w)
            x = u * np.cos(angle) + v * np.sin(angle) + center_x
            y = v * np.cos(angle) - u * np.sin(angle) + center_y
            inside = (x >= -1) & (x <= size[1]) & (y >= -1) & (y <= size[0])
            if not inside.any():
                continue
            top, bottom, below = _between(y[inside], size[0])
            left, right, beside = _between(x[inside], size[1])
            above, before = 1 - below, 1 - beside
            place = [top * size[1] + left, top * size[1] + right, bottom * size[1] + left]
            share = [above * before, above * beside, below * before, below * beside]
            yield (
                i,
                j,
                np.concatenate([*place, bottom * size[1] + right]),
                (np.concatenate(share) / t(count_h * count_w)).astype(dtype),
            )


def _between(place: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pixels before and after each position along an axis, and the weight of the latter."""
    place = np.maximum(place, 0)
    low = np.minimum(place.astype(np.int64), length - 1)
    high = np.minimum(low + 1, length - 1)
    return low, high, np.where(high == low, 0, place - low).astype(np.float32)


def _pieces(data: Shape, dtype: DType) -> list[Piece]:
    """One image, and its channels at the four pixels of each sample."""
    kind, (c, h, w) = accumulator(dtype), data[1:]
    return [((c, h * w), kind), ((4 * c * _SAMPLES,), kind)]
