"""BatchNorm with channels last, on oneDNN: the fallback without a compiler for the generated kernels.

oneDNN's kernels for planes (N, C, P), and for channels that fill no vectors, are no better than numpy's.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numpy as np

from .....graph.grouped import grouped
from .....graph.ir import Shape
from .....graph.opdef import DType
from .....ops.norm.norm import around_channels, BatchNorm
from .....ops.norm.norm_arrays import NormMoments
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import ChosenKernel, connected, Request
from ...kernel_row import kernel_rows, LIBRARY
from ...onednn import bind, cached, in_turn, memory, Primitive, Run
from ...onednn.constants import (
    BACKWARD,
    DIFF_DST,
    DIFF_SCALE,
    DIFF_SHIFT,
    DIFF_SRC,
    DST,
    DTYPES,
    GLOBAL_STATS,
    INFERENCE,
    MEAN,
    SCALE,
    SHIFT,
    SRC,
    TRAINING,
    USE_SCALE,
    USE_SHIFT,
    VARIANCE,
)

_float32, _byte = np.dtype("float32"), np.dtype("uint8")


@cached
def _forward_of(shape: Shape, dtype: DType, eps: float, flags: int, train: bool) -> Primitive | None:
    made = _primitive(shape, dtype, eps, flags, train)
    return made if "jit" in made.implementation else None


@cached
def _backward_of(shape: Shape, dtype: DType, eps: float, flags: int) -> Primitive | None:
    hint = _primitive(shape, dtype, eps, flags, True)
    data = _data(shape, dtype)
    made = Primitive(
        "batch_normalization_backward",
        ctypes.c_int(BACKWARD), data, data, data, ctypes.c_float(eps), ctypes.c_uint(flags), hint.descriptor,
        keep=hint,
    )  # fmt: skip
    return made if "jit" in made.implementation else None


def _primitive(shape: Shape, dtype: DType, eps: float, flags: int, train: bool) -> Primitive:
    data = _data(shape, dtype)
    kind = ctypes.c_int(TRAINING if train else INFERENCE)
    return Primitive(
        "batch_normalization_forward", kind, data, data, ctypes.c_float(eps), ctypes.c_uint(flags)
    )


def _data(shape: Shape, dtype: DType) -> Any:
    return memory(shape, dtype, (0, 2, 3, 1))


def _case(r: Request) -> tuple[Shape, int, bool] | None:
    """(N, C, P, 1), oneDNN's flags, and True if the statistics are the batch's; None for other layouts."""
    before, c, behind = around_channels(r.attrs, r.inputs[0])
    if r.dtype not in DTYPES or 0 in r.inputs[0] or behind != 1:
        return None
    batch = r.train and not r.attrs.use_global_stats
    flags = USE_SHIFT | (0 if r.attrs.fix_gamma else USE_SCALE) | (0 if batch else GLOBAL_STATS)
    return (r.inputs[0][0], c, before // r.inputs[0][0], 1), flags, batch


def _forward(r: Request) -> ChosenKernel | None:
    case = _case(r)
    if case is None:
        return None
    shape, flags, batch = case
    primitive = _forward_of(shape, r.dtype, r.attrs.eps, flags, r.train)
    if primitive is None:
        return None
    vector = memory((shape[1],), _float32)
    pieces: list[Piece] = [((2, shape[1]), _float32), ((primitive.scratch,), _byte)]
    reference = BatchNorm.workspace(r.attrs, r.inputs, r.outputs, r.dtype)

    def connect(
        xp: Any,
        a: Any,
        data: Any,
        gamma: Any,
        beta: Any,
        moving_mean: Any,
        moving_var: Any,
        *,
        out: Any,
        mean: Any,
        var: Any,
        work: Any,
        train: bool,
    ) -> Run:
        if out is None or train != r.train:
            ins = (data, gamma, beta, moving_mean, moving_var)
            return partial(
                BatchNorm.forward, xp, a, *ins, out=out, mean=mean, var=var, work=work, train=train
            )
        spare, scratch = carve(work, pieces)
        own = (spare[0] if mean is None else mean, spare[1] if var is None else var)
        stats = own if batch else (moving_mean, moving_var)
        arrays = {
            SRC: (_data(shape, r.dtype), data),
            DST: (_data(shape, r.dtype), out),
            SHIFT: (vector, beta),
            MEAN: (vector, stats[0]),
            VARIANCE: (vector, stats[1]),
        }
        if flags & USE_SCALE:
            arrays[SCALE] = (vector, gamma)
        calls: list[Run] = [bind(primitive, arrays, scratch)]
        if not batch and mean is not None:
            calls.append(partial(xp.copyto, mean, moving_mean))
        if var is not None:
            calls += [
                partial(xp.add, stats[1], a.eps, out=var),
                partial(xp.sqrt, var, out=var),
                partial(xp.divide, 1.0, var, out=var),
            ]
        return in_turn(calls)

    name = f"onednn {primitive.implementation}"
    # Statistics alone would be the reference's, whose roundings differ on recomputation.
    return connected(connect, max(scratch_bytes(pieces), reference), name, always=("out",))


def _backward(r: Request) -> ChosenKernel | None:
    case = _case(r)
    if case is None or not r.is_used("d_out") or not r.is_used("d_data"):
        return None
    shape, flags, batch = case
    primitive = _backward_of(shape, r.dtype, r.attrs.eps, flags)
    if primitive is None:
        return None
    vector = memory((shape[1],), _float32)
    pieces: list[Piece] = [((4, shape[1]), _float32), ((primitive.scratch,), _byte)]
    reference = BatchNorm.backward_workspace(r.attrs, r.inputs, r.outputs, r.dtype)

    @grouped
    def connect(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        gamma: Any,
        moments: NormMoments,
        *,
        d_data: Any,
        d_gamma: Any,
        d_beta: Any,
        work: Any,
        train: bool,
    ) -> Run:
        if d_data is None or d_out is None or train != r.train:
            ins = (d_out, data, gamma, moments)
            outs = {"d_data": d_data, "d_gamma": d_gamma, "d_beta": d_beta}
            return partial(BatchNorm.backward.kernel, xp, a, *ins, **outs, work=work, train=train)
        mean, var, moving_mean, moving_var = moments
        (variance, step, no_gamma, no_beta), scratch = carve(work, pieces)
        arrays = {
            SRC: (_data(shape, r.dtype), data),
            DIFF_DST: (_data(shape, r.dtype), d_out),
            DIFF_SRC: (_data(shape, r.dtype), d_data),
            MEAN: (vector, mean),
            VARIANCE: (vector, variance),
            DIFF_SHIFT: (vector, no_beta if d_beta is None else d_beta),
        }
        if flags & USE_SCALE:
            arrays[SCALE] = (vector, gamma)
            arrays[DIFF_SCALE] = (vector, no_gamma if d_gamma is None else d_gamma)
        calls: list[Run] = [
            partial(xp.multiply, var, var, out=variance),  # out of 1 / sqrt(variance + eps)
            partial(xp.divide, 1.0, variance, out=variance),
            partial(xp.subtract, variance, a.eps, out=variance),
            bind(primitive, arrays, scratch),
        ]
        if d_gamma is not None and not flags & USE_SCALE:
            calls.append(partial(d_gamma.fill, 0))
        for moving, now in ((moving_mean, mean), (moving_var, variance)) if batch else ():
            calls += [
                partial(xp.multiply, now, 1.0 - a.momentum, out=step),
                partial(xp.multiply, moving, a.momentum, out=moving),
                partial(xp.add, moving, step, out=moving),
            ]
        return in_turn(calls)

    name = f"onednn {primitive.implementation}"
    return connected(connect, max(scratch_bytes(pieces), reference), name, mutates=True)


SERVES = ("ops.norm.norm",)
ROWS = kernel_rows(LIBRARY, {BatchNorm: _forward, BatchNorm.grad_op: _backward})
