"""Single-shot detection: prior boxes, their targets, and detections from predictions.

W. Liu et al., 2016, "SSD: single shot multibox detector". Boxes are x1, y1, x2, y2 as parts of the image's
width and height.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np

from ...core.dtype import as_dtype
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..scratch import accumulator, carve, Piece, scratch_bytes
from .boxes import descending, order_pieces, overlaps, suppress

_VARIANCES = (0.1, 0.1, 0.2, 0.2)


class MultiBoxPrior(Op):
    """Boxes of several sizes and shapes around every position of a feature map.

    data: (N, C, H, W), whose shape counts  ->  out: (1, H * W * K, 4), K = number of `sizes` + number of
    `ratios` - 1.

    At each position first one box of every size with the first ratio, then one of the first size with each
    further ratio: width size * sqrt(ratio) * H / W, height size / sqrt(ratio). Centres are ((column +
    offsets[1]) * steps[1], (row + offsets[0]) * steps[0]); a step of -1 is 1 / W, 1 / H. `clip` cuts to [0,
    1]. No gradient.
    """

    op_name = "_contrib_MultiBoxPrior"
    inputs = ("data",)
    accepts = "float"

    @record
    class Attrs:
        sizes: tuple[float, ...] = (1.0,)
        ratios: tuple[float, ...] = (1.0,)
        clip: bool = False
        steps: tuple[float, ...] = (-1.0, -1.0)
        offsets: tuple[float, ...] = (0.5, 0.5)

        def __post_init__(self) -> None:
            if not self.sizes or not self.ratios or min(self.ratios) <= 0 or min(self.sizes) <= 0:
                raise OpAttributeError(
                    f"sizes and ratios must be above 0, got {self.sizes} and {self.ratios}."
                )
            if len(self.steps) != 2 or len(self.offsets) != 2:
                raise OpAttributeError(
                    f"steps and offsets must be two numbers (y, x), got {self.steps} and {self.offsets}."
                )

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        if len(data) != 4:
            raise ShapeError(f"data must be (N, C, H, W), got {data}.")
        return shapes, ((1, data[2] * data[3] * (len(a.sizes) + len(a.ratios) - 1), 4),)

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any) -> None:
        if out is None or not out.size:
            return
        h, w = data.shape[2:]
        kinds = [(s, a.ratios[0]) for s in a.sizes] + [(a.sizes[0], r) for r in a.ratios[1:]]
        steps = [step if step > 0 else 1 / n for step, n in zip(a.steps, (h, w))]
        y = ((np.arange(h) + a.offsets[0]) * steps[0])[:, None]
        x = (np.arange(w) + a.offsets[1]) * steps[1]
        boxes = out.reshape(h, w, len(kinds), 4)
        for k, (size, ratio) in enumerate(kinds):
            half = size * h / w * sqrt(ratio) / 2, size / sqrt(ratio) / 2
            for i, (centre, part) in enumerate(zip((x, y, x, y), (-half[0], -half[1], *half))):
                edge = centre + part
                boxes[:, :, k, i] = np.clip(edge, 0, 1) if a.clip else edge


class MultiBoxTarget(Op):
    """Targets of the predictions for prior boxes, from labelled boxes.

    anchor: (1, A, 4);  label: (N, L, 5 or more), rows of class, x1, y1, x2, y2, from the first class -1 on
    unused; cls_pred: (N, K, A)  ->  loc_target: (N, 4 * A);  loc_mask: (N, 4 * A), 1 where there is a target;
    cls_target: (N, A), class + 1, 0 for background, `ignore_label` for boxes that do not count.

    Each labelled box takes the prior box that it overlaps most, the largest overlap first; then each prior
    box takes the labelled one that it overlaps most, above `overlap_threshold`. The others are all
    background, or with `negative_mining_ratio` r only r times as many as there are matches, at least
    `minimum_negative_samples`: those with the least predicted probability of background, among those
    of overlaps below `negative_mining_thresh`. Targets are offsets of centres and logarithms of sizes,
    relative to the prior box and divided by `variances`. No gradient.
    """

    op_name = "_contrib_MultiBoxTarget"
    inputs = ("anchor", "label", "cls_pred")
    outputs = ("loc_target", "loc_mask", "cls_target")
    accepts = "float"

    @record
    class Attrs:
        overlap_threshold: float = 0.5
        ignore_label: float = -1.0
        negative_mining_ratio: float = -1.0
        negative_mining_thresh: float = 0.5
        minimum_negative_samples: int = 0
        variances: tuple[float, ...] = _VARIANCES

        def __post_init__(self) -> None:
            _check_variances(self)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        anchor, label, cls_pred = shapes
        if len(anchor) != 3 or anchor[0] != 1 or anchor[2] != 4:
            raise ShapeError(f"anchor must be (1, A, 4), got {anchor}.")
        if len(label) != 3 or label[2] < 5:
            raise ShapeError(f"label must be (N, L, 5), got {label}.")
        if len(cls_pred) != 3 or (cls_pred[0], cls_pred[2]) != (label[0], anchor[1]):
            raise ShapeError(f"cls_pred must be ({label[0]}, K, {anchor[1]}), got {cls_pred}.")
        n, count = label[0], anchor[1]
        return shapes, ((n, 4 * count), (n, 4 * count), (n, count))

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 12 * prod(outputs[2]) * inputs[1][1]

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_target_pieces(inputs, dtype))

    @staticmethod
    def forward(
        xp: Any,
        a: Any,
        anchor: Any,
        label: Any,
        cls_pred: Any,
        *,
        loc_target: Any,
        loc_mask: Any,
        cls_target: Any,
        work: Any,
    ) -> None:
        pieces = _target_pieces((anchor.shape, label.shape), anchor.dtype)
        boxes, iou, spare, best, which, flag, *keys = carve(work, pieces)
        xp.copyto(boxes, anchor[0].T)
        for x, value in ((loc_target, 0), (loc_mask, 0), (cls_target, a.ignore_label)):
            if x is not None:
                x.fill(value)
        for n in range(len(label)):
            truth = label[n].astype(boxes.dtype)
            unused = np.flatnonzero(truth[:, 0] == -1)
            truth = truth[: unused[0]] if len(unused) else truth
            if not len(truth) or not boxes.size:
                continue
            for k, row in enumerate(truth):
                overlaps(xp, row[1:5], boxes, iou[k], spare)
            valid = iou[: len(truth)]
            flag.fill(-1)
            _match(xp, a, valid, flag, best, which)
            _mine(xp, a, cls_pred[n], flag, best, spare, keys)
            _write_targets(xp, a, boxes, truth, flag, which, *(None if x is None else x[n] for x in (
                loc_target, loc_mask, cls_target
            )))  # fmt: skip


def _check_variances(a: Any) -> None:
    if len(a.variances) != 4 or min(a.variances) <= 0:
        raise OpAttributeError(f"variances must be four numbers above 0, got {a.variances}.")


def _target_pieces(inputs: Shapes, dtype: DType) -> list[Piece]:
    """Prior boxes, overlaps, a temporary pair, best overlap and its label, flags; keys to sort by."""
    acc, n, labels = accumulator(dtype), inputs[0][1], inputs[1][1]
    pieces: list[Piece] = [((4, n), acc), ((labels, n), acc), ((2, n), acc), ((n,), acc)]
    return [*pieces, ((n,), as_dtype("int64")), ((n,), as_dtype("int8")), *order_pieces(n, acc)]


def _match(xp: Any, a: Any, iou: Any, flag: Any, best: Any, which: Any) -> None:
    """flag: 1 if a prior box has a labelled one; which: the number of that; best: the largest overlap of
    the others.

    Overlaps (L, A) of prior boxes that a labelled one took are overwritten.
    """
    taken: dict[int, int] = {}
    tops = [(float(row.max()), int(row.argmax())) for row in iou]
    open_labels = set(range(len(iou)))
    while open_labels:
        k = min(open_labels, key=lambda k: (-tops[k][0], tops[k][1], k))
        top, j = tops[k]
        if not top > 1e-6:
            break
        taken[j] = k
        open_labels.remove(k)
        iou[:, j] = -1
        for other in open_labels:
            if tops[other][1] == j:
                tops[other] = float(iou[other].max()), int(iou[other].argmax())
    xp.argmax(iou, axis=0, out=which)
    xp.maximum.reduce(iou, axis=0, out=best)
    if a.overlap_threshold > 0:
        for begin in range(0, len(flag), 4096):
            part = slice(begin, begin + 4096)
            xp.copyto(flag[part], 1, where=best[part] > a.overlap_threshold)
    for j, k in taken.items():
        flag[j], which[j] = 1, k


def _mine(xp: Any, a: Any, cls_pred: Any, flag: Any, best: Any, spare: Any, keys: Any) -> None:
    """flag: 0 for boxes that count as background."""
    positive = int(xp.count_nonzero(flag == 1))
    if a.negative_mining_ratio <= 0:
        xp.maximum(flag, 0, out=flag)
        return
    wanted = max(int(positive * a.negative_mining_ratio), a.minimum_negative_samples)
    wanted = min(wanted, len(flag) - positive)
    if wanted <= 0:
        return
    # The least probable background first: of -log(softmax) = log(sum of exp(x - x[0])) the largest.
    total, term = spare
    total.fill(0)
    for row in cls_pred:
        xp.subtract(row, cls_pred[0], out=term, dtype=term.dtype)
        xp.minimum(term, 80, out=term)  # or float32 overflows
        xp.exp(term, out=term)
        xp.add(total, term, out=total)
    candidates = 0
    for begin in range(0, len(flag), 4096):
        part = slice(begin, begin + 4096)
        fits = (flag[part] == -1) & (best[part] < a.negative_mining_thresh)
        candidates += int(xp.count_nonzero(fits))
        xp.copyto(total[part], -1, where=~fits)
    order = descending(xp, total, keys).view("int64")
    for begin in range(0, min(wanted, candidates), 4096):
        flag[order[begin : min(begin + 4096, wanted, candidates)]] = 0


def _write_targets(
    xp: Any,
    a: Any,
    boxes: Any,
    truth: Any,
    flag: Any,
    which: Any,
    loc_target: Any,
    loc_mask: Any,
    cls_target: Any,
) -> None:
    for begin in range(0, len(flag), 4096):
        part = slice(begin, begin + 4096)
        if cls_target is not None:
            cls_target[part][flag[part] == 0] = 0
        at = begin + np.flatnonzero(flag[part] == 1)
        for some in (at[i : i + 512] for i in range(0, len(at), 512)):
            rows = truth[which[some]]
            if cls_target is not None:
                cls_target[some] = rows[:, 0] + 1
            for i in range(4):
                if loc_mask is not None:
                    loc_mask.reshape(-1, 4)[some, i] = 1
                if loc_target is None:
                    continue
                low, high = boxes[i % 2, some], boxes[i % 2 + 2, some]
                first, last = rows[:, 1 + i % 2], rows[:, 3 + i % 2]
                if i < 2:
                    value = ((first + last) / 2 - (low + high) / 2) / (high - low)
                else:
                    value = np.log((last - first) / (high - low))
                loc_target.reshape(-1, 4)[some, i] = value / a.variances[i]


class MultiBoxDetection(Op):
    """Detections from the predictions for prior boxes.

    cls_prob: (N, K, A), probabilities, class 0 the background;  loc_pred: (N, 4 * A);  anchor: (1, A, 4)
    ->  out: (N, A, 6), rows of class - 1, score, x1, y1, x2, y2 by falling score; class -1 is no detection.

    A prior box detects its most probable class except the background, if that has `threshold` or more. Boxes
    are the prior ones moved by loc_pred * `variances`, `clip`ped to [0, 1]. Among the best `nms_topk` of one
    class (`force_suppress`: of any), boxes that overlap a better one by `nms_threshold` or more are dropped.
    A `nms_threshold` outside (0, 1] keeps all, in the order of the prior boxes.
    `background_id` has no effect, as in MXNet. No gradient.
    """

    op_name = "_contrib_MultiBoxDetection"
    inputs = ("cls_prob", "loc_pred", "anchor")
    accepts = "float"

    @record
    class Attrs:
        clip: bool = True
        threshold: float = 0.01
        background_id: int = 0
        nms_threshold: float = 0.5
        force_suppress: bool = False
        variances: tuple[float, ...] = _VARIANCES
        nms_topk: int = -1

        def __post_init__(self) -> None:
            _check_variances(self)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        cls_prob, loc_pred, anchor = shapes
        if len(cls_prob) != 3 or cls_prob[1] < 1:
            raise ShapeError(f"cls_prob must be (N, K, A), got {cls_prob}.")
        n, _, count = cls_prob
        if tuple(loc_pred) != (n, 4 * count):
            raise ShapeError(f"loc_pred must be ({n}, {4 * count}), got {loc_pred}.")
        if tuple(anchor) != (1, count, 4):
            raise ShapeError(f"anchor must be (1, {count}, 4), got {anchor}.")
        return shapes, ((n, count, 6),)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return prod(inputs[0]) + 12 * prod(outputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_detection_pieces(inputs[0][2], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, cls_prob: Any, loc_pred: Any, anchor: Any, *, out: Any, work: Any) -> None:
        if out is None:
            return
        out.fill(-1)
        if not out.size or cls_prob.shape[1] < 2:
            return
        count = out.shape[1]
        score, kind, boxes, sorted_, spare, alive, flags, *keys = carve(
            work, _detection_pieces(count, cls_prob.dtype)
        )
        for n in range(len(out)):
            xp.copyto(score, cls_prob[n, 1])
            kind.fill(0)
            for c in range(2, cls_prob.shape[1]):
                xp.greater(cls_prob[n, c], score, out=flags)
                xp.copyto(score, cls_prob[n, c], where=flags)
                xp.copyto(kind, c - 1, where=flags)
            xp.greater_equal(score, a.threshold, out=alive)
            _move(xp, a, anchor[0], loc_pred[n].reshape(-1, 4), boxes, spare)
            rows = (kind, score, *boxes)
            # Those found come first, in the order of the prior boxes.
            valid = 0
            for begin in range(0, count, 2048):
                some = begin + np.flatnonzero(alive[begin : begin + 2048])
                for row in rows:
                    row[valid : valid + len(some)] = row[some]
                valid += len(some)
            for i, row in enumerate(rows):
                xp.copyto(out[n, :valid, i], row[:valid], casting="unsafe")
            if not valid or not 0 < a.nms_threshold <= 1:
                continue
            order = descending(xp, score[:valid], keys)
            m = min(valid, a.nms_topk) if a.nms_topk > 0 else valid
            order = order[:m].view("int64")
            for row, target in zip(rows, sorted_):
                xp.take(row, order, out=target[:m], mode="clip")
            stays = alive[:m]
            stays.fill(True)
            kinds = None if a.force_suppress else sorted_[0, :m]
            suppress(
                xp, sorted_[2:, :m], kinds, stays, a.nms_threshold, spare[:, :m], flags[:m], including=True
            )  # fmt: skip
            xp.logical_not(stays, out=stays)
            xp.copyto(sorted_[0, :m], -1, where=stays)
            for i in range(6):
                xp.copyto(out[n, :m, i], sorted_[i, :m], casting="unsafe")
            out[n, m:valid, 0] = -1


def _move(xp: Any, a: Any, anchor: Any, loc: Any, boxes: Any, spare: Any) -> None:
    """boxes (4, A): prior boxes moved and stretched as predicted."""
    centre, half, term = spare
    for low, high in ((0, 2), (1, 3)):
        xp.subtract(anchor[:, high], anchor[:, low], out=half, dtype=half.dtype)
        xp.add(anchor[:, low], anchor[:, high], out=centre, dtype=half.dtype)
        xp.multiply(centre, 0.5, out=centre)
        xp.multiply(loc[:, low], a.variances[low], out=term, dtype=half.dtype)
        xp.multiply(term, half, out=term)
        xp.add(centre, term, out=centre)
        xp.multiply(loc[:, high], a.variances[high], out=term, dtype=half.dtype)
        xp.exp(term, out=term)
        xp.multiply(half, term, out=half)
        xp.multiply(half, 0.5, out=half)
        xp.subtract(centre, half, out=boxes[low])
        xp.add(centre, half, out=boxes[high])
    if a.clip:
        xp.clip(boxes, 0, 1, out=boxes)


def _detection_pieces(n: int, dtype: DType) -> list[Piece]:
    """Score, class, boxes; all of them in order; overlaps, flags of kept boxes, other flags; keys."""
    acc, flag = accumulator(dtype), as_dtype("bool")
    row: Piece = ((n,), acc)
    pieces: list[Piece] = [row, row, ((4, n), acc), ((6, n), acc), ((3, n), acc), ((n,), flag), ((n,), flag)]
    return [*pieces, *order_pieces(n, acc)]
