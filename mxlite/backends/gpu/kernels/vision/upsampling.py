"""UpSampling: each element is written once, a sum of the inputs' pixels; bilinear ones are convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from .....ops.nn.deconv import Deconvolution
from .....ops.vision.upsampling import as_deconvolution, UpSampling
from ....base import ChosenKernel, Request
from ...compiler.source import structure
from ...handwritten.each import each, typed
from ...rows import answer, are_alike, first_kernel, gradient_of, table
from ...runtime.device import Device, InOrder, Run
from ..nn.convolution import rows as convolutions

MOST_IMAGES = 8


_Images: Any = structure("images", "Images")


def _images(device: Device, images: Sequence[Any], size: Sequence[int]) -> Any:
    made = _Images(count=len(images))
    for i, x in enumerate(images):
        made.at[i] = device.address(x)
        made.rows[i], made.columns[i] = (n // m for n, m in zip(size, x.shape[2:]))
    return made


def _fits(r: Request) -> bool:
    return are_alike(r) and len(r.inputs) <= MOST_IMAGES


def _bilinear(device: Device, r: Request) -> ChosenKernel | None:
    """The kernel of the equivalent convolution: data and weight have the same names there."""
    op = Deconvolution if r.op.forward_op is None else gradient_of(Deconvolution)
    inner = first_kernel(convolutions, device, replace(r, op=op, attrs=as_deconvolution(r.attrs)))
    if inner is None:
        return None

    def connect(a: Any, *given: Any, work: Any, out: Any = None, d_args: Any = None, **rest: Any) -> Run:
        arrays, made = given, {"out": out}
        if d_args is not None:
            arrays, made = (given[0], *given[1]), dict(zip(("d_data", "d_weight", "d_bias"), (*d_args, None)))
        return inner.link(inner.run, device.xp, as_deconvolution(a), *arrays, **made, work=work)

    return answer(r, connect, inner.workspace, inner.name)


def _forward(device: Device, r: Request) -> ChosenKernel | None:
    if not _fits(r) or r.attrs.sample_type == "bilinear":
        return _bilinear(device, r) if _fits(r) else None
    text = typed(str(r.dtype), "images")

    def connect(a: Any, *args: Any, out: Any, work: Any) -> Run:
        h, w = out.shape[2:]
        parts = [args] if a.multi_input_mode == "sum" else [(x,) for x in args]
        runs, start = [], 0
        for part in parts:
            plane, whole = part[0].shape[1] * h * w, prod(out.shape[1:])
            images = _images(device, part, (h, w))
            n = len(out) * plane
            runs.append(
                each(device, text, "repeat_pixels", n, out, images, h, w, max(1, plane), whole, start)
            )
            start += plane
        return InOrder(runs)

    return answer(r, connect, 0, "cuda upsampling")


def _backward(device: Device, r: Request) -> ChosenKernel | None:
    if not _fits(r) or r.attrs.sample_type == "bilinear":
        return _bilinear(device, r) if _fits(r) else None
    text = typed(str(r.dtype), "images")

    def connect(a: Any, d_out: Any, args: Any, *, d_args: Any, work: Any, shapes: Any) -> Run:
        runs, start = [], 0
        total, whole = a.multi_input_mode == "sum", prod(shapes[1][0][1:])
        height, width = shapes[1][0][2:]
        for d_x, (_, c, h, w) in zip(d_args, shapes[0]):
            if d_x is not None and d_x.size:
                ratios = height // h, width // w
                numbers = (*ratios, h, w, c * h * w, whole, start)
                runs.append(each(device, text, "sum_pixels", d_x.size, d_out, d_x, *numbers))
            start += 0 if total else c * height * width
        return InOrder(runs)

    return answer(r, connect, 0, "cuda upsampling gradient")


rows = table((UpSampling, _forward, _backward))
