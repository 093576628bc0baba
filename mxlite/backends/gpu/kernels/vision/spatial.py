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
from .....graph.opdef import Op
from .....ops.vision.grid import GridDataGradient, GridGenerator
from .....ops.vision.sampler import BilinearSampler, SpatialTransformer
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating
from ...compiler.structure import declared
from ...handwritten.each import launch, Launches, typed
from ...handwritten.layout import MOST
from ...handwritten.segments import SortedIndices
from ...rows import answer, table
from ...runtime.device import Device, InOrder, pointer, Run
from ...runtime.scratch import padded

_INT64 = np.dtype("int64")


class _Image(ctypes.Structure):
    """The structure Image of spatial.cuh."""

    _fields_ = declared("spatial", "Image")


class Sampling:
    """Images (N, C, H, W) read at `count` positions each; positions lie at the beginning of the scratch."""

    def __init__(self, device: Device, data: Shape, out: Shape, dtype: str) -> None:
        self.device, self.data, self.out = device, data, out
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

    def at_grid(self, grid: Any, work: Any) -> Run:
        n = self.data[0] * 2 * self.count
        return self.launches.each("grid_pixels", n, grid, work, self.count, *self.data[2:])

    def at_map(self, theta: Any, work: Any) -> Run:
        n = self.data[0] * 2 * self.count
        sizes = *self.out[2:], *self.data[2:]
        return self.launches.each("map_pixels", n, theta, work, *sizes)

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
    made = Sampling(device, r.inputs[0], r.outputs[0], str(r.dtype))
    return made if made.fits else None


def _forward(device: Device, r: Request, mapped: bool) -> ChosenKernel | None:
    s = _sampling(device, r)
    if s is None:
        return None

    def connect(a: Any, data: Any, where: Any, *, out: Any, work: Any) -> Run:
        find = s.at_map if mapped else s.at_grid
        return InOrder([find(where, work), s.sample(data, out, work)])

    return answer(r, connect, s.places_nbytes, "cuda bilinear sampler")


def _backward(device: Device, r: Request, mapped: bool) -> ChosenKernel | None:
    s = _sampling(device, r)
    if s is None:
        return None

    def connect(a: Any, d_out: Any, data: Any, where: Any, *, work: Any, d_data: Any, **other: Any) -> Run:
        (d_where,) = other.values()
        rest = work[s.places_nbytes :]
        runs = [(s.at_map if mapped else s.at_grid)(where, work)]
        if d_where is not None and mapped:
            runs.append(s.places_gradient(d_out, data, rest, work, True))
            runs.append(_map_gradient(s.launches, rest, d_where, s.out[2:], "a"))
        elif d_where is not None:
            runs.append(s.places_gradient(d_out, data, d_where, work, False))
        if d_data is not None:
            runs.append(s.data_gradient(d_out, d_data, work, rest))
        return InOrder(runs)

    nbytes = s.places_nbytes + max(s.sorting_nbytes, s.places_nbytes if mapped else 0)
    return answer(r, connect, nbytes, "cuda bilinear sampler gradient")


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


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""
    grid, gradient = partial(_grid, back=False), partial(_grid, back=True)
    return table(
        device,
        (BilinearSampler, partial(_forward, mapped=False), partial(_backward, mapped=False)),
        (SpatialTransformer, partial(_forward, mapped=True), partial(_backward, mapped=True)),
        (GridGenerator, grid, gradient),
        (GridDataGradient, gradient, grid),
    )
