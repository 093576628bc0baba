"""Sampling images at given places: grids, the bilinear sampler, spatial transformers.

M. Jaderberg, K. Simonyan, A. Zisserman, K. Kavukcuoglu, 2015, "Spatial transformer networks". A place is
(x, y), -1 the centre of the first and 1 that of the last column or row; outside the image lie zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from ..core.errors import OpAttributeError, ShapeError
from ..graph.ir import Shape
from ..graph.opdef import DType, Op, Shapes
from .blocks import PIECE
from .scratch import accumulator, BLOCK, carve, Piece, scratch_bytes


class GridGenerator(Op):
    """Places for BilinearSampler, from an affine map or from a flow.

    affine: data: (N, 6)  ->  out: (N, 2, OH, OW), out[n] = data[n] as (2, 3) @ (x, y, 1) for all places (x,
    y) of an image of `target_shape` (OH, OW).
    warp: data: (N, 2, H, W), how far in pixels to look right and down  ->  out: (N, 2, H, W), the places
    looked at; `target_shape` is ignored. The gradient reads no input.
    """

    inputs = ("data",)
    accepts = "float"
    cheap = True

    @dataclass(frozen=True)
    class Attrs:
        transform_type: Literal["affine", "warp"]
        target_shape: tuple[int, ...] = (0, 0)

        def __post_init__(self) -> None:
            if self.transform_type == "affine":
                _check_target(self.target_shape)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        if a.transform_type == "affine":
            if len(data) != 2 or data[1] != 6:
                raise ShapeError(f"data must be (N, 6) for an affine map, got {data}.")
            return shapes, ((data[0], 2, *a.target_shape),)
        if len(data) != 4 or data[1] != 2:
            raise ShapeError(f"data must be (N, 2, H, W) for a flow, got {data}.")
        return shapes, (data,)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_grid_pieces(outputs[0], dtype))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_grid_pieces(outputs[0], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        if out is None or not out.size:
            return
        base, rows, few = carve(work, _grid_pieces(out.shape, data.dtype))
        if a.transform_type == "affine":
            _affine_maps(xp, data, out, base, rows, few)
            return
        # A pixel's own place, in pixels, then all of it as a place in [-1, 1].
        h, w = out.shape[2:]
        base[0].reshape(h, w)[:] = np.arange(w, dtype=base.dtype)
        base[1].reshape(h, w)[:] = np.arange(h, dtype=base.dtype)[:, None]
        given, made = data.reshape(len(data), 2, -1), out.reshape(len(data), 2, -1)
        for k, m in enumerate((w, h)):
            for begin in range(0, len(data), len(rows)):
                some = given[begin : begin + len(rows), k]
                places = rows[: len(some)]
                xp.add(some, base[k], out=places)
                xp.multiply(places, 2 / max(m - 1, 1), out=places)
                xp.subtract(places, 1, out=places)
                xp.copyto(made[begin : begin + len(rows), k], places, casting="unsafe")

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, *, d_data: Any, work: Any) -> None:
        if d_data is None:
            return
        h, w = d_out.shape[2:]
        if a.transform_type == "warp":
            for k, m in enumerate((w, h)):
                xp.multiply(d_out[:, k], 2 / max(m - 1, 1), out=d_data[:, k], casting="same_kind")
            return
        base, rows, few = carve(work, _grid_pieces(d_out.shape, d_out.dtype))
        _fill_base(base, (h, w))
        given, made = d_out.reshape(-1, h * w), d_data.reshape(-1, 3)
        for begin in range(0, len(given), len(rows)):
            some = given[begin : begin + len(rows)]
            held, product = rows[: len(some)], few[: len(some)]
            xp.copyto(held, some)
            xp.matmul(held, base.T, out=product)
            xp.copyto(made[begin : begin + len(rows)], product, casting="unsafe")

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        # The map is affine: its slope does not depend on where it is taken.
        return {"data": w._grid_d_data(heads["out"], ins["data"], **vars(a))}


class _grid_d_data(Op):
    """Gradient of GridGenerator in its data.

    grad: (N, 2, OH, OW);  like: as GridGenerator's data, its shape counts  ->  out: as `like`.
    """

    inputs = ("grad", "like")
    accepts = "float"
    Attrs = GridGenerator.Attrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        return shapes, (shapes[1],)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_grid_pieces(inputs[0], dtype))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_grid_pieces(inputs[0], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, grad: Any, like: Any, *, out: Any, work: Any) -> None:
        GridGenerator.backward(xp, a, grad, d_data=out, work=work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, *, d_grad: Any, work: Any) -> None:
        if a.transform_type == "warp":
            GridGenerator.backward(xp, a, d_out, d_data=d_grad, work=work)
        elif d_grad.size:
            _affine_maps(xp, d_out, d_grad, *carve(work, _grid_pieces(d_grad.shape, d_grad.dtype)))


def _check_target(shape: Shape) -> None:
    if len(shape) != 2 or min(shape) < 1:
        raise OpAttributeError(f"target_shape must be two numbers of at least 1 (H, W), got {shape}.")


def _grid_pieces(grid: Shape, dtype: DType) -> list[Piece]:
    """Scratch: (x, y, 1) of all places; some rows of a grid; their maps."""
    n, count, acc = 2 * grid[0], prod(grid[2:]), accumulator(dtype)
    rows = max(1, min(n, BLOCK // max(1, count)))
    return [((3, count), acc), ((rows, count), acc), ((rows, 3), acc)]


def _fill_base(base: Any, size: Shape) -> None:
    """base: (x, y, 1) of each place of an image of `size`."""
    x, y, one = base.reshape(3, *size)
    x[:] = _line(size[1], base.dtype)
    y[:] = _line(size[0], base.dtype)[:, None]
    one[:] = 1


def _affine_maps(xp: Any, theta: Any, grid: Any, base: Any, rows: Any, few: Any) -> None:
    """grid[n] = theta[n] as (2, 3) @ (x, y, 1), for all places and all n."""
    _fill_base(base, grid.shape[2:])
    given, made = theta.reshape(-1, 3), grid.reshape(-1, base.shape[1])
    for begin in range(0, len(given), len(rows)):
        some = given[begin : begin + len(rows)]
        held, product = few[: len(some)], rows[: len(some)]
        xp.copyto(held, some)
        xp.matmul(held, base, out=product)
        xp.copyto(made[begin : begin + len(rows)], product, casting="unsafe")


def _line(n: int, dtype: Any) -> Any:
    """The places of n columns: -1 to 1; -1 for the only one."""
    return np.arange(n, dtype=dtype) * (2 / max(n - 1, 1)) - 1


def _affine(xp: Any, theta: Any, size: Shape, places: Any) -> None:
    """places[k, i, j] = theta[k] . (x_j, y_i, 1)."""
    t = np.asarray(theta, places.dtype).reshape(2, 3)
    x, y = _line(size[1], places.dtype), _line(size[0], places.dtype)
    for k in range(2):
        xp.add(t[k, 0] * x, (t[k, 1] * y + t[k, 2])[:, None], out=places[k])


def _affine_gradient(xp: Any, d_places: Any, d_theta: Any) -> None:
    """d_theta[k] = sum over i, j of d_places[k, i, j] * (x_j, y_i, 1)."""
    h, w = d_places.shape[1:]
    x, y = _line(w, d_places.dtype), _line(h, d_places.dtype)
    d = d_theta.reshape(2, 3)
    for k in range(2):
        rows = xp.add.reduce(d_places[k], axis=1)
        d[k, 0] = xp.dot(xp.add.reduce(d_places[k], axis=0), x)
        d[k, 1] = xp.dot(rows, y)
        d[k, 2] = xp.add.reduce(rows)


@dataclass(frozen=True)
class _Sampling:
    """One image sampled at many places: `channels` of (h, w), `count` places."""

    channels: int
    size: Shape
    count: int

    @property
    def step(self) -> int:
        """Places at a time."""
        return max(1, min(self.count, PIECE // 8, 2 * BLOCK // max(1, self.channels)))

    def pieces(self, dtype: DType) -> list[Piece]:
        """Two arrays of (channels, step), their indices, one image and its places."""
        acc = accumulator(dtype)
        part = (self.channels * self.step,)
        image: Piece = ((self.channels, prod(self.size)), acc)
        places: Piece = ((2, self.count), acc)
        return [(part, acc), (part, acc), (part, np.dtype("int64")), image, places, places]

    def corners(self, xp: Any, x: Any, y: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Of each corner of the cell around each place: its number in the image, its weights along x and y,
        and the slopes of these, +1 or -1. Corners outside the image have weights and slopes 0.
        """
        h, w = self.size
        # Beyond one pixel outside nothing counts; moving far places there keeps them small enough for whole
        # numbers.
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
        """Places in [-1, 1] as pixel coordinates."""
        for k in range(2):
            xp.add(grid[k], 1, out=places[k])
            xp.multiply(places[k], (self.size[1 - k] - 1) / 2, out=places[k])

    def forward(self, xp: Any, image: Any, places: Any, out: Any, pieces: list[Any]) -> None:
        """out[c, p] = image[c] at place p. image: (channels, h * w); places in pixels."""
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
        """d_image: (channels, h * w), is added to; d_places: (2, count), for places in [-1, 1].

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


class BilinearSampler(Op):
    """Images read at the places of a grid, linear between pixels.

    data: (N, C, H, W);  grid: (N, 2, OH, OW), x and y in [-1, 1]  ->  out: (N, C, OH, OW),
    out[n, c, i, j] = data[n, c] at the place grid[n, :, i, j]. Zeros lie outside. `cudnn_off` has no effect.
    """

    inputs = ("data", "grid")
    accepts = "float"

    @dataclass(frozen=True)
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
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 8 * prod(outputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_sampling(inputs[0], outputs[0]).pieces(dtype))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(
            [*_sampling(inputs[0], outputs[0]).pieces(dtype), _image_piece(inputs[0], dtype)]
        )

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, grid: Any, *, out: Any, work: Any) -> None:
        if out is None or not out.size:
            return
        s = _sampling(data.shape, out.shape)
        pieces = carve(work, s.pieces(data.dtype))
        for n in range(len(data)):
            xp.copyto(pieces[4], grid[n].reshape(2, -1))
            s.pixels(xp, pieces[4], pieces[4])
            image = _image(xp, data[n], pieces[3])
            s.forward(xp, image, pieces[4], out[n].reshape(s.channels, -1), pieces)

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, data: Any, grid: Any, *, d_data: Any, d_grid: Any, work: Any
    ) -> None:
        s = _sampling(data.shape, d_out.shape)
        pieces = carve(work, [*s.pieces(data.dtype), _image_piece(data.shape, data.dtype)])
        for n in range(len(data)):
            xp.copyto(pieces[4], grid[n].reshape(2, -1))
            s.pixels(xp, pieces[4], pieces[4])
            image = _image(xp, data[n], pieces[3])
            d_image = None
            if d_data is not None:
                d_image = pieces[6]
                d_image.fill(0)
            d_places = None if d_grid is None else d_grid[n].reshape(2, -1)
            s.backward(xp, d_out[n].reshape(s.channels, -1), image, pieces[4], d_image, d_places, pieces)
            if d_image is not None:
                xp.copyto(d_data[n].reshape(d_image.shape), d_image, casting="unsafe")


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


class SpatialTransformer(Op):
    """Images read at the places of an affine map: GridGenerator and BilinearSampler in one.

    data: (N, C, H, W);  loc: (N, 6)  ->  out: (N, C, OH, OW), OH and OW = `target_shape`. The grid is not
    kept: backward makes it again. `cudnn_off` has no effect.
    """

    inputs = ("data", "loc")
    inferred = ("loc",)
    accepts = "float"

    @dataclass(frozen=True)
    class Attrs:
        transform_type: Literal["affine"]
        sampler_type: Literal["bilinear"]
        target_shape: tuple[int, ...] = (0, 0)
        cudnn_off: bool | None = None

        def __post_init__(self) -> None:
            _check_target(self.target_shape)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        if data is None or len(data) != 4 or 0 in data[2:]:
            raise ShapeError(f"data must be (N, C, H, W), H and W at least 1, got {data}.")
        return (data, (data[0], 6)), ((*data[:2], *a.target_shape),)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 8 * prod(outputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_sampling(inputs[0], outputs[0]).pieces(dtype))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(
            [*_sampling(inputs[0], outputs[0]).pieces(dtype), _image_piece(inputs[0], dtype)]
        )

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
            s.forward(xp, image, pieces[4], out[n].reshape(s.channels, -1), pieces)

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
                xp, d_out[n].reshape(s.channels, -1), image, pieces[4], d_image,
                d_places if d_loc is not None else None, pieces,
            )  # fmt: skip
            if d_loc is not None:
                _affine_gradient(xp, d_places.reshape(2, *a.target_shape), d_loc[n])
            if d_image is not None:
                xp.copyto(d_data[n].reshape(d_image.shape), d_image, casting="unsafe")
