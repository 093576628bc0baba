"""Boxes: suppression of near duplicates, and the prior boxes, targets and detections of SSD.

Boxes are sorted on the device; one block for each sample then takes them one after the other, its threads
sharing the remaining ones. Counting uses integers.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod, sqrt
from typing import Any

import numpy as np

from .....ops.index.sorting import argsort
from .....ops.scratch import accumulator
from .....ops.vision.boxes import box_nms
from .....ops.vision.multibox import MultiBoxDetection, MultiBoxPrior, MultiBoxTarget
from ....base import ChosenKernel, Request
from ...compiler.kinds import kind
from ...compiler.source import assembled, KernelSource, structure, typedefs
from ...handwritten.each import addresses, launch, Launches, THREADS
from ...handwritten.fill import filled, zeros
from ...handwritten.layout import MOST
from ...rows import answer, are_alike, row, table
from ...runtime.device import Device, InOrder, nothing, Run
from ...runtime.scratch import Scratch
from ..reduce.sorting import Sorting

MOST_KINDS = 32
_INT32 = np.dtype("int32")


_Kinds: Any = structure("boxes", "Kinds")
_Boxes: Any = structure("boxes", "Boxes")
_Targets: Any = structure("boxes", "Targets")


def source(double: bool) -> KernelSource:
    """The kernels of boxes.cuh that compute in double, or in float."""
    types = typedefs(A="double" if double else "float")
    return assembled("types", "math", "index", "whole", types, "boxes")


def _launches(device: Device, r: Request) -> Launches | None:
    return Launches(device, source(str(r.dtype) == "float64")) if are_alike(r) else None


class Ordered:
    """Boxes (samples, n) that are taken in the order of their scores, the largest first, with scratch of
    `sizes` bytes and for the sort, if they `sort`.
    """

    def __init__(
        self, device: Device, r: Request, samples: int, n: int, sizes: dict[str, int], sorts: bool = True
    ) -> None:
        self.launches, self.samples, self.n = _launches(device, r), samples, n
        self.acc, self.minus_one = accumulator(r.dtype), np.full(1, -1, r.dtype).tobytes()
        lines = replace(r, attrs=argsort.Attrs(axis=1), inputs=((samples, n),), dtype=self.acc)
        self.order = Sorting(device, lines)
        self.fits = self.launches is not None and (not samples * n or self.order.fits)
        self.scratch = Scratch(**sizes, sort=self.order.nbytes if sorts else 0)

    @classmethod
    def suppressed(cls, device: Device, r: Request, samples: int, n: int) -> Ordered | None:
        """Those of which near duplicates are left out: scratch holds their scores, kinds and flags, too."""
        count, item = samples * n, accumulator(r.dtype).itemsize
        sizes = {"scores": item * count, "order": 4 * count, "boxes": 4 * item * count}
        made = cls(device, r, samples, n, sizes | {"kinds": item * count, "alive": count})
        return made if made.fits else None

    def structure(self, work: Any, **arrays: Any) -> tuple[Any, dict[str, Any]]:
        """The argument of the kernels of `suppressed` boxes, and the parts of the scratch."""
        parts = self.scratch.parts(work)
        own = {name: x for name, x in parts.items() if name != "sort"}
        return _Boxes(n=self.n, **addresses(self.order.device, **own, **arrays)), parts

    def sort(self, scores: str, parts: dict[str, Any]) -> Run:
        """The call that orders the scores in a part of the scratch."""
        given = parts[scores].view(self.acc).reshape(self.samples, self.n)
        return self.order.call(given, False, parts["sort"], places=parts["order"].view(_INT32))

    def blocks(self, name: str, made: Any) -> Run:
        """A launch with a block of threads for each sample."""
        assert self.launches is not None
        return launch(*self.launches, name, self.samples, THREADS, made)

    def each(self, name: str, made: Any) -> Run:
        """A launch with a thread for each box."""
        assert self.launches is not None
        return self.launches.each(name, self.samples * self.n, made)


def _priors(device: Device, r: Request) -> ChosenKernel | None:
    a, (h, w), kernels = r.attrs, r.inputs[0][2:], _launches(device, r)
    kinds = [(s, a.ratios[0]) for s in a.sizes] + [(a.sizes[0], x) for x in a.ratios[1:]]
    if kernels is None or len(kinds) > MOST_KINDS or not h or not w:
        return None
    made = _Kinds(count=len(kinds), w=w, clip=a.clip)
    for k, (size, ratio) in enumerate(kinds):
        made.across[k], made.down[k] = size * h / w * sqrt(ratio) / 2, size / sqrt(ratio) / 2
    made.step_y, made.step_x = (step if step > 0 else 1 / n for step, n in zip(a.steps, (h, w)))
    made.offset_y, made.offset_x = a.offsets

    def connect(a: Any, data: Any, *, out: Any) -> Run:
        return kernels.each("prior_boxes", out.size, out, kind(out.dtype), made)

    return answer(r, connect, 0, "cuda prior boxes")


def _boxes(device: Device, r: Request) -> Ordered | None:
    *outer, n, _ = r.inputs[0]
    return Ordered.suppressed(device, r, prod(outer), n)


def _nbytes(boxes: Ordered) -> int:
    return boxes.scratch.nbytes


@row(_boxes, "cuda box nms", _nbytes)
def _nms(boxes: Ordered, a: Any, data: Any, *, out: Any, index: Any, work: Any) -> Run:
    device, wanted = boxes.order.device, ((out, boxes.minus_one), (index, b"\xff"))
    runs = [filled(device, x, element) for x, element in wanted if x is not None]
    if not runs or not data.size:
        return InOrder(runs)
    made, parts = boxes.structure(work, data=data, out=out, index=index)
    made.kind, made.width = kind(data.dtype), data.shape[-1]
    made.threshold, made.valid, made.topk = a.overlap_thresh, a.valid_thresh, a.topk
    made.coordinates, made.score, made.id = a.coord_start, a.score_index, a.id_index
    made.background = a.background_id
    made.by_class = a.id_index >= 0 and not a.force_suppress
    made.center, made.out_center = a.in_format == "center", a.out_format == "center"
    scores = boxes.each("nms_scores", made)
    return InOrder([*runs, scores, boxes.sort("scores", parts), boxes.blocks("nms", made)])


@row(_launches, "cuda box nms gradient")
def _nms_gradient(kernels: Launches, a: Any, d_out: Any, index: Any, *, d_data: Any) -> Run:
    arrays = d_out, index, d_data, kind(d_data.dtype), *d_data.shape[-2:]
    put = kernels.each("nms_gradient", d_data.size, *arrays)
    return InOrder([zeros(kernels.device, d_data), put])


def _detected(device: Device, r: Request) -> Ordered | None:
    samples, _, n = r.inputs[0]
    return Ordered.suppressed(device, r, samples, n)


@row(_detected, "cuda detection", _nbytes)
def _detection(boxes: Ordered, a: Any, prob: Any, loc: Any, anchor: Any, *, out: Any, work: Any) -> Run:
    fill, classes = filled(boxes.order.device, out, boxes.minus_one), prob.shape[1]
    if not out.size or classes < 2:
        return fill
    made, parts = boxes.structure(work, data=prob, moved=loc, anchor=anchor, out=out)
    made.kind, made.classes = kind(out.dtype), classes
    made.threshold, made.valid, made.topk = a.nms_threshold, a.threshold, a.nms_topk
    made.variances[:] = a.variances
    made.by_class, made.clip = not a.force_suppress, a.clip
    scores = boxes.each("detect_scores", made)
    return InOrder([fill, scores, boxes.sort("scores", parts), boxes.blocks("detect", made)])


def _matched(device: Device, r: Request) -> Ordered | None:
    n, (samples, labels, _) = r.inputs[0][1], r.inputs[1]
    count, item = samples * n, accumulator(r.dtype).itemsize
    sizes = {"iou": item * labels * count, "background": item * count, "order": 4 * count}
    sizes |= {"which": 4 * count, "counts": 8 * samples}
    made = Ordered(device, r, samples, n, sizes, r.attrs.negative_mining_ratio > 0)
    return made if made.fits and labels * count <= MOST else None


@row(_matched, "cuda box targets", _nbytes)
def _targets(
    boxes: Ordered, a: Any, anchor: Any, label: Any, cls_pred: Any, *, work: Any, **outs: Any
) -> Run:
    if not boxes.samples * boxes.n:
        return nothing
    parts = boxes.scratch.parts(work)
    arrays = {"anchor": anchor, "label": label, "cls_pred": cls_pred} | parts
    own = {n: x for n, x in arrays.items() if x.size and n != "sort"} | outs
    made = _Targets(**addresses(boxes.order.device, **own))
    made.overlap, made.ignore = a.overlap_threshold, a.ignore_label
    made.ratio, made.mining = a.negative_mining_ratio, a.negative_mining_thresh
    made.variances[:], made.minimum = a.variances, a.minimum_negative_samples
    made.n, made.classes, made.kind = boxes.n, cls_pred.shape[1], kind(anchor.dtype)
    made.labels, made.width = label.shape[1:]
    runs = [boxes.blocks("match_boxes", made)]
    if a.negative_mining_ratio > 0:
        runs.append(boxes.sort("background", parts))
    return InOrder([*runs, boxes.each("mine_background", made), boxes.each("write_targets", made)])


rows = table(
    (box_nms, _nms, _nms_gradient),
    (MultiBoxPrior, _priors, None),
    (MultiBoxDetection, _detection, None),
    (MultiBoxTarget, _targets, None),
)
