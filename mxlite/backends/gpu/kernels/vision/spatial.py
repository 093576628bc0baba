"""Grids, bilinear samplers and spatial transformers, and their gradients.

A sample is a thread, which reads the four pixels around its position. For the data gradient the positions
are sorted by the cell that contains them, on the device; then each pixel gathers from four cells: no atomic
addition, and always in the same order.
"""

from __future__ import annotations

import ctypes
from functools import partial
from math import prod
from typing import Any

import numpy as np

from .....graph.ir import Shape
from .....ops.vision.grid import GridDataGradient, GridGenerator
from .....ops.vision.sampler import BilinearSampler, SpatialTransformer
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating
from ...compiler.source import structure
from ...handwritten.each import launch, Launches, typed
from ...handwritten.layout import MOST
from ...handwritten.segments import SortedIndices
from ...rows import answer, row, table
from ...runtime.device import Device, InOrder, pointer, Run
from ...runtime.scratch import padded

_INT64 = np.dtype("int64")


_Image: Any = structure("spatial", "Image")


class Sampling:
    """Images (N, C, H, W) read at `count` positions each; positions lie at the beginning of the scratch."""

    def __init__(self, device: Device, data: Shape, out: Shape, dtype: str, mapped: bool) -> None:
        self.device, self.data, self.out, self.mapped = device, data, out, mapped
        self.launches = Launches(device, typed(dtype, "spatial"))
        self.count = prod(out[2:])
        self.image = _Image(*data[1:], self.count)
        self.cells = data[0] * (data[2] + 1) * (data[3] + 1)
        self.order = SortedIndices(device, data[0] * self.count, self.cells + 1, False)
        acc = 8 if dtype == "float64" else 4
        self.places_nbytes = padded(data[0] * 2 * self.count * acc)
        self.fits = all(0 < prod(s) <= MOST for s in (data, out)) and self.order.fits and self.cells < MOST

    @property
    def sorting_nbytes(self) -> int:
        n = self.data[0] * self.count
        return padded(8 * n) + padded(self.order.workspace) + 4 * (self.cells + 1)

    def find(self, where: Any, work: Any) -> Run:
        """The call that writes positions to `work`, from grids or, if `mapped`, from affine maps."""
        name, sizes = ("map_pixels", self.out[2:]) if self.mapped else ("grid_pixels", (self.count,))
        return self.launches.each(name, self.data[0] * 2 * self.count, where, work, *sizes, *self.data[2:])

    def sample(self, data: Any, out: Any, work: Any) -> Run:
        return self.launches.each("sample", out.size, data, work, out, self.image)

    def places_gradient(self, d_out: Any, data: Any, d_places: Any, work: Any, wide: bool) -> Run:
        """wide: True if `d_places` is scratch of the compute type."""
        name = f"places_gradient_{'a' if wide else 't'}"
        n = self.data[0] * self.count
        return self.launches.each(name, n, d_out, data, work, d_places, self.image)

    def data_gradient(self, d_out: Any, d_data: Any, places: Any, work: Any) -> Run:
        n = self.data[0] * self.count
        first, second = padded(8 * n), padded(8 * n) + padded(self.order.workspace)
        cells = work[: 8 * n].view(_INT64)
        starts = work[second : second + 4 * (self.cells + 1)]
        sort, keys, order = self.order.call(cells, work[first : first + self.order.workspace])
        outside = ctypes.c_int64(self.cells)
        arrays = d_out, places, pointer(order), starts, d_data
        return InOrder(
            [
                self.launches.each("number_cells", n, places, cells, outside, self.image),
                sort,
                self.launches.each("cell_starts", self.cells + 1, pointer(keys), starts, n),
                self.launches.each("data_gradient", d_data.size, *arrays, self.image),
            ]
        )


def _map_gradient(launches: Launches, d_grid: Any, d_theta: Any, size: Shape, kind: str) -> Run:
    """d_theta of a grid's gradient: a block for each row of the maps. kind: "a" if `d_grid` is scratch."""
    device, text = launches
    return launch(device, text, f"map_gradient_{kind}", d_theta.size // 3, 256, d_grid, d_theta, *size)


def _sampling(device: Device, r: Request) -> Sampling | None:
    if not floating(*r.dtypes) or len(set(r.dtypes)) != 1:
        return None
    mapped = (r.op.forward_op or r.op) is SpatialTransformer
    made = Sampling(device, r.inputs[0], r.outputs[0], str(r.dtype), mapped)
    return made if made.fits else None


@row(_sampling, "cuda bilinear sampler", lambda s: s.places_nbytes)
def _forward(s: Sampling, a: Any, data: Any, where: Any, *, out: Any, work: Any) -> Run:
    return InOrder([s.find(where, work), s.sample(data, out, work)])


def _nbytes(s: Sampling) -> int:
    return s.places_nbytes + max(s.sorting_nbytes, s.places_nbytes if s.mapped else 0)


@row(_sampling, "cuda bilinear sampler gradient", _nbytes)
def _backward(
    s: Sampling, a: Any, d_out: Any, data: Any, where: Any, *, work: Any, d_data: Any, **other: Any
) -> Run:
    (d_where,) = other.values()
    rest = work[s.places_nbytes :]
    runs = [s.find(where, work)]
    if d_where is not None and s.mapped:
        runs.append(s.places_gradient(d_out, data, rest, work, True))
        runs.append(_map_gradient(s.launches, rest, d_where, s.out[2:], "a"))
    elif d_where is not None:
        runs.append(s.places_gradient(d_out, data, d_where, work, False))
    if d_data is not None:
        runs.append(s.data_gradient(d_out, d_data, work, rest))
    return InOrder(runs)


def _grid(device: Device, r: Request, back: bool) -> ChosenKernel | None:
    """back: the grid's gradient is given."""
    grids = r.inputs[0] if (r.op.forward_op or r.op) is GridDataGradient else r.outputs[0]
    if not floating(r.dtype) or not 0 < prod(grids) <= MOST:
        return None
    (made,), size = r.op.output_names(r.attrs), grids[2:]
    launches = Launches(device, typed(str(r.dtype), "spatial"))

    def connect(a: Any, given: Any, *shapes_only: Any, work: Any, **rest: Any) -> Run:
        out = rest[made]
        if a.transform_type == "warp":
            is_d = int(back or (r.op.forward_op or r.op) is GridDataGradient)
            return launches.each("warp_grid", out.size, given, out, *size, is_d)
        if back:
            return _map_gradient(launches, given, out, size, "t")
        return launches.each("map_grid", out.size, given, out, *size)

    return answer(r, connect, 0, "cuda grid")


_MAKE, _SLOPE = partial(_grid, back=False), partial(_grid, back=True)

rows = table(
    *((op, _forward, _backward) for op in (BilinearSampler, SpatialTransformer)),
    (GridGenerator, _MAKE, _SLOPE),
    (GridDataGradient, _SLOPE, _MAKE),
)
