"""Pooling over regions of interest."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod
from typing import Any

import numpy as np

from ...core.dtype import as_dtype
from ...core.errors import OpAttributeError, OperatorError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes, Types
from ..scratch import accumulator, carve, Piece, scratch_bytes

_LONGEST = 2.0**40  # length of a part of a region, in pixels: numbers of samples stay exact
_MOST_SAMPLES = 4096  # samples of a part of a region along one axis


def check_size(a: Any) -> None:
    if len(a.pooled_size) != 2 or min(a.pooled_size) < 1:
        raise OpAttributeError(f"pooled_size must be two numbers of at least 1 (H, W), got {a.pooled_size}.")


def require_regions(data: Shape, rois: Shape) -> None:
    if len(data) != 4 or len(rois) != 2 or rois[1] != 5:
        raise ShapeError(f"data must be (N, C, H, W) and rois (R, 5), got {data} and {rois}.")


def regions(rois: Any, count: int) -> Iterator[tuple[int, int, list[float]]]:
    """Number of the region, its image, its corners (x1, y1, x2, y2); regions of image -1 are left out."""
    for r, row in enumerate(rois):
        image, *corners = (float(v) for v in row)
        if image >= count:
            raise OperatorError(f"rois[{r}] names the image {image:g}, but data has {count}.")
        if image >= 0:
            yield r, int(image), corners


def images_of(rois: Any, count: int) -> Any:
    """The image (R,) of each region, -1 for those that are left out. Raises OperatorError as `regions`."""
    named = np.asarray(rois[:, 0], np.float64)
    if (named >= count).any():
        r = int((named >= count).argmax())
        raise OperatorError(f"rois[{r}] names the image {named[r]:g}, but data has {count}.")
    return np.where(named >= 0, named, -1).astype(np.int64)


class ROIPooling(Op):
    """The maximum over each part of each region, ``out[r, c, i, j] = max of data[n, c] over part (i, j) of
    region r``.

    data: (N, C, H, W);  rois: (R, 5), rows of image number n, x1, y1, x2, y2  ->  out: (R, C, PH, PW) with
    PH, PW = `pooled_size`.

    Corners are multiplied by `spatial_scale`, rounded and included; parts are [floor(i * h / PH),
    ceil((i + 1) * h / PH)) of a region of h rows. A part outside the image is 0, as is a region
    of image -1. R. Girshick, 2015, "Fast R-CNN". The first of equal maxima gets the gradient; a hidden
    output `index` stores its position. `rois` have no gradient.
    """

    inputs = ("data", "rois")
    outputs = ("out", "index")
    hidden = 1
    accepts = "float"

    @record
    class Attrs:
        pooled_size: tuple[int, ...]
        spatial_scale: float

        def __post_init__(self) -> None:
            check_size(self)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        ins, _ = super().infer_type(a, *dtypes)
        return ins, (ins[0], as_dtype("int32"))

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data, rois = shapes
        require_regions(data, rois)
        out = (rois[0], data[1], *a.pooled_size)
        return shapes, (out, out)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return outputs[0][0] * prod(inputs[0][1:])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pool_pieces(a, inputs[0], dtype))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pool_gradient_pieces(outputs[0], inputs[0], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, rois: Any, *, out: Any, index: Any, work: Any) -> None:
        wide, at_wide, best, where, part, larger = carve(work, _pool_pieces(a, data.shape, data.dtype))
        c, (h, w), (ph, pw) = data.shape[1], data.shape[2:], a.pooled_size
        for x in (out, index):
            if x is not None:
                x.fill(0 if x is out else -1)
        for r, n, corners in regions(rois, len(data)):
            ((tops, bottoms),), ((lefts, rights),) = pool_bounds(a, [corners], (h, w))
            top, bottom = int(tops.min()), int(bottoms.max())
            if bottom <= top or (rights <= lefts).all():
                continue
            # Along the rows first, so that of equal maxima the first one, row by row, wins.
            rows = bottom - top
            m1, i1 = wide[: c * rows * pw].reshape(c, rows, pw), at_wide[: c * rows * pw].reshape(c, rows, pw)
            spare = part[: m1.size].reshape(m1.shape), larger[: m1.size].reshape(m1.shape)
            _running_max(xp, data[n][:, top:bottom], None, lefts, rights, 2, m1, i1, *spare)
            m2, i2 = best.reshape(c, ph, pw), where.reshape(c, ph, pw)
            spare = part[: m2.size].reshape(m2.shape), larger[: m2.size].reshape(m2.shape)
            _running_max(xp, m1, i1, tops - top, bottoms - top, 1, m2, i2, *spare, w, top)
            empty = (bottoms <= tops)[:, None] | (rights <= lefts)
            if out is not None:
                xp.copyto(out[r], m2, casting="unsafe")
                out[r][:, empty] = 0
            if index is not None:
                xp.copyto(index[r], i2, casting="unsafe")
                index[r][:, empty] = -1

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, rois: Any, index: Any, *, d_data: Any, work: Any) -> None:
        if d_data is None:
            return
        held, numbers, heads = carve(work, _pool_gradient_pieces(d_out.shape, d_data.shape, d_out.dtype))
        images = [n for _, n, _ in regions(rois, len(d_data))]
        of = {r: n for r, n, _ in regions(rois, len(d_data))}
        if not images or not d_data.size:
            d_data.fill(0)
            return
        plane = prod(d_data.shape[2:])
        start = np.arange(d_data.shape[1])[:, None] * plane
        for n in range(len(d_data)):
            held.fill(0)
            for r in (r for r, image in of.items() if image == n):
                at = index[r].reshape(len(start), -1)
                xp.copyto(heads, d_out[r].reshape(at.shape))
                xp.multiply(heads, at >= 0, out=heads)
                xp.maximum(at, 0, out=numbers, casting="unsafe")
                xp.add(numbers, start, out=numbers)
                xp.add.at(held, numbers.reshape(-1), heads.reshape(-1))
            xp.copyto(d_data[n].reshape(-1), held, casting="unsafe")


def rounded(x: Any) -> Any:
    """The nearest whole numbers, halves away from zero, in float64; within 32 bits, and 0 for nan."""
    x = np.nan_to_num(np.asarray(x, np.float64), posinf=2.0**31, neginf=-(2.0**31))
    return np.clip(np.copysign(np.floor(np.abs(x) + 0.5), x), -(2.0**31), 2.0**31)


def pool_bounds(a: Any, corners: Any, size: Shape) -> tuple[Any, Any]:
    """Bounds of ROIPooling's parts, cut to an image of `size`: (R, 2, PH) tops and bottoms, (R, 2, PW) lefts
    and rights. corners: (R, 4), x1, y1, x2, y2.
    """
    at = rounded(np.asarray(corners, np.float64) * a.spatial_scale)
    bounds = []
    for axis, (n, count) in enumerate(zip(size, a.pooled_size)):
        first, last = at[:, 1 - axis, None], at[:, 3 - axis, None]
        step = np.maximum(last - first + 1, 1).astype(np.float32) / np.float32(count)
        i = np.arange(count, dtype=np.float32)
        ends = np.stack([np.floor(i * step), np.ceil((i + 1) * step)], axis=1)
        bounds.append(np.clip(ends.astype(np.int64) + first[:, None].astype(np.int64), 0, n))
    return bounds[0], bounds[1]


def _running_max(
    xp: Any,
    x: Any,
    at: Any,
    begin: Any,
    end: Any,
    axis: int,
    best: Any,
    where: Any,
    part: Any,
    larger: Any,
    width: int = 0,
    top: int = 0,
) -> None:
    """best: the maximum of x over [begin, end) along `axis`, for each pair of bounds; where: its position.

    The position along the last axis (axis 2) is a column; along axis 1, where `at` has the columns, row *
    `width` + column.
    """
    longest = int((end - begin).max())
    last = np.maximum(end - 1, begin)
    limit = x.shape[axis] - 1
    shape = (-1, 1) if axis == 1 else (-1,)
    for t in range(max(longest, 1)):
        place = np.clip(np.minimum(begin + t, last), 0, limit)
        if t == 0:
            _take(xp, x, place, axis, best)
            larger.fill(True)
        else:
            _take(xp, x, place, axis, part)
            xp.greater(part, best, out=larger)
            xp.copyto(best, part, where=larger)
        if at is None:
            xp.copyto(where, place.reshape(shape), where=larger)
        else:
            for i, row in enumerate(place):
                xp.add(at[:, row], (int(row) + top) * width, out=where[:, i], where=larger[:, i])


def _take(xp: Any, x: Any, place: Any, axis: int, out: Any) -> None:
    """out = the slices `place` of x along `axis`, one by one: x may be any view."""
    for i, k in enumerate(place):
        if axis == 1:
            xp.copyto(out[:, i], x[:, k])
        else:
            xp.copyto(out[:, :, i], x[:, :, k])


def _pool_pieces(a: Any, data: Shape, dtype: DType) -> list[Piece]:
    """Maxima along rows and their columns, maxima and their positions, a candidate, and flags."""
    c, h, _ = data[1:]
    ph, pw = a.pooled_size
    wide, small = (c * h * pw,), (c * ph * pw,)
    either = (max(wide[0], small[0]),)
    number, flag = as_dtype("int32"), as_dtype("bool")
    return [(wide, dtype), (wide, number), (small, dtype), (small, number), (either, dtype), (either, flag)]


def _pool_gradient_pieces(out: Shape, data: Shape, dtype: DType) -> list[Piece]:
    """One image's gradient; one region's positions and head gradients."""
    acc = accumulator(dtype)
    region = (out[1], prod(out[2:]))
    return [((prod(data[1:]),), acc), (region, as_dtype("int64")), (region, acc)]


class ROIAlign(Op):
    """The mean over samples of each part of each region, linear between pixels.

    data: (N, C, H, W);  rois: (R, 5), rows of image number n, x1, y1, x2, y2  ->  out: (R, C, PH, PW) with
    PH, PW = `pooled_size`; with `position_sensitive` (R, C / (PH * PW), PH, PW), part (i, j) of channel c
    read from channel c * PH * PW + i * PW + j of data.

    Corners are multiplied by `spatial_scale`; nothing is rounded. Each part is sampled at `sample_ratio`
    positions a side, by default ceil(height of a part) and ceil(width). With `aligned`, coordinates are half
    a pixel less, and regions may be smaller than one pixel. Pixels more than one outside the image are 0.
    A region of image -1 is 0. K. He et al., 2017, "Mask R-CNN". `rois` have no gradient.

    Linear interpolation of a lattice of samples goes axis by axis: out = Wy @ data @ Wx.T, two small
    products.
    """

    op_name = "_contrib_ROIAlign"
    inputs = ("data", "rois")
    accepts = "float"
    flops_per_output = 8

    @record
    class Attrs:
        pooled_size: tuple[int, ...]
        spatial_scale: float
        sample_ratio: int = -1
        position_sensitive: bool = False
        aligned: bool = False

        def __post_init__(self) -> None:
            check_size(self)
            if self.sample_ratio > _MOST_SAMPLES:
                raise OpAttributeError(
                    f"sample_ratio can be at most {_MOST_SAMPLES}, got {self.sample_ratio}."
                )

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data, rois = shapes
        require_regions(data, rois)
        channels = data[1]
        if a.position_sensitive:
            if channels % prod(a.pooled_size):
                raise ShapeError(
                    f"{prod(a.pooled_size)} parts must divide the {channels} channels of data {data}."
                )
            channels //= prod(a.pooled_size)
        return shapes, ((rois[0], channels, *a.pooled_size),)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_align_pieces(a, inputs[0], outputs[0], dtype))

    backward_workspace = workspace

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, rois: Any, *, out: Any, work: Any) -> None:
        if out is None:
            return
        out.fill(0)
        image, half, small, wy, wx = carve(work, _align_pieces(a, data.shape, out.shape, data.dtype))
        held = -1
        for r, n, corners in regions(rois, len(data)):
            lines = _lattice(a, corners, data.shape[2:], (wy, wx))
            if lines is None:
                continue
            (y, top, bottom), (x, left, right) = lines
            if held != n:
                xp.copyto(image, data[n])
                held = n
            part = image[:, top:bottom, left:right]
            if a.position_sensitive:
                _by_position(xp, a, part, y, x, half, out[r])
                continue
            rows = half[: part.shape[0] * y.shape[0] * part.shape[2]].reshape(len(part), len(y), -1)
            xp.matmul(y, part, out=rows)
            xp.matmul(rows, x.T, out=small)
            xp.copyto(out[r], small, casting="unsafe")

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, rois: Any, *, d_data: Any, work: Any) -> None:
        if d_data is None:
            return
        image, half, small, wy, wx = carve(work, _align_pieces(a, d_data.shape, d_out.shape, d_out.dtype))
        listed = list(regions(rois, len(d_data)))
        for n in range(len(d_data)):
            image.fill(0)
            for r, of, corners in listed:
                lines = _lattice(a, corners, d_data.shape[2:], (wy, wx)) if of == n else None
                if lines is None:
                    continue
                (y, top, bottom), (x, left, right) = lines
                part = image[:, top:bottom, left:right]
                xp.copyto(small, d_out[r])
                if a.position_sensitive:
                    _by_position_gradient(xp, a, small, y, x, half, part)
                    continue
                for d, target in zip(small, part):
                    rows = half[: d.shape[0] * x.shape[1]].reshape(len(d), -1)
                    xp.matmul(d, x, out=rows)
                    flat = half[rows.size : rows.size + target.size].reshape(target.shape)
                    xp.matmul(y.T, rows, out=flat)
                    xp.add(target, flat, out=target)
            xp.copyto(d_data[n], image, casting="unsafe")


def _by_position(xp: Any, a: Any, part: Any, y: Any, x: Any, half: Any, out: Any) -> None:
    """out[c, i, j] = y[i] @ part[c, i, j] @ x[j]."""
    ph, pw = a.pooled_size
    parts = part.reshape(-1, ph, pw, *part.shape[1:])
    for i in range(ph):
        for j in range(pw):
            rows = half[: len(parts) * part.shape[2]].reshape(len(parts), -1)
            xp.matmul(y[i], parts[:, i, j], out=rows)
            out[:, i, j] = rows @ x[j]


def _by_position_gradient(xp: Any, a: Any, d: Any, y: Any, x: Any, half: Any, part: Any) -> None:
    """part[c, i, j] += d[c, i, j] * outer(y[i], x[j])."""
    ph, pw = a.pooled_size
    flat = half[: part.shape[1] * part.shape[2]].reshape(part.shape[1:])
    for c in range(len(d)):
        for i in range(ph):
            for j in range(pw):
                target = part[(c * ph + i) * pw + j]
                xp.multiply(y[i][:, None] * d[c, i, j], x[j], out=flat)
                xp.add(target, flat, out=target)


def _samples_inside(begin: float, gap: float, count: int, size: int) -> Any:
    """The range of `count` samples, `gap` apart, that can be in [-1, size]: a region may be far larger."""
    if gap <= 0:
        return np.arange(count)
    first, last = (-1 - begin) / gap - 2, (size - begin) / gap + 2
    return np.arange(int(min(max(first, 0), count)), int(min(max(last, 0), count)))


def _lattice(a: Any, corners: list[float], size: Shape, lines: tuple[Any, Any]) -> Any:
    """The weights of rows and columns, each with the range they are for: ((parts, rows), first row, row
    after the last).

    None if the region touches nothing.
    """
    offset = 0.5 if a.aligned else 0.0
    x1, y1, x2, y2 = (v * a.spatial_scale - offset for v in corners)
    found = []
    for begin, end, parts, n, weights in zip((y1, x1), (y2, x2), a.pooled_size, size, lines):
        length = end - begin if a.aligned else max(end - begin, 1.0)
        step = length / parts
        if not abs(step) < _LONGEST:
            return None
        samples = a.sample_ratio if a.sample_ratio > 0 else max(0, ceil(step))
        if samples == 0:
            return None
        weights.fill(0)
        number = _samples_inside(begin, step / samples, parts * samples, n)
        i = number // samples
        place = begin + i * step + (number % samples + 0.5) * step / samples
        inside = (place >= -1) & (place <= n)
        i, place = i[inside], np.maximum(place[inside], 0)
        if not len(i):
            return None
        low = np.minimum(place.astype(np.int64), n - 1)
        high = np.minimum(low + 1, n - 1)
        share = np.where(low == n - 1, 0.0, place - low)
        np.add.at(weights, (i, low), ((1 - share) / samples).astype(weights.dtype))
        np.add.at(weights, (i, high), (share / samples).astype(weights.dtype))
        first, stop = int(low.min()), int(high.max()) + 1
        found.append((weights[:, first:stop], first, stop))
    return found


def _align_pieces(a: Any, data: Shape, out: Shape, dtype: DType) -> list[Piece]:
    """One image; rows reduced (or a plane and a reduced one); one region's result; weights by axis."""
    acc = accumulator(dtype)
    c, h, w = data[1:]
    ph, pw = a.pooled_size
    half = max(c * ph * w, h * w + ph * w)
    return [((c, h, w), acc), ((half,), acc), (out[1:], acc), ((ph, h), acc), ((pw, w), acc)]
