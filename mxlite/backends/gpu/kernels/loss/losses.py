"""Outputs that start the backward pass by themselves: SoftmaxOutput, MakeLoss.

Kernels are elementwise: each array is read and written once, 16 bytes at a time. Counts for a normalization
are computed first, in a kernel of their own.
"""

from __future__ import annotations

import ctypes
from functools import partial
from math import prod
from typing import Any

import numpy as np

from .....core.dtype import as_dtype
from .....graph.opdef import DType
from .....ops.loss.loss import MakeLoss, SoftmaxOutput
from .....ops.scratch import carve, scratch_bytes
from .....te.computation import Computation, Tensor
from ....base import ChosenKernel, Request
from ...compiler.kinds import computed_in, floating, kind, known
from ...compiler.source import assembled, KernelSource, NAMES, structure, typedefs
from ...handwritten.each import launch, spread, THREADS
from ...handwritten.fold import ABOVE, ADD, Fold, PLAIN, sum_type, width_of
from ...handwritten.layout import Divisor, MOST, stretches
from ...rows import answer, gradient_of, table
from ...runtime.device import Device, InOrder, one_after_other, Run
from ..arithmetic.elementwise import loop, looped
from ..nn.softmax import Cube, output_cube

STRETCH = 16384  # labels that a block counts, at least
MOST_PARTS = 64

_BYTE = as_dtype("uint8")


ClassGradient: Any = structure("class_gradient", "ClassGradient", Divisor=Divisor)


def source(dtype: DType) -> KernelSource:
    """The kernels for arrays of one dtype."""
    types = typedefs(T=NAMES[str(dtype)], C=computed_in(dtype)) + f"enum {{ WIDTH = {width_of(dtype)} }};\n"
    return assembled("types", types, "math", "index", "whole", "group", "class_gradient")


def class_gradient(
    device: Device, lines: Cube, out: Any, label: Any, d_data: Any, head: Any, **parameters: Any
) -> Run:
    """The run for data of shape `lines` (N, K, P); see the structure for parameters."""
    n, k, p = lines
    arrays = {"out": out, "label": label, "d_data": d_data, "head": head}
    steps = {name: (p if name == "label" else k * p) for name in arrays}
    runs = []
    for first, count in stretches(n, k * p, MOST):
        places = {
            name: None if x is None else device.address(x) + first * steps[name] * x.dtype.itemsize
            for name, x in arrays.items()
        }
        runs.append(_stretch(device, (count, k, p), out.dtype, label.dtype, places | parameters))
    return one_after_other(runs)


def _stretch(device: Device, lines: Cube, dtype: DType, label: DType, values: dict[str, Any]) -> Run:
    n, k, p = lines
    last, width = p if p > 1 else k, width_of(dtype)
    pack = width if last % width == 0 else 1
    made = ClassGradient()
    made.packs, made.last, made.length = n * k * p // pack, Divisor(last // pack), Divisor(k)
    made.label_kind, made.across = kind(label), p > 1
    for name, value in values.items():
        setattr(made, name, value)
    made.vector = all(a % (pack * dtype.itemsize) == 0 for a in (made.out, made.head, made.d_data) if a)
    if p == 1:
        made.length = Divisor(1)
    return spread(
        device, source(dtype), f"class_gradient_{'wide' if pack > 1 else 'single'}", made.packs, made
    )


def _softmax_output_gradient(device: Device, r: Request) -> ChosenKernel | None:
    a, (shape, label_shape) = r.attrs, r.inputs
    if not 0 < prod(shape[1:]) * bool(shape[0]) <= MOST or not known(*r.dtypes):
        return None
    if label_shape == shape and (len(shape) > 2 or shape[1:] != (1,) or not a.multi_output):
        return _probabilities_gradient(device, r)
    n, k, p = lines = output_cube(a, shape)
    size = prod(label_shape)
    scale = a.grad_scale
    if a.multi_output and a.normalization != "valid":
        scale /= max(1, p)
    if a.normalization == "batch":
        scale /= max(1, n if a.multi_output else size)
    parts = min(MOST_PARTS, -(-size // STRETCH)) if a.normalization == "valid" else 0
    spread = a.smooth_alpha / (k - 1) if k > 1 else 0.0
    ignored = (
        float(np.asarray(a.ignore_label).astype(r.dtypes[1])) if floating(r.dtypes[1]) else a.ignore_label
    )
    parameters = {"scale": scale, "spread": spread, "parts": parts}
    parameters |= {"own": 1 - a.smooth_alpha - spread, "ignored": ignored, "use_ignore": a.use_ignore}

    def connect(a: Any, d_out: Any, out: Any, label: Any, *, d_data: Any, work: Any = None) -> Run:
        gradient = partial(class_gradient, device, lines, out, label, d_data, d_out, **parameters)
        if not parts:
            return gradient()
        sizes = ctypes.c_int64(size), ctypes.c_int64(-(-size // parts))
        values = label, kind(label.dtype), float(ignored), *sizes, work
        count = launch(device, source(r.dtype), "count_labels", parts, THREADS, *values)
        return InOrder([count, gradient(counts=device.address(work))])

    return answer(r, connect, 4 * parts, "cuda class gradient")


def _probabilities_gradient(device: Device, r: Request) -> ChosenKernel | None:
    """Gradient for labels that are probabilities."""
    n, scale = (prod(r.inputs[0]),), r.attrs.grad_scale
    data, label = r.dtypes

    def slope(w: Computation, y: Tensor, t: Tensor, d: Tensor | None = None) -> Tensor:
        made = (y - t) * w.constant(scale)
        return made if d is None else made * d

    plain = loop(device, slope, [n] * 2, [data, label], n, data)
    headed = loop(device, slope, [n] * 3, [data, label, data], n, data)
    if plain is None or headed is None:
        return None

    def connect(a: Any, d_out: Any, out: Any, label: Any, *, d_data: Any) -> Run:
        return plain.call(out, label, d_data) if d_out is None else headed.call(out, label, d_out, d_data)

    return answer(r, connect, 0, "cuda elementwise")


def _make_loss_gradient(device: Device, r: Request) -> ChosenKernel | None:
    """grad_scale, divided by the number of rows or by how many elements are above the threshold."""
    a, (shape,) = r.attrs, r.inputs
    n = prod(shape)
    if not n or not floating(r.dtype):
        return None
    if a.normalization != "valid":
        scale = a.grad_scale / (max(1, prod(shape[:-1])) if a.normalization == "batch" else 1)
        return looped(
            r, loop(device, lambda w: w.constant(scale), [], [], (n,), r.dtype), "cuda elementwise", ()
        )
    wide = sum_type(r.dtype)
    fold = Fold(device, r.dtype, (n,), (1,), ABOVE, ADD, PLAIN, a.valid_thresh)
    spread_out = loop(
        device, lambda w, c: w.constant(a.grad_scale) / w("max", c, 1.0), [(1,)], [wide], (n,), r.dtype
    )
    if not fold.fits or spread_out is None:
        return None
    pieces = [((1,), wide), ((fold.workspace,), _BYTE)]

    def connect(a: Any, data: Any, *, d_data: Any, work: Any) -> Run:
        count, rest = carve(work, pieces)
        return InOrder([fold.call(data, count, rest), spread_out.call(count, d_data)])

    return answer(r, connect, scratch_bytes(pieces), "cuda loss gradient")


def _same(device: Device, r: Request) -> ChosenKernel | None:
    n = (prod(r.inputs[0]),)
    return looped(r, loop(device, lambda w, x: x, [n], [r.dtype], n, r.dtype), "cuda elementwise")


rows = table(
    (MakeLoss, _same, _make_loss_gradient),
    (gradient_of(SoftmaxOutput), _softmax_output_gradient, None),
)
