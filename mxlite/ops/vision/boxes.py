"""Boxes: overlaps, sorting by score, suppression of near duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal

import numpy as np

from ...core.dtype import as_dtype
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes, Types
from ..declared import Declared
from ..scratch import accumulator, carve, Piece, scratch_bytes

_HALF = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)

Format = Literal["corner", "center"]


def order_pieces(n: int, dtype: DType) -> list[Piece]:
    """Scratch of `descending`."""
    return [((n,), np.dtype("uint64"))] * (1 if dtype.itemsize == 4 else 3)


def descending(xp: Any, scores: Any, keys: Sequence[Any]) -> Any:
    """Positions of float32 or float64 `scores`, the largest first and equal ones in their order.

    keys: the arrays of `order_pieces`; the first one holds the result. Sorting happens inside them: in the
    upper half of each key is a score, as a whole number that falls as the score rises, in the lower half
    its position, so no two keys are equal. Eight-byte scores take two rounds, the lower halves first.
    """
    key = keys[0][: len(scores)]
    if scores.dtype.itemsize == 4:
        _falling(xp, scores.view("uint32"), key, 32)
        _number(xp, key)
        key.sort()
        xp.bitwise_and(key, _HALF, out=key)
        return key
    whole, second = keys[1][: len(scores)], keys[2][: len(scores)]
    _falling(xp, scores.view("uint64"), whole, 64)
    xp.left_shift(whole, _SHIFT, out=key)
    _number(xp, key)
    key.sort()
    xp.bitwise_and(key, _HALF, out=key)
    xp.take(whole, key.view("int64"), out=second, mode="clip")
    xp.right_shift(second, _SHIFT, out=second)
    xp.left_shift(second, _SHIFT, out=second)
    _number(xp, second)
    second.sort()
    xp.bitwise_and(second, _HALF, out=second)
    xp.take(key, second.view("int64"), out=whole, mode="clip")
    xp.copyto(key, whole)
    return key


def _falling(xp: Any, bits: Any, out: Any, width: int) -> None:
    """Floats' bits as whole numbers that fall as the floats rise; of 32 bits, in the upper half of `out`."""
    # Positive floats rise with their bits, negative ones fall: flip all bits of the former but the sign.
    xp.copyto(out, bits)
    if width == 32:
        xp.left_shift(out, _SHIFT, out=out)
    mask = np.uint64(0x7FFFFFFFFFFFFFFF if width == 64 else 0x7FFFFFFF00000000)
    top = np.uint64(63)
    for begin in range(0, len(out), _PART):
        part = out[begin : begin + _PART]
        xp.bitwise_xor(part, xp.where(part >> top == 0, mask, np.uint64(0)), out=part)


_PART = 2048


def _number(xp: Any, key: Any) -> None:
    """Put its position into the lower half of each key."""
    for begin in range(0, len(key), _PART):
        part = key[begin : begin + _PART]
        xp.bitwise_or(part, np.arange(begin, begin + len(part), dtype="uint64"), out=part)


def overlaps(xp: Any, box: Any, boxes: Any, out: Any, spare: Any, extra: float = 0.0) -> None:
    """out[i] = intersection over union of `box` (4,) and boxes[:, i]: x1, y1, x2, y2. spare: (2, n).

    extra: 1 if a corner is a pixel that belongs to the box. Boxes without area do not overlap.
    """
    width, height = spare
    _side(xp, box[0], box[2], boxes[0], boxes[2], width, height, extra)
    xp.copyto(out, width)
    _side(xp, box[1], box[3], boxes[1], boxes[3], width, height, extra)
    xp.multiply(out, width, out=out)  # intersection
    xp.subtract(boxes[2], boxes[0], out=width)
    xp.subtract(boxes[3], boxes[1], out=height)
    if extra:
        xp.add(width, extra, out=width)
        xp.add(height, extra, out=height)
    xp.multiply(width, height, out=width)
    area = (box[2] - box[0] + extra) * (box[3] - box[1] + extra)
    xp.add(width, area, out=width)
    xp.subtract(width, out, out=width)  # union
    for begin in range(0, len(out), _PART):
        part, union = out[begin : begin + _PART], width[begin : begin + _PART]
        empty = union <= 0
        xp.copyto(union, 1, where=empty)
        xp.divide(part, union, out=part)
        xp.copyto(part, 0, where=empty)


def _side(xp: Any, a1: Any, a2: Any, b1: Any, b2: Any, out: Any, spare: Any, extra: float) -> None:
    """out = length of the intersection of [a1, a2] and [b1, b2]; at least 0."""
    xp.minimum(b2, a2, out=out)
    xp.maximum(b1, a1, out=spare)
    xp.subtract(out, spare, out=out)
    if extra:
        xp.add(out, extra, out=out)
    xp.maximum(out, 0, out=out)


def suppress(
    xp: Any,
    boxes: Any,
    kinds: Any,
    alive: Any,
    threshold: float,
    spare: Any,
    flags: Any,
    *,
    including: bool = False,
    extra: float = 0.0,
    most: int | None = None,
) -> None:
    """Greedy non-maximum suppression of boxes (4, n), best first: those that overlap a kept one are dropped.

    kinds: (n,), only boxes of one kind suppress each other; None: all do. alive: (n,) bool, read and
    written. spare: (3, n), flags: (n,) bool: scratch. including: an overlap of just `threshold` suppresses
    too. most: stop when so many stay. One pass over the rest for each box that stays.
    """
    compare = xp.greater_equal if including else xp.greater
    kept = 0
    for i in range(len(alive)):
        if not alive[i]:
            continue
        kept += 1
        if most is not None and kept >= most:
            alive[i + 1 :] = False
            return
        rest = slice(i + 1, None)
        if i + 1 == len(alive):
            return
        over = spare[0, rest]
        overlaps(xp, boxes[:, i].copy(), boxes[:, rest], over, spare[1:, rest], extra)
        gone = flags[rest]
        compare(over, threshold, out=gone)
        if kinds is not None:
            # The comparison of kinds overwrites an overlap that is not read any more.
            xp.equal(kinds[rest], kinds[i], out=over, casting="unsafe")
            xp.logical_and(gone, over, out=gone)
        xp.logical_not(gone, out=gone)
        xp.logical_and(alive[rest], gone, out=alive[rest])


def to_corners(xp: Any, boxes: Any) -> None:
    """Boxes (4, n) of centre, width, height as corners, in place."""
    for low, high in ((0, 2), (1, 3)):
        xp.multiply(boxes[high], 0.5, out=boxes[high])
        xp.subtract(boxes[low], boxes[high], out=boxes[low])
        xp.multiply(boxes[high], 2, out=boxes[high])
        xp.add(boxes[low], boxes[high], out=boxes[high])


class box_iou(Declared):
    """Intersection over union of every box of one array with every box of another.

    lhs: (A..., 4);  rhs: (B..., 4)  ->  out: (A..., B...). format: "corner" x1, y1, x2, y2, or "center" x,
    y, width, height. Two boxes without area overlap 0. No gradient.
    """

    op_name = "_contrib_box_iou"
    inputs = ("lhs", "rhs")
    accepts = "float"
    flops_per_output = 12

    @record
    class Attrs:
        format: Format = "corner"

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        for name, s in zip(("lhs", "rhs"), shapes):
            if not s or s[-1] != 4:
                raise ShapeError(f"{name} must be (..., 4), got {s}.")
        return shapes, ((*shapes[0][:-1], *shapes[1][:-1]),)

    @staticmethod
    def compute(t: Any, a: Any, lhs: Any, rhs: Any) -> Any:
        few, many = prod(lhs.shape[:-1]), prod(rhs.shape[:-1])
        (x1, y1, x2, y2), (u1, v1, u2, v2) = (
            corners(t, t.view(x, shape), a.format)
            for x, shape in ((lhs, (few, 1, 4, 1)), (rhs, (1, many, 1, 4)))
        )

        def length(low: Any, high: Any) -> Any:
            return t("max", high - low, 0.0)

        both = length(t("max", x1, u1), t("min", x2, u2)) * length(t("max", y1, v1), t("min", y2, v2))
        either = (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - both
        return {"out": t.where("gt", either, 0.0, both / t.where("gt", either, 0.0, either, 1.0), 0.0)}


def corners(t: Any, boxes: Any, kind: Format) -> list[Any]:
    """x1, y1, x2, y2 of boxes along the only axis of length 4."""
    axis = boxes.shape.index(4, 2)
    x, y, z, w = (t.pick(boxes, t.number(float(k)), axis) for k in range(4))
    return [x, y, z, w] if kind == "corner" else [x - z * 0.5, y - w * 0.5, x + z * 0.5, y + w * 0.5]


class box_nms(Op):
    """Non-maximum suppression: boxes by falling score, without those that overlap a better one.

    data: (..., n, k), rows of a score, four coordinates and perhaps a class  ->  out: (..., n, k); the rows
    that stay come first, the rest is -1.

    A box with a score of `valid_thresh` or less, or of class `background_id`, is dropped at once, as are all
    after the best `topk`. Boxes suppress each other above an overlap of `overlap_thresh`; with `id_index`
    only those of one class, unless `force_suppress`. Coordinates start at `coord_start`; "corner" is x1,
    y1, x2, y2, "center" x, y, width, height. The gradient of a row of `out` goes to the row it came from; a
    hidden output stores which.
    """

    op_name = "_contrib_box_nms"
    aliases = ("_contrib_box_non_maximum_suppression",)
    inputs = ("data",)
    outputs = ("out", "index")
    hidden = 1
    accepts = "float"

    @record
    class Attrs:
        overlap_thresh: float = 0.5
        valid_thresh: float = 0.0
        topk: int = -1
        coord_start: int = 2
        score_index: int = 1
        id_index: int = -1
        background_id: int = -1
        force_suppress: bool = False
        in_format: Format = "corner"
        out_format: Format = "corner"

        def __post_init__(self) -> None:
            if self.coord_start < 0 or self.score_index < 0:
                raise OpAttributeError(
                    f"coord_start and score_index must be at least 0, got {self.coord_start} and "
                    f"{self.score_index}."
                )

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        ins, _ = super().infer_type(a, *dtypes)
        return ins, (ins[0], as_dtype("int32"))

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        needed = max(a.coord_start + 4, a.score_index + 1, a.id_index + 1)
        if len(data) < 2 or data[-1] < needed:
            raise ShapeError(f"data must be (..., n, k) with k at least {needed}, got {data}.")
        return shapes, (data, data[:-1])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_nms_pieces(inputs[0][-2], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, index: Any, work: Any) -> None:
        n, k = data.shape[-2:]
        scores, kinds, boxes, spare, alive, flags, *keys = carve(work, _nms_pieces(n, data.dtype))
        for x, value in ((out, -1), (index, -1)):
            if x is not None:
                x.fill(value)
        if not data.size:
            return
        by_class = a.id_index >= 0
        for b, rows in enumerate(data.reshape(-1, n, k)):
            xp.copyto(scores, rows[:, a.score_index])
            xp.greater(scores, a.valid_thresh, out=alive)
            if by_class:
                xp.not_equal(rows[:, a.id_index], a.background_id, out=flags)
                xp.logical_and(alive, flags, out=alive)
            xp.logical_not(alive, out=flags)
            xp.copyto(scores, -xp.inf, where=flags)
            valid = int(xp.count_nonzero(alive))
            m = min(valid, a.topk) if a.topk > 0 else valid
            if not m:
                continue
            order = descending(xp, scores, keys)[:m].view("int64")
            for i in range(4):
                xp.copyto(scores, rows[:, a.coord_start + i])
                xp.take(scores, order, out=boxes[i, :m], mode="clip")
            if a.in_format == "center":
                to_corners(xp, boxes[:, :m])
            if by_class:
                xp.copyto(scores, rows[:, a.id_index])
                xp.take(scores, order, out=kinds[:m], mode="clip")
            stays = alive[:m]
            stays.fill(True)
            some = kinds[:m] if by_class and not a.force_suppress else None
            suppress(xp, boxes[:, :m], some, stays, a.overlap_thresh, spare[:, :m], flags[:m])
            _write_kept(xp, a, rows, order, stays, b, out, index)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, index: Any, *, d_data: Any) -> None:
        if d_data is None:
            return
        d_data.fill(0)
        if not d_data.size:
            return
        n, k = d_data.shape[-2:]
        rows = zip(d_out.reshape(-1, n, k), index.reshape(-1, n), d_data.reshape(-1, n, k))
        for d, at, target in rows:
            for begin in range(0, n, _PART):
                places = at[begin : begin + _PART]
                stays = np.flatnonzero(places >= 0)
                for j in range(k):
                    target[places[stays], j] = d[begin + stays, j]


def _write_kept(xp: Any, a: Any, rows: Any, order: Any, stays: Any, b: int, out: Any, index: Any) -> None:
    """Write the rows that stay, in order, a part at a time."""
    n, k = rows.shape
    done = 0
    for begin in range(0, len(order), _PART):
        places = order[begin : begin + _PART][stays[begin : begin + _PART]]
        stop = done + len(places)
        if index is not None:
            xp.copyto(index.reshape(-1, n)[b, done:stop], places, casting="unsafe")
        if out is not None:
            target = out.reshape(-1, n, k)[b, done:stop]
            for j in range(k):
                target[:, j] = rows[places, j]
            if a.in_format != a.out_format:
                c = slice(a.coord_start, a.coord_start + 4)
                held = target[:, c].T.astype(accumulator(rows.dtype))
                (to_corners if a.out_format == "corner" else _to_centers)(xp, held)
                target[:, c] = held.T
        done = stop


def _to_centers(xp: Any, boxes: Any) -> None:
    """Boxes (4, n) of corners as centre, width, height, in place."""
    for low, high in ((0, 2), (1, 3)):
        xp.subtract(boxes[high], boxes[low], out=boxes[high])
        xp.add(boxes[low], boxes[high] / 2, out=boxes[low])


def _nms_pieces(n: int, dtype: DType) -> list[Piece]:
    """Scores, classes, boxes, overlaps, flags of kept boxes, other flags; keys to sort by."""
    acc = accumulator(dtype)
    flag = as_dtype("bool")
    row: Piece = ((n,), acc)
    return [row, row, ((4, n), acc), ((3, n), acc), ((n,), flag), ((n,), flag), *order_pieces(n, acc)]
