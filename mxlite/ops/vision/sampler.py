"""Sampling of images at the positions of a grid: the bilinear sampler, spatial transformers.

M. Jaderberg, K. Simonyan, A. Zisserman, K. Kavukcuoglu, 2015, "Spatial transformer networks". Positions are
those of `grid.py`: (x, y) in [-1, 1]. Outside the image are zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Literal

import numpy as np

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..blocks import PIECE
from ..scratch import accumulator, BLOCK, carve, Piece, scratch_bytes
from .grid import affine, check_target, line_of


def _rows(array: Any) -> Any:
    """(C, H, W) as (C, H * W), also if one of them is 0."""
    return array.reshape(len(array), prod(array.shape[1:]))


def _affine(xp: Any, theta: Any, size: Shape, places: Any) -> None:
    """places[k, i, j] = theta[k] . (x_j, y_i, 1)."""
    t = np.asarray(theta, places.dtype).reshape(2, 3)
    x, y = line_of(size[1], places.dtype), line_of(size[0], places.dtype)
    for k in range(2):
        xp.add(t[k, 0] * x, (t[k, 1] * y + t[k, 2])[:, None], out=places[k])


def _affine_gradient(xp: Any, d_places: Any, d_theta: Any) -> None:
    """d_theta[k] = sum over i, j of d_places[k, i, j] * (x_j, y_i, 1)."""
    h, w = d_places.shape[1:]
    x, y = line_of(w, d_places.dtype), line_of(h, d_places.dtype)
    d = d_theta.reshape(2, 3)
    for k in range(2):
        rows = xp.add.reduce(d_places[k], axis=1)
        d[k, 0] = xp.dot(xp.add.reduce(d_places[k], axis=0), x)
        d[k, 1] = xp.dot(rows, y)
        d[k, 2] = xp.add.reduce(rows)


@record
class _Sampling:
    """One image sampled at many positions: `channels` of (h, w), `count` positions."""

    channels: int
    size: Shape
    count: int

    @property
    def step(self) -> int:
        """Number of positions at a time."""
        return max(1, min(self.count, PIECE // 8, 2 * BLOCK // max(1, self.channels)))

    def pieces(self, dtype: DType) -> list[Piece]:
        """Two arrays of (channels, step), their indices, one image and its positions."""
        acc = accumulator(dtype)
        part = (self.channels * self.step,)
        image: Piece = ((self.channels, prod(self.size)), acc)
        places: Piece = ((2, self.count), acc)
        return [(part, acc), (part, acc), (part, np.dtype("int64")), image, places, places]

    def corners(self, xp: Any, x: Any, y: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
        """The corners of the cell around each position: each one's index in the image, its weights along x
        and y, and the slopes of these, +1 or -1. Corners outside the image have weights and slopes 0.
        """
        h, w = self.size
        # Beyond one pixel outside nothing counts; moving far positions there keeps them small enough for
        # whole numbers.
        x0 = xp.floor(xp.clip(xp.nan_to_num(x, nan=-2.0), -2, w + 1))
        y0 = xp.floor(xp.clip(xp.nan_to_num(y, nan=-2.0), -2, h + 1))
        for dy in (0, 1):
            for dx in (0, 1):
                inside = (x0 + dx >= 0) & (x0 + dx < w) & (y0 + dy >= 0) & (y0 + dy < h)
                at = xp.where(inside, (y0 + dy) * w + x0 + dx, 0).astype("int64")
                wx = xp.where(inside, x - x0 if dx else x0 + 1 - x, 0)
                wy = xp.where(inside, y - y0 if dy else y0 + 1 - y, 0)
                yield at, wx, wy, (inside, 2 * dx - 1, 2 * dy - 1)

    def pixels(self, xp: Any, grid: Any, places: Any) -> None:
        """Convert positions in [-1, 1] to pixel coordinates."""
        for k in range(2):
            xp.add(grid[k], 1, out=places[k])
            xp.multiply(places[k], (self.size[1 - k] - 1) / 2, out=places[k])

    def forward(self, xp: Any, image: Any, places: Any, out: Any, pieces: list[Any]) -> None:
        """out[c, p] = image[c] at position p. image: (channels, h * w); positions in pixels."""
        first, second = pieces[:2]
        for begin in range(0, self.count, self.step):
            x, y = places[:, begin : begin + self.step]
            m = len(x)
            total, part = (b[: self.channels * m].reshape(self.channels, m) for b in (first, second))
            total.fill(0)
            for at, wx, wy, _ in self.corners(xp, x, y):
                xp.take(image, at, axis=1, out=part, mode="clip")
                xp.multiply(part, wx * wy, out=part)
                xp.add(total, part, out=total)
            xp.copyto(out[:, begin : begin + m], total, casting="unsafe")

    def backward(
        self, xp: Any, d_out: Any, image: Any, places: Any, d_image: Any, d_places: Any, pieces: list[Any]
    ) -> None:
        """d_image: (channels, h * w), is added to; d_places: (2, count), for positions in [-1, 1].

        Either may be None.
        """
        first, second, numbers = pieces[:3]
        spread = np.arange(self.channels)[:, None] * prod(self.size) if self.channels else None
        for begin in range(0, self.count, self.step):
            x, y = places[:, begin : begin + self.step]
            m = len(x)
            d, part, at_all = (
                b[: self.channels * m].reshape(self.channels, m) for b in (first, second, numbers)
            )
            xp.copyto(d, d_out[:, begin : begin + m])
            slopes = np.zeros((2, m), d.dtype)
            for at, wx, wy, (inside, sx, sy) in self.corners(xp, x, y):
                if d_places is not None:
                    xp.take(image, at, axis=1, out=part, mode="clip")
                    xp.multiply(part, d, out=part)
                    value = xp.where(inside, xp.add.reduce(part, axis=0), 0)
                    slopes[0] += value * wy * sx
                    slopes[1] += value * wx * sy
                if d_image is not None:
                    xp.multiply(d, wx * wy, out=part)
                    xp.add(at, spread, out=at_all)
                    xp.add.at(d_image.reshape(-1), at_all.reshape(-1), part.reshape(-1))
            if d_places is not None:
                for k in range(2):
                    xp.multiply(slopes[k], (self.size[1 - k] - 1) / 2, out=slopes[k])
                    d_places[k, begin : begin + m] = slopes[k]


class _Sampler(Op):
    """Base: images are read at positions."""

    abstract = True
    accepts = "float"
    flops_per_output = 8

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_sampling(inputs[0], outputs[0]).pieces(dtype))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(
            [*_sampling(inputs[0], outputs[0]).pieces(dtype), _image_piece(inputs[0], dtype)]
        )


class BilinearSampler(_Sampler):
    """Images sampled at the positions of a grid, linear between pixels.

    data: (N, C, H, W);  grid: (N, 2, OH, OW), x and y in [-1, 1]  ->  out: (N, C, OH, OW),
    out[n, c, i, j] = data[n, c] at position grid[n, :, i, j]. Zeros lie outside. `cudnn_off` has no effect.
    """

    inputs = ("data", "grid")

    @record
    class Attrs:
        cudnn_off: bool | None = None

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data, grid = shapes
        if len(data) != 4 or len(grid) != 4 or grid[:2] != (data[0], 2):
            raise ShapeError(f"data must be (N, C, H, W) and grid (N, 2, OH, OW), got {data} and {grid}.")
        if 0 in data[2:]:
            raise ShapeError(f"data {data} has no pixel to sample.")
        return shapes, ((*data[:2], *grid[2:]),)

    @staticmethod
    def compute(t: Any, a: Any, data: Any, grid: Any) -> Any:
        both = t.view(grid, (*grid.shape[:2], 1, *grid.shape[2:], 1))
        x, y = (t.pick(both, t.number(float(k)), 1) for k in range(2))
        return {"out": _sampled(t, data, x, y)}

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, grid: Any, *, out: Any, work: Any) -> None:
        if out is None or not out.size:
            return
        s = _sampling(data.shape, out.shape)
        pieces = carve(work, s.pieces(data.dtype))
        for n in range(len(data)):
            xp.copyto(pieces[4], _rows(grid[n]))
            s.pixels(xp, pieces[4], pieces[4])
            image = _image(xp, data[n], pieces[3])
            s.forward(xp, image, pieces[4], _rows(out[n]), pieces)

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, data: Any, grid: Any, *, d_data: Any, d_grid: Any, work: Any
    ) -> None:
        if not d_out.size or not data.size:  # no places, no channels or no pixels: nothing flows
            for x in (d_data, d_grid):
                if x is not None:
                    x.fill(0)
            return
        s = _sampling(data.shape, d_out.shape)
        pieces = carve(work, [*s.pieces(data.dtype), _image_piece(data.shape, data.dtype)])
        for n in range(len(data)):
            xp.copyto(pieces[4], _rows(grid[n]))
            s.pixels(xp, pieces[4], pieces[4])
            image = _image(xp, data[n], pieces[3])
            d_image = None
            if d_data is not None:
                d_image = pieces[6]
                d_image.fill(0)
            d_places = None if d_grid is None else _rows(d_grid[n])
            s.backward(xp, _rows(d_out[n]), image, pieces[4], d_image, d_places, pieces)
            if d_image is not None:
                xp.copyto(d_data[n].reshape(d_image.shape), d_image, casting="unsafe")


def _sampled(t: Any, data: Any, x: Any, y: Any) -> Any:
    """Images (N, C, H, W) at positions in [-1, 1], linear between pixels, with zeros outside.

    x, y: (N, 1, 1, OH, OW, 1)  ->  (N, 1, C, OH, OW, 1)
    """
    n, c, h, w = data.shape
    x, y = (x + 1.0) * ((w - 1) / 2), (y + 1.0) * ((h - 1) / 2)
    pixels = t.view(data, (n, 1, c, 1, 1, h * w))
    total = None
    # Far positions are moved to the border of zeros, so that their whole numbers have room.
    left, top = (t.floor(t("min", t("max", v, -2.0), size + 1.0)) for v, size in ((x, w), (y, h)))
    for dy in (0.0, 1.0):
        for dx in (0.0, 1.0):
            column, row = left + dx, top + dy
            weight = (x - left if dx else left + 1.0 - x) * (y - top if dy else top + 1.0 - y)
            for v, size in ((column, w), (row, h)):
                weight = t.where("ge", v, 0.0, t.where("lt", v, float(size), weight, 0.0), 0.0)
            term = t.pick(pixels, row * float(w) + column, 5) * weight
            total = term if total is None else total + term
    return total


def _sampling(data: Shape, out: Shape) -> _Sampling:
    return _Sampling(data[1], data[2:], prod(out[2:]))


def _image_piece(data: Shape, dtype: DType) -> Piece:
    return (data[1], prod(data[2:])), accumulator(dtype)


def _image(xp: Any, x: Any, held: Any) -> Any:
    """One image as (channels, h * w), in the type to compute in."""
    flat = x.reshape(held.shape)
    if flat.dtype == held.dtype:
        return flat
    xp.copyto(held, flat)
    return held


class SpatialTransformer(_Sampler):
    """Images sampled at the positions of an affine map: GridGenerator and BilinearSampler in one.

    data: (N, C, H, W);  loc: (N, 6)  ->  out: (N, C, OH, OW), OH and OW = `target_shape`. The grid is not
    kept: backward recomputes it. `cudnn_off` has no effect.
    """

    inputs = ("data", "loc")
    inferred = ("loc",)

    @record
    class Attrs:
        transform_type: Literal["affine"]
        sampler_type: Literal["bilinear"]
        target_shape: tuple[int, ...] = (0, 0)
        cudnn_off: bool | None = None

        def __post_init__(self) -> None:
            check_target(self.target_shape)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        if data is None or len(data) != 4 or 0 in data[2:]:
            raise ShapeError(f"data must be (N, C, H, W), H and W at least 1, got {data}.")
        return (data, (data[0], 6)), ((*data[:2], *a.target_shape),)

    @staticmethod
    def compute(t: Any, a: Any, data: Any, loc: Any) -> Any:
        maps = t.view(loc, (loc.shape[0], 6, 1, 1, 1, 1))
        numbers = [t.pick(maps, t.number(float(k)), 1) for k in range(6)]
        x, y = (affine(t, numbers[k : k + 3], a.target_shape) for k in (0, 3))
        return {"out": _sampled(t, data, x, y)}

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, loc: Any, *, out: Any, work: Any) -> None:
        if out is None:
            return
        s = _sampling(data.shape, out.shape)
        pieces = carve(work, s.pieces(data.dtype))
        for n in range(len(data)):
            _affine(xp, loc[n], a.target_shape, pieces[4].reshape(2, *a.target_shape))
            s.pixels(xp, pieces[4], pieces[4])
            image = _image(xp, data[n], pieces[3])
            s.forward(xp, image, pieces[4], _rows(out[n]), pieces)

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, data: Any, loc: Any, *, d_data: Any, d_loc: Any, work: Any
    ) -> None:
        s = _sampling(data.shape, d_out.shape)
        pieces = carve(work, [*s.pieces(data.dtype), _image_piece(data.shape, data.dtype)])
        for n in range(len(data)):
            _affine(xp, loc[n], a.target_shape, pieces[4].reshape(2, *a.target_shape))
            s.pixels(xp, pieces[4], pieces[4])
            image = _image(xp, data[n], pieces[3])
            d_image, d_places = pieces[6] if d_data is not None else None, pieces[5]
            if d_image is not None:
                d_image.fill(0)
            s.backward(
                xp, _rows(d_out[n]), image, pieces[4], d_image,
                d_places if d_loc is not None else None, pieces,
            )  # fmt: skip
            if d_loc is not None:
                _affine_gradient(xp, d_places.reshape(2, *a.target_shape), d_loc[n])
            if d_image is not None:
                xp.copyto(d_data[n].reshape(d_image.shape), d_image, casting="unsafe")
