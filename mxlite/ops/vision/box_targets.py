"""Boxes as offsets from anchors and back, and anchors matched with boxes: the targets of detectors.

R. Girshick, J. Donahue, T. Darrell, J. Malik, 2014, "Rich feature hierarchies for accurate object detection
and semantic segmentation", appendix C.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...core.dtype import as_dtype
from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..declared import Declared
from ..scratch import accumulator, carve, Piece, scratch_bytes
from .boxes import descending, Format, order_pieces

_ROWS = 512  # boxes at a time


class box_encode(Declared):
    """Boxes as offsets from their anchors, ``targets = ((ref - anchor) / size of anchor - means) / stds``.

    samples: (B, N), above 0.5 where an anchor has a box;  matches: (B, N), the number of that box, in [0,
    M);  anchors: (B, N, 4) and refs: (B, M, 4), corners x1, y1, x2, y2;  means, stds: (4,)  ->  targets:
    (B, N, 4), of the centres' x and y and of the logarithms of width and height;  masks: (B, N, 4), 1 where
    there is a target. Other anchors have zeros. No gradient.
    """

    op_name = "_contrib_box_encode"
    inputs = ("samples", "matches", "anchors", "refs", "means", "stds")
    outputs = ("targets", "masks")
    inferred = ("means", "stds")
    accepts = "float"

    @staticmethod
    def infer_shape(a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        samples, matches, anchors, refs = shapes[:4]
        if len(anchors) != 3 or anchors[2] != 4:
            raise ShapeError(f"anchors must be (B, N, 4), got {anchors}.")
        b, n, _ = anchors
        if len(refs) != 3 or (refs[0], refs[2]) != (b, 4) or (n and b and not refs[1]):
            raise ShapeError(f"refs must be ({b}, M, 4) with M at least 1, got {refs}.")
        for name, shape in (("samples", samples), ("matches", matches)):
            if tuple(shape) != (b, n):
                raise ShapeError(f"{name} must be ({b}, {n}) as anchors are {anchors}, got {shape}.")
        return (samples, matches, anchors, refs, (4,), (4,)), (anchors, anchors)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 8 * prod(outputs[0])

    @staticmethod
    def compute(
        t: Any, a: Any, samples: Any, matches: Any, anchors: Any, refs: Any, means: Any, stds: Any
    ) -> Any:
        b, n, _ = anchors.shape
        box, which, side = _numbers(t, n)
        of_box = [t.pick(t.view(x, (b, 1, n)), box, 2) for x in (samples, matches)]
        match = t("min", t("max", t.trunc(of_box[1]), 0.0), float(refs.shape[1] - 1))
        (low, high), (own_low, own_high) = (
            [t.pick(t.view(x, (b, 1, prod(x.shape[1:]))), at * 4.0 + (side + k), 2) for k in (0.0, 2.0)]
            for x, at in ((anchors, box), (refs, match))
        )
        size, own = high - low, own_high - own_low
        moved = (own_low + own / 2.0 - (low + size / 2.0)) / size
        mean, std = (t.pick(t.view(x, (1, 4)), which, 1) for x in (means, stds))
        offset = (t.where("lt", which, 2.0, moved, t.log(own / size)) - mean) / std
        has = t.one_where("gt", of_box[0], 0.5)
        return {"targets": t.where("gt", has, 0.5, offset, 0.0), "masks": has}


def _numbers(t: Any, count: int) -> tuple[Any, Any, Any]:
    """For each number of `count` boxes: that of its box; its own, from 0 to 3; and 0 for one along x, 1 for
    one along y. (4 * count, 1)
    """
    number = t.index(t.broadcast(0.0, (4 * count, 1)), 0)
    box = t.floor(number * 0.25)
    which = number - box * 4.0
    return box, which, which - t.where("lt", which, 2.0, 0.0, 2.0)


class box_decode(Declared):
    """Boxes from offsets and anchors: the inverse of `box_encode` with means of 0.

    data: (B, N, 4), offsets;  anchors: (1, N, 4)  ->  out: (B, N, 4), corners x1, y1, x2, y2.

    Offsets are multiplied by `std0` ... `std3` first; then those of width and height, which are logarithms,
    are cut to at most `clip`, if that is above 0. Anchors are x, y, width, height with `format` "center",
    corners with "corner". No gradient.
    """

    op_name = "_contrib_box_decode"
    inputs = ("data", "anchors")
    accepts = "float"
    flops_per_output = 6

    @record
    class Attrs:
        std0: float = 1.0
        std1: float = 1.0
        std2: float = 1.0
        std3: float = 1.0
        clip: float = -1.0
        format: Format = "center"

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data, anchors = shapes
        if len(data) != 3 or data[2] != 4:
            raise ShapeError(f"data must be (B, N, 4), got {data}.")
        if tuple(anchors) != (1, data[1], 4):
            raise ShapeError(f"anchors must be (1, {data[1]}, 4) as data is {data}, got {anchors}.")
        return shapes, (data,)

    @staticmethod
    def compute(t: Any, a: Any, data: Any, anchors: Any) -> Any:
        n = data.shape[1]
        box, which, side = _numbers(t, n)
        (at, size), (moved, stretch) = (
            [t.pick(t.view(x, (x.shape[0], 1, 4 * n)), box * 4.0 + (side + k), 2) for k in (0.0, 2.0)]
            for x in (anchors, data)
        )
        if a.format == "corner":
            at, size = at + (size - at) / 2.0, size - at
        moved = moved * t.where("eq", side, 0.0, t.constant(a.std0), t.constant(a.std1))
        stretch = stretch * t.where("eq", side, 0.0, t.constant(a.std2), t.constant(a.std3))
        if a.clip > 0:
            stretch = t("min", stretch, t.constant(a.clip))
        centre, half = moved * size + at, t.exp(stretch) * size / 2.0
        return {"out": t.where("lt", which, 2.0, centre - half, centre + half)}


class bipartite_matching(Op):
    """Pairs of rows and columns by their scores, the best first, each in one pair at most.

    data: (..., N, M), scores  ->  rows: (..., N), the column of each row;  columns: (..., M), the row of
    each column; -1 for unpaired ones.

    Scores at `threshold` or below pair nothing; with `is_ascend` small scores are the good ones, and those
    at the threshold or above pair nothing. Equal scores go by row and column. With `topk` above 0 it ends
    when there are more pairs than that, so after `topk` + 1 of them, as in MXNet. No gradient.
    """

    op_name = "_contrib_bipartite_matching"
    inputs = ("data",)
    outputs = ("rows", "columns")
    accepts = "float"
    flops_per_input = 4

    @record
    class Attrs:
        threshold: float
        is_ascend: bool = False
        topk: int = -1

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        (data,) = shapes
        if len(data) < 2:
            raise ShapeError(f"data must be (..., N, M), got {data}.")
        return shapes, (data[:-1], (*data[:-2], data[-1]))

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_matching_pieces(inputs[0], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, rows: Any, columns: Any, work: Any) -> None:
        n, m = data.shape[-2:]
        batch = prod(data.shape[:-2])
        scores, row_of, column_of, *keys = carve(work, _matching_pieces(data.shape, data.dtype))
        for b in range(batch):
            row_of.fill(-1)
            column_of.fill(-1)
            if n * m:
                xp.copyto(scores.reshape(n, m), data.reshape(batch, n, m)[b])
                xp.multiply(scores, -1 if a.is_ascend else 1, out=scores)
                order = descending(xp, scores, keys).view("int64")
                _pair(a, scores, order, row_of, column_of)
            for matches, out in ((column_of, rows), (row_of, columns)):
                if out is not None:
                    out.reshape(batch, len(matches))[b] = matches


def _matching_pieces(data: Shape, dtype: DType) -> list[Piece]:
    """Scores; the row of each column, the column of each row; keys to sort by."""
    n, m = data[-2:]
    acc, number = accumulator(dtype), as_dtype("int32")
    return [((n * m,), acc), ((m,), number), ((n,), number), *order_pieces(n * m, acc)]


def _pair(a: Any, scores: Any, order: Any, row_of: Any, column_of: Any) -> None:
    """Fill row_of (M,) and column_of (N,), -1 before, from scores (N * M,) in falling `order`."""
    m, pairs, at = len(row_of), 0, 0
    least = -a.threshold if a.is_ascend else a.threshold
    most = min(m, len(column_of), a.topk + 1 if a.topk > 0 else m)
    while at < len(order) and pairs < most:
        some = order[at : at + _ROWS]
        free = (column_of[some // m] < 0) & (row_of[some % m] < 0)
        first = int(free.argmax())
        if not free[first]:
            at += len(some)
            continue
        if not scores[some[first]] > least:
            return
        row, column = divmod(int(some[first]), m)
        column_of[row], row_of[column] = column, row
        at, pairs = at + first + 1, pairs + 1
