"""Position-sensitive pooling over regions of interest: each part of a region has its own channels.

J. Dai, Y. Li, K. He, J. Sun, 2016, "R-FCN: object detection via region-based fully convolutional networks";
with parts that move, J. Dai and others, 2017, "Deformable convolutional networks".

Part (i, j) of channel d of a pooled region reads channel (d * G + gi) * G + gj of D * G * G, where
gi, gj = floor(i * G / P), floor(j * G / P) for P x P parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..scratch import accumulator, carve, Piece, scratch_bytes
from .roi import regions, require_regions, rounded


def _check_sizes(a: Any, *names: str) -> None:
    for name in names:
        if getattr(a, name) < (name in ("output_dim", "pooled_size", "sample_per_part")):
            raise OpAttributeError(f"{name} must be above 0, got {getattr(a, name)}.")
    if not 0 <= a.spatial_scale <= 1:
        raise OpAttributeError(f"spatial_scale must be in [0, 1], got {a.spatial_scale}.")


def _require_channels(data: Shape, output_dim: int, groups: int) -> None:
    if data[1] < output_dim * groups * groups:
        raise ShapeError(
            f"data must have at least {output_dim} * {groups} * {groups} channels (output_dim * group_size * "
            f"group_size), got {data}."
        )


def _along(first: Any, last: Any, scale: float, dtype: DType, offset: float = 0.0) -> tuple[Any, Any]:
    """Beginnings and lengths of regions along an axis, in pixels; in `dtype`, as in MXNet."""
    t = accumulator(dtype).type
    begin, end = t(rounded(first)) * t(scale), t(rounded(last) + 1) * t(scale)
    begin, end = begin - t(offset), end - t(offset)
    return begin, np.maximum(end - begin, t(0.1))


def _groups(parts: int, groups: int, dtype: DType) -> Any:
    """The group (parts,) of each part along an axis."""
    t = accumulator(dtype).type
    indices = np.floor(np.arange(parts, dtype=t) * t(groups) / t(parts)).astype(np.int64)
    return np.clip(indices, 0, groups - 1)


class PSROIPooling(Op):
    """The mean of each part of each region, from its own channels, ``out[r, d, i, j] = mean of part (i,
    j) of region r in channel (d * G + gi) * G + gj``.

    data: (N, D * G * G, H, W);  rois: (R, 5), rows of image number n, x1, y1, x2, y2  ->  out: (R, D, P, P)
    with D = `output_dim`, P = `pooled_size`, G = `group_size`, by default P.

    Corners are rounded, x2 and y2 included, then multiplied by `spatial_scale`; parts are [floor(begin),
    ceil(end)) rows and columns inside the image. An empty part is 0, as is a region of image -1. `rois` have
    no gradient.
    """

    op_name = "_contrib_PSROIPooling"
    inputs = ("data", "rois")
    accepts = "float"
    flops_per_output = 4

    @record
    class Attrs:
        spatial_scale: float
        output_dim: int
        pooled_size: int
        group_size: int = 0

        def __post_init__(self) -> None:
            _check_sizes(self, "output_dim", "pooled_size", "group_size")

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data, rois = shapes
        require_regions(data, rois)
        _require_channels(data, a.output_dim, a.group_size or a.pooled_size)
        return shapes, ((rois[0], a.output_dim, a.pooled_size, a.pooled_size),)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes([_lines_piece(a, inputs[0], dtype)])

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes([_lines_piece(a, inputs[0], dtype), (inputs[0][1:], accumulator(dtype))])

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, rois: Any, *, out: Any, work: Any) -> None:
        if out is None:
            return
        out.fill(0)
        if not out.size:
            return
        (held,) = carve(work, [_lines_piece(a, data.shape, data.dtype)])
        for r, n, corners in regions(rois, len(data)):
            parts = _Parts(a, corners, data.shape, data.dtype)
            if not parts.area.any():
                continue
            channels, lines = parts.channels(data[n]), parts.lines(held)
            for i in range(a.pooled_size):
                rows = channels[:, parts.group[i], :, parts.rows(i), parts.across]
                xp.add.reduce(rows, axis=2, out=lines[i], dtype=lines.dtype)
            for j in range(a.pooled_size):
                total = lines[:, :, parts.group[j], parts.columns(j)].sum(axis=-1)
                out[r, :, :, j] = total.T / np.maximum(parts.area[:, j], 1)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, rois: Any, *, d_data: Any, work: Any) -> None:
        if d_data is None:
            return
        held, image = carve(
            work,
            [_lines_piece(a, d_data.shape, d_data.dtype), (d_data.shape[1:], accumulator(d_data.dtype))],
        )
        listed = list(regions(rois, len(d_data)))
        for n in range(len(d_data)):
            image.fill(0)
            for r, of, corners in listed:
                parts = _Parts(a, corners, d_data.shape, d_data.dtype) if of == n else None
                if parts is None or not parts.area.any():
                    continue
                channels, lines = parts.channels(image), parts.lines(held)
                lines.fill(0)
                for j in range(a.pooled_size):
                    head = d_out[r, :, :, j].astype(image.dtype).T / np.maximum(parts.area[:, j, None], 1)
                    line = lines[:, :, parts.group[j], parts.columns(j)]
                    xp.add(line, head[..., None], out=line)
                for i in range(a.pooled_size):
                    rows = channels[:, parts.group[i], :, parts.rows(i), parts.across]
                    xp.add(rows, lines[i][:, :, None], out=rows)
            xp.copyto(d_data[n], image, casting="unsafe")


def _lines_piece(a: Any, data: Shape, dtype: DType) -> Piece:
    """For each row of parts the sums of its rows, for each channel of that group, column by column."""
    groups = a.group_size or a.pooled_size
    return (a.pooled_size * a.output_dim * groups * data[3],), accumulator(dtype)


class _Parts:
    """The parts of a region. area: (P, P) pixels; group: (P,); across: the columns of them all."""

    def __init__(self, a: Any, corners: list[float], data: Shape, dtype: DType) -> None:
        self.a, self.groups = a, a.group_size or a.pooled_size
        bounds = part_bounds(a, np.asarray([corners]), data[2:], dtype)
        self._tops, self._bottoms, self._lefts, self._rights = bounds[0]
        self.area = (self._bottoms - self._tops)[:, None] * (self._rights - self._lefts)
        self.group = part_groups(a, dtype)
        self.across = slice(int(self._lefts.min()), int(self._rights.max()))

    def channels(self, image: Any) -> Any:
        """The channels (D, G, G, H, W) of an image."""
        d, g = self.a.output_dim, self.groups
        return image[: d * g * g].reshape(d, g, g, *image.shape[1:])

    def lines(self, held: Any) -> Any:
        """Scratch (P, D, G, columns)."""
        shape = self.a.pooled_size, self.a.output_dim, self.groups, self.across.stop - self.across.start
        return held[: prod(shape)].reshape(shape)

    def rows(self, i: int) -> slice:
        return slice(int(self._tops[i]), int(self._bottoms[i]))

    def columns(self, j: int) -> slice:
        """The columns of part j within `across`."""
        begin = self.across.start
        return slice(int(self._lefts[j]) - begin, int(self._rights[j]) - begin)


def part_bounds(a: Any, corners: Any, size: Shape, dtype: DType) -> Any:
    """(R, 4, P) whole numbers: rows [top, bottom) and columns [left, right) of parts, clipped to an image of
    `size`, as top, bottom, left, right. corners: (R, 4), x1, y1, x2, y2.
    """
    t, p = accumulator(dtype).type, a.pooled_size
    bounds = np.empty((len(corners), 4, p), np.int64)
    for axis, n in enumerate(size):
        begin, length = _along(corners[:, 1 - axis], corners[:, 3 - axis], a.spatial_scale, dtype)
        step, i = (length / t(p))[:, None], np.arange(p, dtype=t)
        starts, ends = np.floor(i * step + begin[:, None]), np.ceil((i + 1) * step + begin[:, None])
        low = np.clip(starts, 0, n)
        bounds[:, 2 * axis], bounds[:, 2 * axis + 1] = low, np.maximum(np.clip(ends, 0, n), low)
    return bounds


def part_groups(a: Any, dtype: DType) -> Any:
    """The group (P,) of each part along an axis, rising."""
    return _groups(a.pooled_size, a.group_size or a.pooled_size, dtype)


class DeformablePSROIPooling(Op):
    """Position-sensitive pooling whose parts are moved: the mean of samples, linear between pixels.

    data: (N, D * G * G, H, W);  rois: (R, 5), rows of image number n, x1, y1, x2, y2;  trans: (R, 2 * K, T,
    T)  ->  out: (R, D, P, P) with D = `output_dim`, G = `group_size`, P = `pooled_size`, T = `part_size`, by
    default P.

    Corners are rounded, x2 and y2 included, multiplied by `spatial_scale` and moved by half a pixel. Part
    (i, j) is sampled at `sample_per_part` positions a side, the first at its corner; samples more than half a
    pixel outside the image do not count. Channels d of class k = d // (D / K) are moved by trans[r, 2k] *
    `trans_std` times the region's width and by trans[r, 2k + 1] * `trans_std` times its height, at the index
    floor(i * T / P), floor(j * T / P). With `no_trans` there is no input `trans`. A region of image -1 is 0.
    `rois` have no gradient.
    """

    op_name = "_contrib_DeformablePSROIPooling"
    inputs = ("data", "rois", "trans")
    accepts = "float"
    optional = {"trans": "no_trans"}

    @record
    class Attrs:
        spatial_scale: float
        output_dim: int
        group_size: int
        pooled_size: int
        part_size: int = 0
        sample_per_part: int = 1
        trans_std: float = 0.0
        no_trans: bool = False

        def __post_init__(self) -> None:
            _check_sizes(self, "output_dim", "pooled_size", "part_size", "sample_per_part")
            if self.group_size < 1:
                raise OpAttributeError(f"group_size must be above 0, got {self.group_size}.")
            if not 0 <= self.trans_std <= 1:
                raise OpAttributeError(f"trans_std must be in [0, 1], got {self.trans_std}.")

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        return frozenset({"data", "trans"} if a.no_trans else ())

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data, rois = shapes[:2]
        require_regions(data, rois)
        _require_channels(data, a.output_dim, a.group_size)
        if not a.no_trans:
            trans, t = shapes[2], a.part_size or a.pooled_size
            fits = len(trans) == 4 and trans[0] == rois[0] and trans[2:] == (t, t)
            if not fits or trans[1] < 2 or trans[1] % 2 or a.output_dim % (trans[1] // 2):
                raise ShapeError(
                    f"trans must be ({rois[0]}, 2 * K, {t}, {t}) for a K that divides output_dim "
                    f"{a.output_dim}, got {trans}."
                )
        return shapes, ((rois[0], a.output_dim, a.pooled_size, a.pooled_size),)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 8 * prod(outputs[0]) * a.sample_per_part**2

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_sample_pieces(a, inputs[0], None if a.no_trans else inputs[2], dtype))

    backward_workspace = workspace

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, rois: Any, trans: Any = None, *, out: Any, work: Any) -> None:
        if out is None:
            return
        out.fill(0)
        if not out.size or not prod(data.shape[2:]):
            return
        image, *pieces = carve(work, _sample_pieces(a, data.shape, trans, data.dtype))
        held = -1
        for r, n, corners in regions(rois, len(data)):
            if held != n:
                xp.copyto(image, data[n])
                held = n
            for channels, samples in _samples(xp, a, data.shape[2:], corners, trans, r, pieces):
                samples.total.fill(0)
                for q in range(4):
                    xp.multiply(samples.take(image, q), samples.share[q][:, None], out=samples.value)
                    xp.add(samples.total, samples.value, out=samples.total)
                mean = samples.total.sum(axis=-1) / np.maximum(samples.count, 1)
                out[r, channels] = mean.reshape(-1, *out.shape[2:])

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, data: Any, rois: Any, trans: Any, *, d_data: Any, d_trans: Any, work: Any
    ) -> None:
        for x in (d_data, d_trans):
            if x is not None:
                x.fill(0)
        shape = next((x.shape for x in (data, d_data) if x is not None), None)
        if shape is None or not d_out.size or not prod(shape[2:]):
            return
        image, *pieces = carve(work, _sample_pieces(a, shape, trans, d_out.dtype))
        listed = list(regions(rois, shape[0]))
        for n in sorted({n for _, n, _ in listed}):
            own = [(r, corners) for r, of, corners in listed if of == n]
            if d_trans is not None:
                xp.copyto(image, data[n])
                for r, corners in own:
                    for channels, samples in _samples(xp, a, shape[2:], corners, trans, r, pieces):
                        d_trans[r, samples.moves] = samples.d_trans(image, d_out[r, channels])
            if d_data is not None:
                image.fill(0)
                for r, corners in own:
                    for channels, samples in _samples(xp, a, shape[2:], corners, trans, r, pieces):
                        samples.scatter(image, d_out[r, channels])
                xp.copyto(d_data[n], image, casting="unsafe")


_TOGETHER = 4096  # samples that are read together, over several classes


def _sample_pieces(a: Any, data: Shape, trans: Any, dtype: DType) -> list[Piece]:
    """An image; for some classes of a region positions and weights of samples, and for each of their channels
    positions, values and sums. trans: the array or its shape."""
    acc, number = accumulator(dtype), np.dtype("int64")
    classes = _classes(a, trans)
    few = (_block(a, classes), a.pooled_size, a.pooled_size, a.sample_per_part**2)
    many = (few[0], a.output_dim // classes, *few[1:])
    pieces: list[Piece] = [((4, *few), number), ((4, *few), acc), (many, number), (many, acc), (many, acc)]
    return [(data[1:], acc), *pieces]


def _classes(a: Any, trans: Any) -> int:
    return 1 if a.no_trans else getattr(trans, "shape", trans)[1] // 2


def _block(a: Any, classes: int) -> int:
    """Number of classes that are sampled together."""
    return min(classes, max(1, _TOGETHER // (a.pooled_size * a.sample_per_part) ** 2))


def _samples(
    xp: Any, a: Any, size: Shape, corners: list[float], trans: Any, r: int, pieces: Any
) -> Iterator[tuple[slice, _Samples]]:
    """The samples of region r, some classes at a time, each time with the channels of these classes."""
    classes = _classes(a, trans)
    each, block = a.output_dim // classes, _block(a, classes)
    for k in range(0, classes, block):
        some = slice(k, min(k + block, classes))
        channels = slice(each * some.start, each * some.stop)
        yield (
            channels,
            _Samples(xp, a, size, corners, None if a.no_trans else trans[r], some, channels, pieces),
        )


class _Samples:
    """The samples of one region for the classes `some`, in the scratch of `_sample_pieces`."""

    def __init__(
        self,
        xp: Any,
        a: Any,
        size: Shape,
        corners: list[float],
        trans: Any,
        some: slice,
        channels: slice,
        pieces: Any,
    ) -> None:
        k, p, s = some.stop - some.start, a.pooled_size, a.sample_per_part
        self.xp, self.a = xp, a
        self.corner, self.share = (x[:, :k] for x in pieces[:2])
        self.places, self.value, self.total = (x[:k] for x in pieces[2:])
        self.moves = slice(2 * some.start, 2 * some.stop)
        dtype = self.value.dtype
        t, parts = dtype.type, a.part_size or p
        i, sub = np.arange(p, dtype=t), np.arange(s, dtype=t)
        self.part = np.clip(np.floor(i / t(p) * t(parts)).astype(np.int64), 0, parts - 1)
        self.lengths, lines, valid = [], [], np.True_
        for axis in (0, 1):  # rows, columns
            begin, length = _along(corners[1 - axis], corners[3 - axis], a.spatial_scale, dtype, 0.5)
            step = t(length / t(p))
            start = i * step + begin
            start = np.broadcast_to(start[:, None] if axis == 0 else start, (k, p, p))
            if trans is not None:
                moves = trans[self.moves][1 - axis :: 2][:, self.part[:, None], self.part]
                start = start + moves.astype(dtype) * t(a.trans_std) * length
            spread = sub * t(step / t(s))
            place = start[..., None] + (np.repeat(spread, s) if axis == 0 else np.tile(spread, s))
            valid = valid & (place >= -0.5) & (place <= size[axis] - 0.5)
            lines.append(np.clip(np.where(place == place, place, 0), 0, size[axis] - 1))
            self.lengths.append(length)
        self.valid, self.count = valid, valid.sum(axis=-1)[:, None]
        low, high = [np.floor(x) for x in lines], [np.ceil(x) for x in lines]
        self.y, self.x = lines[0] - low[0], lines[1] - low[1]
        for q in range(4):
            y, x = (high if q >= 2 else low)[0], (high if q % 2 else low)[1]
            xp.copyto(self.corner[q], y.astype(np.int64) * size[1] + x.astype(np.int64))
            fy, fx = self.y if q >= 2 else 1 - self.y, self.x if q % 2 else 1 - self.x
            xp.copyto(self.share[q], fy * fx * valid)
        group = _groups(p, a.group_size, dtype)
        channel = np.arange(channels.start, channels.stop)[:, None, None] * a.group_size + group[:, None]
        self.channel = (channel * a.group_size + group).reshape(k, -1, p, p, 1) * prod(size)

    def _at(self, q: int) -> Any:
        """Flat index of corner q of each sample in an image; valid until the next call."""
        self.xp.add(self.channel, self.corner[q][:, None], out=self.places)
        return self.places

    def take(self, image: Any, q: int) -> Any:
        """The pixels at corner q."""
        self.xp.take(image.reshape(-1), self._at(q), out=self.value, mode="clip")
        return self.value

    def _heads(self, head: Any) -> Any:
        """The gradient of each sample's value, broadcast along the last axis."""
        heads = head.reshape(*self.places.shape[:-1]).astype(self.value.dtype)
        return (heads / np.maximum(self.count, 1))[..., None]

    def scatter(self, image: Any, head: Any) -> None:
        """Add the gradient of the pixels."""
        heads = self._heads(head)
        for q in range(4):
            self.xp.multiply(heads, self.share[q][:, None], out=self.value)
            self.xp.add.at(image.reshape(-1), self._at(q).reshape(-1), self.value.reshape(-1))

    def d_trans(self, image: Any, head: Any) -> Any:
        """The gradient (2 * K, T, T) of the displacements of these classes."""
        heads, parts = self._heads(head), self.a.part_size or self.a.pooled_size
        gradient = np.zeros((self.moves.stop - self.moves.start, parts, parts), self.value.dtype)
        by_y, by_x = np.zeros_like(self.y), np.zeros_like(self.x)
        for q in range(4):
            self.xp.multiply(self.take(image, q), heads, out=self.value)
            value = self.value.sum(axis=1) * self.valid
            by_y += value * (self.x if q % 2 else 1 - self.x) * (1 if q >= 2 else -1)
            by_x += value * (self.y if q >= 2 else 1 - self.y) * (1 if q % 2 else -1)
        for axis, slope in ((0, by_y), (1, by_x)):
            slope = slope.sum(axis=-1) * (self.a.trans_std * self.lengths[axis])
            for total, one in zip(gradient[1 - axis :: 2], slope):
                np.add.at(total, (self.part[:, None], self.part), one)
        return gradient
