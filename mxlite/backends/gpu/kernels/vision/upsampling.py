"""UpSampling: each element is written once, a sum of the inputs' pixels; bilinear ones are convolutions."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from .....graph.opdef import Op
from .....ops.nn.deconv import Deconvolution
from .....ops.vision.upsampling import as_deconvolution, UpSampling
from ....base import ChosenKernel, Request
from ...compiler.structure import declared
from ...handwritten.each import each, typed
from ...rows import answer, are_alike, gradient_of
from ...runtime.device import Device, InOrder, Run
from ..nn.convolution import rows as convolutions

MOST_IMAGES = 8


class _Images(ctypes.Structure):
    """The structure Images of images.cuh."""

    _fields_ = declared("images", "Images")

    def __init__(self, device: Device, images: Sequence[Any], size: Sequence[int]) -> None:
        super().__init__(count=len(images))
        for i, x in enumerate(images):
            self.at[i] = device.address(x)
            self.rows[i], self.columns[i] = (n // m for n, m in zip(size, x.shape[2:]))


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""
    convolution = convolutions(device)

    def fits(r: Request) -> bool:
        return are_alike(r) and len(r.inputs) <= MOST_IMAGES

    def bilinear(r: Request, op: type[Op]) -> ChosenKernel | None:
        """The kernel of the equivalent convolution: data and weight have the same names there."""
        (row,) = convolution[op]
        found: ChosenKernel | None = row(replace(r, op=op, attrs=as_deconvolution(r.attrs)))
        return found

    def forward(r: Request) -> ChosenKernel | None:
        if not fits(r):
            return None
        if r.attrs.sample_type == "bilinear":
            inner = bilinear(r, Deconvolution)
            if inner is None:
                return None

            def convolve(a: Any, *args: Any, out: Any, work: Any) -> Run:
                return inner.link(inner.run, device.xp, as_deconvolution(a), *args, out=out, work=work)

            return answer(r, convolve, inner.workspace, inner.name)
        text = typed(str(r.dtype), "images")

        def connect(a: Any, *args: Any, out: Any, work: Any) -> Run:
            h, w = out.shape[2:]
            parts = [args] if a.multi_input_mode == "sum" else [(x,) for x in args]
            runs, start = [], 0
            for part in parts:
                plane, whole = part[0].shape[1] * h * w, prod(out.shape[1:])
                images = _Images(device, part, (h, w))
                n = len(out) * plane
                runs.append(
                    each(device, text, "repeat_pixels", n, out, images, h, w, max(1, plane), whole, start)
                )
                start += plane
            return InOrder(runs)

        return answer(r, connect, 0, "cuda upsampling")

    def backward(r: Request) -> ChosenKernel | None:
        if not fits(r):
            return None
        if r.attrs.sample_type == "bilinear":
            inner = bilinear(r, gradient_of(Deconvolution))
            if inner is None:
                return None

            def convolve(a: Any, d_out: Any, args: Any, *, d_args: Any, work: Any, shapes: Any) -> Run:
                made = dict(zip(("d_data", "d_weight"), d_args))
                arrays = d_out, *args
                return inner.link(
                    inner.run, device.xp, as_deconvolution(a), *arrays, **made, d_bias=None, work=work
                )

            return answer(r, convolve, inner.workspace, inner.name)
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

    return {UpSampling: [forward], gradient_of(UpSampling): [backward]}
