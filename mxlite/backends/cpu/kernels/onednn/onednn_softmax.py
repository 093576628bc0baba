"""Softmax and its logarithm along the last axis, on oneDNN: the fallback without a compiler.

oneDNN gives 0 for numbers in a row with a nan, or with an infinite one, where all of them should be nan: data
is checked first, and left to the reference kernel if it has such numbers.
"""

from __future__ import annotations

import ctypes
from math import inf, prod
from typing import Any

import numpy as np

from .....core.dtype import float32
from .....ops.loss.softmax import log_softmax, softmax, SoftmaxActivation
from ....base import ChosenKernel, connected, Request
from ...kernel_row import kernel_rows, LIBRARY
from ...onednn import bind, cached, in_turn, memory, Primitive, Run
from ...onednn.constants import DIFF_DST, DIFF_SRC, DST, LOG_SOFTMAX, SOFTMAX, SRC, TRAINING


@cached
def _forward_of(alg: int, rows: int, length: int) -> Primitive:
    at = memory((rows, length), float32)
    return Primitive("softmax_forward", ctypes.c_int(TRAINING), ctypes.c_int(alg), at, at, ctypes.c_int(1))


@cached
def _backward_of(alg: int, rows: int, length: int) -> Primitive | None:
    hint = _forward_of(alg, rows, length)
    if hint is None:
        return None
    at = memory((rows, length), float32)
    return Primitive(
        "softmax_backward", ctypes.c_int(alg), at, at, at, ctypes.c_int(1), hint.descriptor, keep=hint
    )


def _case(r: Request) -> tuple[int, int, int] | None:
    """The algorithm, rows and their length; None if oneDNN does not compute it."""
    op, a, shape = r.op.forward_op or r.op, r.attrs, r.inputs[0]
    if set(r.dtypes) != {float32} or 0 in shape:
        return None
    if op is SoftmaxActivation:
        if a.mode == "channel" and prod(shape[2:]) != 1:
            return None
        length = shape[1] if a.mode == "channel" else shape[-1]
    else:
        axis = a.axis % len(shape)
        if prod(shape[axis + 1 :]) != 1 or a.use_length or a.dtype not in (None, "float32"):
            return None
        if a.temperature not in (None, 1.0):
            return None
        length = shape[axis]
    return (LOG_SOFTMAX if op is log_softmax else SOFTMAX), prod(shape) // length, length


def _forward(r: Request) -> ChosenKernel | None:
    case = _case(r)
    primitive = _forward_of(*case) if case else None
    if case is None or primitive is None:
        return None
    at, op = memory(case[1:], float32), r.op

    def connect(xp: Any, a: Any, data: Any, length: Any = None, *, out: Any, work: Any) -> Run:
        if out is None:
            return in_turn(())
        flat = data.reshape(-1)
        fast = bind(primitive, {SRC: (at, data), DST: (at, out)}, work)

        def run() -> None:
            if np.maximum.reduce(flat) < inf:
                fast()
            else:
                op.forward(xp, a, data, out=out, work=work)

        return run

    def like(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None: ...

    nbytes = max(primitive.scratch, op.workspace(r.attrs, r.inputs, r.outputs, r.dtype))
    return connected(connect, nbytes, f"onednn {primitive.implementation}", like=like)


def _backward(r: Request) -> ChosenKernel | None:
    case = _case(r)
    primitive = _backward_of(*case) if case else None
    if case is None or primitive is None:
        return None
    at = memory(case[1:], float32)

    def connect(xp: Any, a: Any, d_out: Any, out: Any, *, d_data: Any, work: Any) -> Run:
        if d_data is None:
            return in_turn(())
        return bind(primitive, {DST: (at, out), DIFF_DST: (at, d_out), DIFF_SRC: (at, d_data)}, work)

    return connected(connect, primitive.scratch, f"onednn {primitive.implementation}")


SERVES = ("ops.loss.softmax",)
ROWS = kernel_rows(
    LIBRARY,
    {
        softmax: _forward,
        softmax.grad_op: _backward,
        log_softmax: _forward,
        log_softmax.grad_op: _backward,
        SoftmaxActivation: _forward,
        SoftmaxActivation.grad_op: _backward,
    },
)
