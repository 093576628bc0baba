"""Sampling of images at the positions of a grid: the bilinear sampler, spatial transformers.

M. Jaderberg, K. Simonyan, A. Zisserman, K. Kavukcuoglu, 2015, "Spatial transformer networks". Positions are
those of `grid.py`: (x, y) in [-1, 1]. Outside the image are zeros.
"""

from __future__ import annotations

from typing import Any, Literal

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import Shapes
from ..declared import Declared
from .grid import affine, check_target


class _Sampler(Declared):
    """Base: images are read at positions."""

    abstract = True
    accepts = "float"
    flops_per_output = 8


class BilinearSampler(_Sampler):
    """Images sampled at the positions of a grid, linear between pixels.

    data: (N, C, H, W);  grid: (N, 2, OH, OW), x and y in [-1, 1]  ->  out: (N, C, OH, OW),
    out[n, c, i, j] = data[n, c] at position grid[n, :, i, j]. Zeros lie outside. `cudnn_off` has no effect.
    """

    inputs = ("data", "grid")
    backward_reads = ("d_out", "data", "grid")
    gradients = ("data", "grid")

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


class SpatialTransformer(_Sampler):
    """Images sampled at the positions of an affine map: GridGenerator and BilinearSampler in one.

    data: (N, C, H, W);  loc: (N, 6)  ->  out: (N, C, OH, OW), OH and OW = `target_shape`. The grid is not
    kept: backward recomputes it. `cudnn_off` has no effect.
    """

    inputs = ("data", "loc")
    backward_reads = ("d_out", "data", "loc")
    gradients = ("data", "loc")
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
