"""Region proposals.

S. Ren, K. He, R. Girshick, J. Sun, 2015, "Faster R-CNN: towards real-time object detection with region
proposal networks". A box x1, y1, x2, y2 is in pixels and contains its corners.
"""

from __future__ import annotations

from math import floor, prod, sqrt
from typing import Any

import numpy as np

from ...core.dtype import as_dtype
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..scratch import accumulator, carve, Piece, scratch_bytes
from .boxes import descending, order_pieces, suppress


@record
class ProposalAttrs:
    """Parameters of a region proposal operator."""

    rpn_pre_nms_top_n: int = 6000
    rpn_post_nms_top_n: int = 300
    threshold: float = 0.7
    rpn_min_size: int = 16
    scales: tuple[float, ...] = (4.0, 8.0, 16.0, 32.0)
    ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    feature_stride: int = 16
    output_score: bool = False
    iou_loss: bool = False

    def __post_init__(self) -> None:
        if self.rpn_post_nms_top_n < 1:
            raise OpAttributeError(f"rpn_post_nms_top_n must be at least 1, got {self.rpn_post_nms_top_n}.")
        if not self.scales or not self.ratios or min(self.ratios) <= 0:
            raise OpAttributeError(f"scales and ratios must be above 0, got {self.scales} and {self.ratios}.")
        if self.feature_stride < 1:
            raise OpAttributeError(f"feature_stride must be at least 1, got {self.feature_stride}.")


class _Proposals(Op):
    """Base: proposals for each image of a batch."""

    abstract = True
    inputs = ("cls_prob", "bbox_pred", "im_info")
    outputs = ("out", "score")
    accepts = "float"
    Attrs = ProposalAttrs
    flops_per_input = 30

    @classmethod
    def num_visible_outputs(cls, a: Any) -> int:
        return 1 + a.output_score

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        cls_prob, bbox_pred, im_info = shapes
        count = len(a.scales) * len(a.ratios)
        if len(cls_prob) != 4 or cls_prob[1] != 2 * count:
            raise ShapeError(f"cls_prob must be (N, {2 * count}, H, W), got {cls_prob}.")
        n, _, h, w = cls_prob
        if tuple(bbox_pred) != (n, 4 * count, h, w):
            raise ShapeError(f"bbox_pred must be ({n}, {4 * count}, {h}, {w}), got {bbox_pred}.")
        if tuple(im_info) != (n, 3):
            raise ShapeError(f"im_info must be ({n}, 3), got {im_info}.")
        rows = n * a.rpn_post_nms_top_n
        return shapes, ((rows, 5), (rows, 1))

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(inputs[0], dtype))

    @staticmethod
    def forward(
        xp: Any, a: Any, cls_prob: Any, bbox_pred: Any, im_info: Any, *, out: Any, score: Any, work: Any
    ) -> None:
        _propose(xp, a, cls_prob, bbox_pred, im_info, out, score, work)


class Proposal(_Proposals):
    """The best boxes of a region proposal network in an image.

    cls_prob: (1, 2 * K, H, W), background scores, then those of objects;  bbox_pred: (1, 4 * K, H, W);
    im_info: (1, 3), height, width and scale of the image  ->  out: (P, 5), rows of 0, x1, y1, x2, y2;
    score: (P, 1) with `output_score`.

    K = number of `ratios` * `scales` anchors stand at every position, `feature_stride` pixels apart. They
    are moved as predicted (`iou_loss`: corners are), clipped to the image, and sorted after all others if
    smaller than `rpn_min_size` * scale. The best `rpn_pre_nms_top_n` suppress each other above an overlap
    of `threshold`; the first P = `rpn_post_nms_top_n` of those that stay are the output, repeated if they are
    fewer. No gradient.
    """

    op_name = "_contrib_Proposal"

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        if len(shapes[0]) and shapes[0][0] != 1:
            raise ShapeError(f"cls_prob must be of one image, got {shapes[0]}; MultiProposal takes several.")
        return _Proposals.infer_shape(a, *shapes)


class MultiProposal(_Proposals):
    """`Proposal` for several images.

    cls_prob: (N, 2 * K, H, W);  bbox_pred: (N, 4 * K, H, W);  im_info: (N, 3)  ->  out: (N * P, 5), rows of
    the image's number, x1, y1, x2, y2;  score: (N * P, 1) with `output_score`. No gradient.
    """

    op_name = "_contrib_MultiProposal"


def _anchors(a: Any) -> list[tuple[float, float, float, float]]:
    """The anchors of the first position."""
    side = a.feature_stride
    centre = 0.5 * (side - 1)
    anchors = []
    for ratio in a.ratios:
        area = floor(side * side / ratio)
        width = floor(sqrt(area) + 0.5)
        height = floor(width * ratio + 0.5)
        for scale in a.scales:
            w, h = 0.5 * (width * scale - 1), 0.5 * (height * scale - 1)
            anchors.append((centre - w, centre - h, centre + w, centre + h))
    return anchors


def _pieces(cls_prob: Shape, dtype: DType) -> list[Piece]:
    """Scores, boxes, a temporary triple, boxes in order, flags twice; keys to sort by."""
    acc, flag = accumulator(dtype), as_dtype("bool")
    n = prod(cls_prob[1:]) // 2
    pieces: list[Piece] = [
        ((n,), acc),
        ((4, n), acc),
        ((3, n), acc),
        ((4, n), acc),
        ((n,), flag),
        ((n,), flag),
    ]
    return [*pieces, *order_pieces(n, acc)]


def _cells(length: float, most: int) -> int:
    """`length` cut to a whole number in [0, most]; 0 for nan."""
    return int(min(max(0.0, length), most))


def _propose(
    xp: Any, a: Any, cls_prob: Any, bbox_pred: Any, im_info: Any, out: Any, score: Any, work: Any
) -> None:
    scores, boxes, spare, best, alive, flags, *keys = carve(work, _pieces(cls_prob.shape, cls_prob.dtype))
    total, post = len(scores), a.rpn_post_nms_top_n
    k = len(a.scales) * len(a.ratios)
    h, w = cls_prob.shape[2:]
    if not total:
        for x in (out, score):
            if x is not None:
                x.fill(0)
        return
    for n in range(len(cls_prob)):
        height, width, scale = (float(v) for v in im_info[n])
        # In order of row, column, anchor.
        xp.copyto(scores.reshape(h, w, k), cls_prob[n, k:].transpose(1, 2, 0))
        _predict(xp, a, bbox_pred[n].reshape(k, 4, h, w), (height, width), boxes, spare)
        by_place = scores.reshape(h, w, k)
        by_place[_cells(height / a.feature_stride, h) :] = -1
        by_place[:, _cells(width / a.feature_stride, w) :] = -1
        _drop_small(xp, boxes, a.rpn_min_size * scale, scores, spare, flags)
        pre = min(a.rpn_pre_nms_top_n, total) if a.rpn_pre_nms_top_n > 0 else total
        order = descending(xp, scores, keys)[:pre].view("int64")
        for i in range(4):
            xp.take(boxes[i], order, out=best[i, :pre], mode="clip")
        stays = alive[:pre]
        stays.fill(True)
        suppress(
            xp, best[:, :pre], None, stays, a.threshold, spare[:, :pre], flags[:pre], extra=1.0,
            most=min(post, pre)
        )  # fmt: skip
        kept = np.flatnonzero(stays)
        for begin in range(0, post, 2048):
            rows = slice(n * post + begin, n * post + min(begin + 2048, post))
            which = kept[np.arange(begin, min(begin + 2048, post)) % len(kept)]
            if out is not None:
                out[rows, 0] = n
                for i in range(4):
                    out[rows, 1 + i] = best[i, which]
            if score is not None:
                score[rows, 0] = scores[order[which]]


def _predict(xp: Any, a: Any, pred: Any, size: tuple[float, float], boxes: Any, spare: Any) -> None:
    """boxes (4, H * W * K): the anchors, moved as predicted and clipped to the image."""
    _, _, h, w = pred.shape
    dtype = boxes.dtype
    places = boxes.reshape(4, h, w, -1)
    shape = places.shape[1:]
    anchors = np.array(_anchors(a), dtype)
    x = np.arange(w, dtype=dtype)[:, None] * a.feature_stride
    y = np.arange(h, dtype=dtype)[:, None, None] * a.feature_stride
    for axis, (start, limit) in enumerate(((x, size[1]), (y, size[0]))):
        low, high = places[axis], places[axis + 2]
        move, stretch = (pred[:, i].transpose(1, 2, 0) for i in (axis, axis + 2))
        first, last = anchors[:, axis], anchors[:, axis + 2]
        if a.iou_loss:
            xp.add(start, first, out=low)
            xp.add(low, move, out=low)
            xp.add(start, last, out=high)
            xp.add(high, stretch, out=high)
        else:
            centre, half = spare[0].reshape(shape), spare[1].reshape(shape)
            length = last - first + 1
            xp.multiply(move, length, out=centre, dtype=dtype)
            xp.add(centre, start, out=centre)
            xp.add(centre, first + (length - 1) / 2, out=centre)
            xp.exp(stretch, out=half, dtype=dtype)
            xp.multiply(half, length, out=half)
            xp.subtract(half, 1, out=half)
            xp.multiply(half, 0.5, out=half)
            xp.subtract(centre, half, out=low)
            xp.add(centre, half, out=high)
        for x_ in (low, high):
            xp.clip(x_, 0, limit - 1, out=x_)


def _drop_small(xp: Any, boxes: Any, least: float, scores: Any, spare: Any, flags: Any) -> None:
    """Enlarge boxes with a side below `least` by that, and set their score to -1."""
    side, other = spare[0], spare[1]
    for i, held in ((0, side), (1, other)):
        xp.subtract(boxes[i + 2], boxes[i], out=held)
        xp.add(held, 1, out=held)
    xp.minimum(side, other, out=side)
    xp.less(side, least, out=flags)
    for i, sign in enumerate((-0.5, -0.5, 0.5, 0.5)):
        xp.add(boxes[i], sign * least, out=boxes[i], where=flags)
    xp.copyto(scores, -1, where=flags)
