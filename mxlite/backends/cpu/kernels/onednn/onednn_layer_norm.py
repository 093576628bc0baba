"""LayerNorm along the last axis, on oneDNN.

Backward needs the statistics, which are not kept: they are recomputed from the data, some of the rows at a
time, by a forward pass whose output is discarded.
"""

from __future__ import annotations

import ctypes
from functools import partial
from math import prod
from typing import Any

import numpy as np

from .....core.dtype import float32
from .....ops.norm.layer_norm import LayerNorm
from .....ops.scratch import BLOCK, carve, Piece, scratch_bytes
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
    MEAN,
    SCALE,
    SHIFT,
    SRC,
    TRAINING,
    USE_SCALE,
    USE_SHIFT,
    VARIANCE,
)

_byte = np.dtype("uint8")
_FLAGS = ctypes.c_uint(USE_SCALE | USE_SHIFT)


@cached
def _forward_of(rows: int, length: int, eps: float) -> Primitive:
    at, each = memory((rows, length), float32), memory((rows,), float32)
    return Primitive(
        "layer_normalization_forward", ctypes.c_int(TRAINING), at, at, each, ctypes.c_float(eps), _FLAGS
    )


@cached
def _backward_of(rows: int, length: int, eps: float) -> Primitive | None:
    hint = _forward_of(rows, length, eps)
    if hint is None:
        return None
    at, each = memory((rows, length), float32), memory((rows,), float32)
    return Primitive(
        "layer_normalization_backward",
        ctypes.c_int(BACKWARD), at, at, at, each, ctypes.c_float(eps), _FLAGS, hint.descriptor,
        keep=hint,
    )  # fmt: skip


def _case(r: Request) -> tuple[int, int, float] | None:
    """Rows, their length, eps; None unless it is float32 and the last axis."""
    a, shape = r.attrs, r.inputs[0]
    if set(r.dtypes) != {float32} or 0 in shape or prod(shape[a.axis % len(shape) + 1 :]) != 1:
        return None
    length = shape[a.axis % len(shape)]
    return prod(shape) // length, length, a.eps


def _call(p: Primitive, rows: int, length: int, arrays: dict[int, Any], work: Any) -> Run:
    """The call of a primitive, each array in the layout that its argument has."""
    each = {SCALE, SHIFT, DIFF_SCALE, DIFF_SHIFT}
    shapes = {MEAN: (rows,), VARIANCE: (rows,), **dict.fromkeys(each, (length,))}
    at = {k: memory(shapes.get(k, (rows, length)), float32) for k in arrays}
    return bind(p, {k: (at[k], x) for k, x in arrays.items()}, work)


def _forward(r: Request) -> ChosenKernel | None:
    case = _case(r)
    primitive = _forward_of(*case) if case else None
    if case is None or primitive is None:
        return None
    rows, length, eps = case
    pieces: list[Piece] = [((2, rows), float32), ((primitive.scratch,), _byte)]
    reference = LayerNorm.workspace(r.attrs, r.inputs, r.outputs, r.dtype)

    def connect(
        xp: Any, a: Any, data: Any, gamma: Any, beta: Any, *, out: Any, mean: Any, std: Any, work: Any
    ) -> Run:
        if out is None:
            return partial(
                LayerNorm.forward, xp, a, data, gamma, beta, out=out, mean=mean, std=std, work=work
            )
        spare, scratch = carve(work, pieces)
        own_mean = spare[0] if mean is None else mean
        own_var = spare[1] if std is None else std
        arrays = {SRC: data, DST: out, MEAN: own_mean, VARIANCE: own_var, SCALE: gamma, SHIFT: beta}
        calls = [_call(primitive, rows, length, arrays, scratch)]
        if std is not None:
            calls += [partial(np.add, std, eps, out=std), partial(np.sqrt, std, out=std)]
        return in_turn(calls)

    nbytes = max(scratch_bytes(pieces), reference)
    return connected(connect, nbytes, f"onednn {primitive.implementation}", always=("out",))


def _backward(r: Request) -> ChosenKernel | None:
    case = _case(r)
    primitive = _backward_of(*case) if case else None
    if case is None or primitive is None or r.attrs.output_mean_var:
        return None
    rows, length, eps = case
    step = max(1, min(rows, BLOCK // length))
    parts = {m: _forward_of(m, length, eps) for m in {step, rows % step or step}}
    if None in parts.values():
        return None
    scratch_of_parts = max(p.scratch for p in parts.values() if p is not None)
    pieces: list[Piece] = [
        ((2, rows), float32), ((2, length), float32), ((step, length), float32),
        ((max(primitive.scratch, scratch_of_parts),), _byte),
    ]  # fmt: skip

    def connect(
        xp: Any,
        a: Any,
        d_out: Any,
        d_mean: Any,
        d_std: Any,
        data: Any,
        gamma: Any,
        *,
        d_data: Any,
        d_gamma: Any,
        d_beta: Any,
        work: Any,
    ) -> Run:
        if d_data is None:  # only in single calls
            made = dict(d_data=d_data, d_gamma=d_gamma, d_beta=d_beta, work=work)
            return partial(LayerNorm.backward, xp, a, d_out, d_mean, d_std, data, gamma, **made)
        (mean, var), spare, unread, scratch = carve(work, pieces)
        flat = data.reshape(rows, length)
        calls: list[Run] = []
        for i in range(0, rows, step):
            m = min(step, rows - i)
            part = parts[m]
            assert part is not None
            arrays = {
                SRC: flat[i : i + m], DST: unread, MEAN: mean[i : i + m], VARIANCE: var[i : i + m],
                SCALE: gamma, SHIFT: gamma,
            }  # fmt: skip
            calls.append(_call(part, m, length, arrays, scratch))
        results = {
            DIFF_SRC: d_data,
            DIFF_SCALE: spare[0] if d_gamma is None else d_gamma,
            DIFF_SHIFT: spare[1] if d_beta is None else d_beta,
        }
        # oneDNN requires the shift, too, but does not read it.
        given = {SRC: data, DIFF_DST: d_out, MEAN: mean, VARIANCE: var, SCALE: gamma, SHIFT: gamma}
        calls.append(_call(primitive, rows, length, {**given, **results}, scratch))
        return in_turn(calls)

    reference = LayerNorm.backward_workspace(r.attrs, r.inputs, r.outputs, r.dtype)
    nbytes = max(scratch_bytes(pieces), reference)
    return connected(connect, nbytes, f"onednn {primitive.implementation}")


SERVES = ("ops.norm.layer_norm",)
ROWS = kernel_rows(LIBRARY, {LayerNorm: _forward, LayerNorm.grad_op: _backward})
