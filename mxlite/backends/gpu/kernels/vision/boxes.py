"""Boxes: overlaps, suppression of near duplicates, and the prior boxes, targets and detections of SSD.

Boxes are sorted on the device; one block for each sample then takes them one after the other, its threads
sharing the remaining ones. Counting uses integers.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
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
from ....base import ChosenKernel, connected, Request
from ...compiler.kinds import floating, kind
from ...compiler.source import KernelSource, shared
from ...compiler.structure import declared
from ...handwritten.each import each
from ...handwritten.fill import filled, zeros
from ...handwritten.layout import MOST
from ...runtime.device import Arguments, Device, InOrder, nothing, Run
from ..reduce.sorting import Sorting

THREADS = 256
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


@functools.lru_cache(maxsize=2)
def source(wide: bool) -> KernelSource:
    """The kernels of boxes.cuh that compute in double, or in float."""
    types = f"typedef {'double' if wide else 'float'} A;\n"
    return KernelSource(shared("types", "math", "index", "whole") + types + shared("boxes"))


class Scratch:
    """Parts of the workspace by name, each aligned to 256 bytes."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.nbytes = sum(-(-n // 256) * 256 for n in sizes.values())

    def parts(self, work: Any) -> dict[str, Any]:
        found, begin = {}, 0
        for name, nbytes in self.sizes.items():
            found[name] = work[begin : begin + nbytes]
            begin += -(-nbytes // 256) * 256
        return found


def _sorting(device: Device, r: Request, shape: Shape, acc: DType) -> Sorting:
    """The order of each row of scores, the largest first."""
    return Sorting(device, replace(r, attrs=argsort.Attrs(axis=1), inputs=(shape,), dtype=acc))


def _blocks(device: Device, text: KernelSource, name: str, samples: int, made: ctypes.Structure) -> Run:
    """A launch with a block for each sample."""
    return device.launch(device.function(text, name), (samples, 1, 1), (THREADS, 1, 1), 0, Arguments([made]))


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def text_for(r: Request) -> KernelSource | None:
        small = all(prod(s) <= MOST for s in (*r.inputs, *r.outputs))
        if not small or not floating(*r.dtypes) or len(set(r.dtypes)) != 1:
            return None
        return source(str(r.dtype) == "float64")

    def overlaps(r: Request) -> ChosenKernel | None:
        text, count = text_for(r), prod(r.inputs[1][:-1])
        if text is None:
            return None

        def connect(xp: Any, a: Any, lhs: Any, rhs: Any, *, out: Any, work: Any) -> Run:
            if out is None:
                return nothing
            last = kind(out.dtype), count, int(a.format == "center")
            return each(device, text, "box_overlaps", out.size, lhs, rhs, out, *last)

        return connected(connect, 0, "cuda box overlaps", like=r.op.forward)

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

        def connect(xp: Any, a: Any, data: Any, *, out: Any) -> Run:
            return (
                nothing
                if out is None
                else each(device, text, "prior_boxes", out.size, out, kind(out.dtype), made)
            )

        return connected(connect, 0, "cuda prior boxes", like=r.op.forward)

    def nms(r: Request) -> ChosenKernel | None:
        text = text_for(r)
        (*outer, n, width), acc = r.inputs[0], accumulator(r.dtype)
        samples = prod(outer)
        order = _sorting(device, r, (samples, n), acc)
        if text is None or (samples * n and not order.fits):
            return None
        scratch = Scratch(_sizes(samples, n, acc.itemsize) | {"sort": order.nbytes})
        minus_one = np.full(1, -1, r.dtype).tobytes()

        def connect(xp: Any, a: Any, data: Any, *, out: Any, index: Any, work: Any) -> Run:
            runs = [filled(device, x, b) for x, b in ((out, minus_one), (index, b"\xff")) if x is not None]
            if not runs or not data.size:
                return InOrder(runs)
            made, parts = _boxes(device, scratch, work)
            made.data, made.kind, made.n, made.width = device.address(data), kind(data.dtype), n, width
            made.out = None if out is None else device.address(out)
            made.index = None if index is None else device.address(index)
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
                    _blocks(device, text, "nms", samples, made),
                ]
            )

        return connected(connect, scratch.nbytes, "cuda box nms", like=r.op.forward)

    def nms_gradient(r: Request) -> ChosenKernel | None:
        text = text_for(r)
        n, width = r.inputs[0][-2:]
        if text is None:
            return None

        def connect(xp: Any, a: Any, d_out: Any, index: Any, *, d_data: Any) -> Run:
            if d_data is None:
                return nothing
            arrays = d_out, index, d_data, kind(d_data.dtype), n, width
            put = each(device, text, "nms_gradient", d_data.size, *arrays)
            return InOrder([zeros(device, d_data), put])

        return connected(connect, 0, "cuda box nms gradient", like=r.op.forward)

    def detection(r: Request) -> ChosenKernel | None:
        text, (samples, classes, n), acc = text_for(r), r.inputs[0], accumulator(r.dtype)
        order = _sorting(device, r, (samples, n), acc)
        if text is None or (samples * n and not order.fits):
            return None
        scratch = Scratch(_sizes(samples, n, acc.itemsize) | {"sort": order.nbytes})
        minus_one = np.full(1, -1, r.dtype).tobytes()

        def connect(xp: Any, a: Any, prob: Any, loc: Any, anchor: Any, *, out: Any, work: Any) -> Run:
            if out is None:
                return nothing
            fill = filled(device, out, minus_one)
            if not out.size or classes < 2:
                return fill
            made, parts = _boxes(device, scratch, work)
            made.data, made.moved, made.anchor = (device.address(x) for x in (prob, loc, anchor))
            made.out, made.kind, made.n, made.classes = device.address(out), kind(out.dtype), n, classes
            made.threshold, made.valid, made.topk = a.nms_threshold, a.threshold, a.nms_topk
            made.variances[:] = a.variances
            made.by_class, made.clip = not a.force_suppress, a.clip
            scores = parts["scores"].view(acc).reshape(samples, n)
            return InOrder(
                [
                    fill,
                    each(device, text, "detect_scores", samples * n, made),
                    order.call(scores, False, parts["sort"], places=parts["order"].view(_INT32)),
                    _blocks(device, text, "detect", samples, made),
                ]
            )

        return connected(connect, scratch.nbytes, "cuda detection", like=r.op.forward)

    def targets(r: Request) -> ChosenKernel | None:
        text, n, (samples, labels, width) = text_for(r), r.inputs[0][1], r.inputs[1]
        acc = accumulator(r.dtype)
        order = _sorting(device, r, (samples, n), acc)
        mines = r.attrs.negative_mining_ratio > 0
        if text is None or (samples * n and not order.fits) or samples * labels * n > MOST:
            return None
        item, count = acc.itemsize, samples * n
        scratch = Scratch(
            {
                "iou": item * labels * count,
                "background": item * count,
                "order": 4 * count,
                "which": 4 * count,
                "counts": 8 * samples,
                "sort": order.nbytes if mines else 0,
            }
        )

        def connect(
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
        ) -> Run:
            made = _Targets(*(device.address(x) if x.size else None for x in (anchor, label, cls_pred)))
            for name, x in (("loc_target", loc_target), ("loc_mask", loc_mask), ("cls_target", cls_target)):
                setattr(made, name, None if x is None else device.address(x))
            parts = scratch.parts(work)
            for name in ("iou", "background", "order", "which", "counts"):
                setattr(made, name, device.address(parts[name]) if parts[name].size else None)
            made.overlap, made.ignore = a.overlap_threshold, a.ignore_label
            made.ratio, made.mining = a.negative_mining_ratio, a.negative_mining_thresh
            made.variances[:], made.minimum = a.variances, a.minimum_negative_samples
            made.n, made.labels, made.width, made.classes = n, labels, width, cls_pred.shape[1]
            made.kind = kind(r.dtype)
            if not count:
                return nothing
            runs = [_blocks(device, text, "match_boxes", samples, made)]
            if mines:
                scores = parts["background"].view(acc).reshape(samples, n)
                runs.append(order.call(scores, False, parts["sort"], places=parts["order"].view(_INT32)))
            runs.append(each(device, text, "mine_background", count, made))
            return InOrder([*runs, each(device, text, "write_targets", count, made)])

        return connected(connect, scratch.nbytes, "cuda box targets", like=r.op.forward)

    assert box_nms.grad_op is not None
    return {
        box_iou: [overlaps],
        box_nms: [nms],
        box_nms.grad_op: [nms_gradient],
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


def _boxes(device: Device, scratch: Scratch, work: Any) -> tuple[_Boxes, dict[str, Any]]:
    made, parts = _Boxes(), scratch.parts(work)
    for name in ("scores", "order", "boxes", "kinds", "alive"):
        setattr(made, name, device.address(parts[name]))
    return made, parts
