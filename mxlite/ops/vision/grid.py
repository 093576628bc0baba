"""Grids: the positions at which images are sampled.

M. Jaderberg, K. Simonyan, A. Zisserman, K. Kavukcuoglu, 2015, "Spatial transformer networks". A position is
(x, y), -1 the centre of the first and 1 that of the last column or row.
"""

from __future__ import annotations

from math import prod
from typing import Any, Literal

import numpy as np

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..scratch import accumulator, BLOCK, carve, Piece, scratch_bytes


class GridGenerator(Op):
    """Positions for BilinearSampler, from an affine map or from a flow.

    affine: data: (N, 6)  ->  out: (N, 2, OH, OW), out[n] = data[n] as (2, 3) @ (x, y, 1) for all positions
    (x, y) of an image of `target_shape` (OH, OW).
    warp: data: (N, 2, H, W), displacements in pixels, right and down  ->  out: (N, 2, H, W), the displaced
    positions; `target_shape` is ignored. The gradient reads no input.
    """

    inputs = ("data",)
    accepts = "float"
    cheap = True

    @record
    class Attrs:
        transform_type: Literal["affine", "warp"]
        target_shape: tuple[int, ...] = (0, 0)

        def __post_init__(self) -> None:
            if self.transform_type == "affine":
                check_target(self.target_shape)

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
    def compute(t: Any, a: Any, data: Any) -> Any:
        if a.transform_type == "affine":
            maps = t.view(data, (data.shape[0], 2, 1, 1, 3))
            return {"out": affine(t, [t.pick(maps, t.number(float(k)), 4) for k in range(3)], a.target_shape)}
        ends = [float(max(n - 1, 1)) for n in data.shape[2:]]
        own, last = (
            t.where("eq", t.index(data, 1), 0.0, along_x, along_y)
            for along_x, along_y in ((t.index(data, 3), t.index(data, 2)), reversed(ends))
        )
        return {"out": (data + own) * 2.0 / last - 1.0}

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_grid_pieces(outputs[0], dtype))

    backward_workspace = workspace

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        if out is None or not out.size:
            return
        base, rows, few = carve(work, _grid_pieces(out.shape, data.dtype))
        if a.transform_type == "affine":
            _affine_maps(xp, data, out, base, rows, few)
            return
        # A pixel's own position, in pixels, then the sum as a position in [-1, 1].
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
        # The map is affine: its slope is the same everywhere.
        return {"data": w._grid_d_data(heads["out"], ins["data"], **vars(a))}


class GridDataGradient(Op):
    """Gradient of GridGenerator in its data.

    grad: (N, 2, OH, OW);  like: as GridGenerator's data, whose shape counts  ->  out: as `like`.
    """

    op_name = "_grid_d_data"
    inputs = ("grad", "like")
    shape_only = ("like",)
    accepts = "float"
    Attrs = GridGenerator.Attrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        (like,), (grad,) = GridGenerator.infer_shape(a, shapes[1])
        return (grad, like), (like,)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_grid_pieces(inputs[0], dtype))

    backward_workspace = workspace

    @staticmethod
    def forward(xp: Any, a: Any, grad: Any, like: Any, *, out: Any, work: Any) -> None:
        GridGenerator.backward(xp, a, grad, d_data=out, work=work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, *, d_grad: Any, work: Any) -> None:
        if a.transform_type == "warp":
            GridGenerator.backward(xp, a, d_out, d_data=d_grad, work=work)
        elif d_grad.size:
            _affine_maps(xp, d_out, d_grad, *carve(work, _grid_pieces(d_grad.shape, d_grad.dtype)))


def check_target(shape: Shape) -> None:
    if len(shape) != 2 or min(shape) < 1:
        raise OpAttributeError(f"target_shape must be two numbers of at least 1 (H, W), got {shape}.")


def _grid_pieces(grid: Shape, dtype: DType) -> list[Piece]:
    """Scratch: (x, y, 1) of all positions; some rows of a grid; their maps."""
    n, count, acc = 2 * grid[0], prod(grid[2:]), accumulator(dtype)
    rows = max(1, min(n, BLOCK // max(1, count)))
    return [((3, count), acc), ((rows, count), acc), ((rows, 3), acc)]


def _fill_base(base: Any, size: Shape) -> None:
    """base: (x, y, 1) of each position of an image of `size`."""
    x, y, one = base.reshape(3, *size)
    x[:] = line_of(size[1], base.dtype)
    y[:] = line_of(size[0], base.dtype)[:, None]
    one[:] = 1


def _affine_maps(xp: Any, theta: Any, grid: Any, base: Any, rows: Any, few: Any) -> None:
    """grid[n] = theta[n] as (2, 3) @ (x, y, 1), for all positions and all n."""
    _fill_base(base, grid.shape[2:])
    given, made = theta.reshape(-1, 3), grid.reshape(-1, base.shape[1])
    for begin in range(0, len(given), len(rows)):
        some = given[begin : begin + len(rows)]
        held, product = few[: len(some)], rows[: len(some)]
        xp.copyto(held, some)
        xp.matmul(held, base, out=product)
        xp.copyto(made[begin : begin + len(rows)], product, casting="unsafe")


def affine(t: Any, row: Any, size: Shape) -> Any:
    """A row (a, b, c) of a map applied to all positions of an image: a x + b y + c, (..., H, W, 1)."""
    places = t.broadcast(0.0, (*size, 1))
    y, x = (t.index(places, k) * (2 / max(n - 1, 1)) - 1.0 for k, n in enumerate(size))
    return row[0] * x + row[1] * y + row[2]


def line_of(n: int, dtype: Any) -> Any:
    """The positions of n columns: -1 to 1; -1 for a single one."""
    return np.arange(n, dtype=dtype) * (2 / max(n - 1, 1)) - 1
