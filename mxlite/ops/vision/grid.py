"""Grids: the positions at which images are sampled.

M. Jaderberg, K. Simonyan, A. Zisserman, K. Kavukcuoglu, 2015, "Spatial transformer networks". A position is
(x, y), -1 the centre of the first and 1 that of the last column or row.
"""

from __future__ import annotations

from typing import Any, Literal

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import Shapes
from ..declared import Declared


class GridGenerator(Declared):
    """Positions for BilinearSampler, from an affine map or from a flow.

    affine: data: (N, 6)  ->  out: (N, 2, OH, OW), out[n] = data[n] as (2, 3) @ (x, y, 1) for all positions
    (x, y) of an image of `target_shape` (OH, OW).
    warp: data: (N, 2, H, W), displacements in pixels, right and down  ->  out: (N, 2, H, W), the displaced
    positions; `target_shape` is ignored. The gradient reads no input.
    """

    inputs = ("data",)
    accepts = "float"
    cheap = True
    backward_reads = ("d_out",)

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
            row = [t.pick(maps, t.number(float(k)), 4) for k in range(3)]
            return {"out": affine(t, row, a.target_shape)}
        own = t.where("eq", t.index(data, 1), 0.0, t.index(data, 3), t.index(data, 2))
        return {"out": (data + own) * _scale(t, data) - 1.0}

    @staticmethod
    def compute_gradient(t: Any, a: Any, heads: Any, arrays: Any) -> Any:
        d = heads["out"]
        return {"d_data": d * _scale(t, d) if a.transform_type == "warp" else _affine_gradient(t, d)}

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        # The map is affine: its slope is the same everywhere.
        return {"data": w._grid_d_data(heads["out"], ins["data"], **vars(a))}


class GridDataGradient(Declared):
    """Gradient of GridGenerator in its data.

    grad: (N, 2, OH, OW);  like: as GridGenerator's data, whose shape counts  ->  out: as `like`.
    """

    op_name = "_grid_d_data"
    inputs = ("grad", "like")
    shape_only = ("like",)
    accepts = "float"
    backward_reads = ("d_out",)
    gradients = ("grad",)
    Attrs = GridGenerator.Attrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        (like,), (grad,) = GridGenerator.infer_shape(a, shapes[1])
        return (grad, like), (like,)

    @staticmethod
    def compute(t: Any, a: Any, grad: Any, like: Any) -> Any:
        return {"out": GridGenerator.compute_gradient(t, a, {"out": grad}, {})["d_data"]}

    @staticmethod
    def compute_gradient(t: Any, a: Any, heads: Any, arrays: Any) -> Any:
        d = heads["out"]
        if a.transform_type == "warp":
            return {"d_grad": d * _scale(t, d)}
        return {"d_grad": GridGenerator.compute(t, a, d)["out"]}


def _scale(t: Any, flow: Any) -> Any:
    """The length of a pixel in positions, along x and along y: of as many axes as (N, 2, H, W)."""
    along_y, along_x = (2 / max(n - 1, 1) for n in flow.shape[2:4])
    return t.where("eq", t.index(flow, 1), 0.0, along_x, along_y)


def affine(t: Any, row: Any, size: Shape) -> Any:
    """A row (a, b, c) of a map applied to all positions of an image: a x + b y + c, (..., H, W, 1)."""
    x, y = positions(t, size)
    return row[0] * x + row[1] * y + row[2]


def positions(t: Any, size: Shape) -> tuple[Any, Any]:
    """The positions of the columns of an image, (W, 1), and of its rows, (H, 1, 1)."""
    image = t.broadcast(0.0, (*size, 1))
    y, x = (t.index(image, k) * (2 / max(n - 1, 1)) - 1.0 for k, n in enumerate(size))
    return x, y


def _affine_gradient(t: Any, d: Any) -> Any:
    """The gradient of a map (N, 2, 1, 1, 3) from that of the positions."""
    size = d.shape[2:4]
    d = t.view(d, (d.shape[0], 2, *size, 1))
    a, b, c = (t.sum(v, (2, 3)) for v in (*(d * v for v in positions(t, size)), d))
    number = t.index(t.broadcast(0.0, (3,)), 0)
    return t.where("eq", number, 0.0, a, t.where("eq", number, 1.0, b, c))


def check_target(shape: Shape) -> None:
    if len(shape) != 2 or min(shape) < 1:
        raise OpAttributeError(f"target_shape must be two numbers of at least 1 (H, W), got {shape}.")
