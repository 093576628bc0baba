"""Boxes: overlaps, suppression of near duplicates, and the prior boxes, targets and detections of SSD.

Boxes are sorted on the device; one block for each sample then takes them one after the other, its threads
sharing the remaining ones. Counting uses integers.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from math import prod, sqrt
from typing import Any

import numpy as np

from .....graph.ir import Shape
from .....graph.opdef import DType, Op
from .....ops.index.sorting import argsort
from .....ops.scratch import accumulator
from .....ops.vision.boxes import box_iou, box_nms
from .....ops.vision.multibox import MultiBoxDetection, MultiBoxPrior, MultiBoxTarget
from ....base import ChosenKernel, Request
from ...compiler.kinds import kind
from ...compiler.source import assembled, KernelSource, typedefs
from ...compiler.structure import declared
from ...handwritten.each import addresses, each, launch, THREADS
from ...handwritten.fill import filled, zeros
from ...handwritten.layout import MOST
from ...rows import answer, are_alike, gradient_of
from ...runtime.device import Device, InOrder, nothing, Run
from ...runtime.scratch import Scratch
from ..reduce.sorting import Sorting

MOST_KINDS = 32
_INT32 = np.dtype("int32")


class _Kinds(ctypes.Structure):
    """The structure of this name in boxes.cuh."""

    _fields_ = declared("boxes", "Kinds")


class _Boxes(ctypes.Structure):
    """The structure of this name in boxes.cuh."""

    _fields_ = declared("boxes", "Boxes")


class _Targets(ctypes.Structure):
    """The structure of this name in boxes.cuh."""

    _fields_ = declared("boxes", "Targets")


def source(double: bool) -> KernelSource:
    """The kernels of boxes.cuh that compute in double, or in float."""
    types = typedefs(A="double" if double else "float")
    return assembled("types", "math", "index", "whole", types, "boxes")


def _sorting(device: Device, r: Request, shape: Shape, acc: DType) -> Sorting:
    """The order of each row of scores, the largest first."""
    return Sorting(device, replace(r, attrs=argsort.Attrs(axis=1), inputs=(shape,), dtype=acc))


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def text_for(r: Request) -> KernelSource | None:
        return source(str(r.dtype) == "float64") if are_alike(r) else None

    def overlaps(r: Request) -> ChosenKernel | None:
        text, count = text_for(r), prod(r.inputs[1][:-1])
        if text is None:
            return None

        def connect(a: Any, lhs: Any, rhs: Any, *, out: Any, work: Any) -> Run:
            last = kind(out.dtype), count, int(a.format == "center")
            return each(device, text, "box_overlaps", out.size, lhs, rhs, out, *last)

        return answer(r, connect, 0, "cuda box overlaps")

    def priors(r: Request) -> ChosenKernel | None:
        a, (h, w), text = r.attrs, r.inputs[0][2:], text_for(r)
        kinds = [(s, a.ratios[0]) for s in a.sizes] + [(a.sizes[0], x) for x in a.ratios[1:]]
        if text is None or len(kinds) > MOST_KINDS or not h or not w:
            return None
        made = _Kinds(count=len(kinds), w=w, clip=a.clip)
        for k, (size, ratio) in enumerate(kinds):
            made.across[k], made.down[k] = size * h / w * sqrt(ratio) / 2, size / sqrt(ratio) / 2
        made.step_y, made.step_x = (step if step > 0 else 1 / n for step, n in zip(a.steps, (h, w)))
        made.offset_y, made.offset_x = a.offsets

        def connect(a: Any, data: Any, *, out: Any) -> Run:
            return each(device, text, "prior_boxes", out.size, out, kind(out.dtype), made)

        return answer(r, connect, 0, "cuda prior boxes")

    def nms(r: Request) -> ChosenKernel | None:
        text = text_for(r)
        (*outer, n, width), acc = r.inputs[0], accumulator(r.dtype)
        samples = prod(outer)
        order = _sorting(device, r, (samples, n), acc)
        if text is None or (samples * n and not order.fits):
            return None
        scratch = Scratch(**_sizes(samples, n, acc.itemsize), sort=order.nbytes)
        minus_one = np.full(1, -1, r.dtype).tobytes()

        def connect(a: Any, data: Any, *, out: Any, index: Any, work: Any) -> Run:
            runs = [filled(device, x, b) for x, b in ((out, minus_one), (index, b"\xff")) if x is not None]
            if not runs or not data.size:
                return InOrder(runs)
            parts = scratch.parts(work)
            made = _boxes(device, parts, data=data, out=out, index=index)
            made.kind, made.n, made.width = kind(data.dtype), n, width
            made.threshold, made.valid, made.topk = a.overlap_thresh, a.valid_thresh, a.topk
            made.coordinates, made.score, made.id = a.coord_start, a.score_index, a.id_index
            made.background = a.background_id
            made.by_class = a.id_index >= 0 and not a.force_suppress
            made.center, made.out_center = a.in_format == "center", a.out_format == "center"
            scores = parts["scores"].view(acc).reshape(samples, n)
            positions = parts["order"].view(_INT32)
            return InOrder(
                [
                    *runs,
                    each(device, text, "nms_scores", samples * n, made),
                    order.call(scores, False, parts["sort"], places=positions),
                    launch(device, text, "nms", samples, THREADS, made),
                ]
            )

        return answer(r, connect, scratch.nbytes, "cuda box nms")

    def nms_gradient(r: Request) -> ChosenKernel | None:
        text = text_for(r)
        n, width = r.inputs[0][-2:]
        if text is None:
            return None

        def connect(a: Any, d_out: Any, index: Any, *, d_data: Any) -> Run:
            arrays = d_out, index, d_data, kind(d_data.dtype), n, width
            put = each(device, text, "nms_gradient", d_data.size, *arrays)
            return InOrder([zeros(device, d_data), put])

        return answer(r, connect, 0, "cuda box nms gradient")

    def detection(r: Request) -> ChosenKernel | None:
        text, (samples, classes, n), acc = text_for(r), r.inputs[0], accumulator(r.dtype)
        order = _sorting(device, r, (samples, n), acc)
        if text is None or (samples * n and not order.fits):
            return None
        scratch = Scratch(**_sizes(samples, n, acc.itemsize), sort=order.nbytes)
        minus_one = np.full(1, -1, r.dtype).tobytes()

        def connect(a: Any, prob: Any, loc: Any, anchor: Any, *, out: Any, work: Any) -> Run:
            fill = filled(device, out, minus_one)
            if not out.size or classes < 2:
                return fill
            parts = scratch.parts(work)
            made = _boxes(device, parts, data=prob, moved=loc, anchor=anchor, out=out)
            made.kind, made.n, made.classes = kind(out.dtype), n, classes
            made.threshold, made.valid, made.topk = a.nms_threshold, a.threshold, a.nms_topk
            made.variances[:] = a.variances
            made.by_class, made.clip = not a.force_suppress, a.clip
            scores = parts["scores"].view(acc).reshape(samples, n)
            return InOrder(
                [
                    fill,
                    each(device, text, "detect_scores", samples * n, made),
                    order.call(scores, False, parts["sort"], places=parts["order"].view(_INT32)),
                    launch(device, text, "detect", samples, THREADS, made),
                ]
            )

        return answer(r, connect, scratch.nbytes, "cuda detection")

    def targets(r: Request) -> ChosenKernel | None:
        text, n, (samples, labels, width) = text_for(r), r.inputs[0][1], r.inputs[1]
        acc = accumulator(r.dtype)
        order = _sorting(device, r, (samples, n), acc)
        mines = r.attrs.negative_mining_ratio > 0
        if text is None or (samples * n and not order.fits) or samples * labels * n > MOST:
            return None
        item, count = acc.itemsize, samples * n
        scratch = Scratch(
            iou=item * labels * count,
            background=item * count,
            order=4 * count,
            which=4 * count,
            counts=8 * samples,
            sort=order.nbytes if mines else 0,
        )

        def connect(a: Any, anchor: Any, label: Any, cls_pred: Any, *, work: Any, **outs: Any) -> Run:
            if not count:
                return nothing
            parts = scratch.parts(work)
            arrays = {"anchor": anchor, "label": label, "cls_pred": cls_pred}
            arrays |= {n: parts[n] for n in ("iou", "background", "order", "which", "counts")}
            own = {n: x for n, x in arrays.items() if x.size} | outs
            made = _Targets(**addresses(device, **own))
            made.overlap, made.ignore = a.overlap_threshold, a.ignore_label
            made.ratio, made.mining = a.negative_mining_ratio, a.negative_mining_thresh
            made.variances[:], made.minimum = a.variances, a.minimum_negative_samples
            made.n, made.labels, made.width, made.classes = n, labels, width, cls_pred.shape[1]
            made.kind = kind(r.dtype)
            runs = [launch(device, text, "match_boxes", samples, THREADS, made)]
            if mines:
                scores = parts["background"].view(acc).reshape(samples, n)
                runs.append(order.call(scores, False, parts["sort"], places=parts["order"].view(_INT32)))
            runs.append(each(device, text, "mine_background", count, made))
            return InOrder([*runs, each(device, text, "write_targets", count, made)])

        return answer(r, connect, scratch.nbytes, "cuda box targets")

    return {
        box_iou: [overlaps],
        box_nms: [nms],
        gradient_of(box_nms): [nms_gradient],
        MultiBoxPrior: [priors],
        MultiBoxDetection: [detection],
        MultiBoxTarget: [targets],
    }


def _sizes(samples: int, n: int, item: int) -> dict[str, int]:
    """Bytes of scores, their order, and the reordered boxes, kinds and flags."""
    count = samples * n
    return {
        "scores": item * count,
        "order": 4 * count,
        "boxes": 4 * item * count,
        "kinds": item * count,
        "alive": count,
    }


def _boxes(device: Device, parts: dict[str, Any], **arrays: Any) -> _Boxes:
    own = {name: parts[name] for name in ("scores", "order", "boxes", "kinds", "alive")}
    return _Boxes(**addresses(device, **own, **arrays))
