"""Pooling on oneDNN: means, and maxima, of arrays in either layout.

oneDNN's maximum ignores nan, and gives the lowest finite number for a window of -inf. If the data has
such numbers the reference kernel runs after it: the test for them is one fast pass over the data.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .....core.dtype import float32
from .....graph.ir import Shape
from .....graph.opdef import DType
from .....ops.nn.pool import Pooling
from .....ops.nn.pool_channels_last import PoolingChannelsLast
from .....ops.nn.pool_kernels import counts, index_type, Windows, windows
from ....base import ChosenKernel, connected, Request
from ...kernel_row import kernel_rows, LIBRARY
from ...onednn import bind, cached, in_turn, Memory, memory, Primitive, Run
from ...onednn.constants import (
    AVERAGE_EXCLUDING_PADDING,
    AVERAGE_INCLUDING_PADDING,
    DIFF_DST,
    DIFF_SRC,
    DST,
    INFERENCE,
    MAX_POOL,
    SRC,
    TRAINING,
    WORKSPACE,
)

_LOWEST = np.finfo(np.float32).min


@cached
def _forward(alg: int, train: bool, w: Windows, data: Shape, dtype: DType, last: bool) -> Primitive:
    kind = ctypes.c_int(TRAINING if train else INFERENCE)
    source, target = _memories(w, data, dtype, last)
    return Primitive("pooling_forward", kind, ctypes.c_int(alg), source, target, *_window(w))


@cached
def _backward(alg: int, w: Windows, data: Shape, dtype: DType, last: bool) -> Primitive | None:
    hint = _forward(alg, True, w, data, dtype, last)
    if hint is None:
        return None
    source, target = _memories(w, data, dtype, last)
    return Primitive(
        "pooling_backward", ctypes.c_int(alg), source, target, *_window(w), hint.descriptor, keep=hint
    )


def _memories(w: Windows, data: Shape, dtype: DType, last: bool) -> tuple[Memory, Memory]:
    """Memory descriptors of data and output in oneDNN's order of axes: `data` is (N, C, *S)."""
    order = (0, *range(2, len(data)), 1) if last else None
    return memory(data, dtype, order), memory((*data[:2], *w.out), dtype, order)


def _window(w: Windows) -> tuple[Any, ...]:
    """Strides, sizes, dilations, padding at either end."""
    axes = ctypes.c_int64 * len(w.size)
    right = ((o - 1) * s + k - n - p for o, s, k, n, p in zip(w.out, w.stride, w.kernel, w.size, w.pad))
    return axes(*w.stride), axes(*w.kernel), axes(*(0 for _ in w.size)), axes(*w.pad), axes(*right)


def _algorithm(a: Any, w: Windows) -> int | None:
    """oneDNN's algorithm for the attributes `a`; None if it has none."""
    starts = [[i * s - p for i in range(o)] for s, p, o in zip(w.stride, w.pad, w.out)]
    if any(i + k <= 0 or i >= n for at, k, n in zip(starts, w.kernel, w.size) for i in at):
        return None  # a window may contain only padding
    if a.pool_type == "max":
        return MAX_POOL
    if a.pool_type != "avg":
        return None
    if a.count_include_pad is False:
        return AVERAGE_EXCLUDING_PADDING
    whole = all(set(each) == {k} for each, k in zip(counts(a, w), w.kernel))
    return AVERAGE_INCLUDING_PADDING if whole else None


def _row(r: Request) -> ChosenKernel | None:
    if r.dtype not in (float32, np.dtype("bfloat16")) or 0 in r.inputs[0] or 0 in r.outputs[0]:
        return None
    a, last = r.attrs, (r.op.forward_op or r.op) is PoolingChannelsLast
    shape = r.inputs[0]
    w = windows(a, shape, last)
    alg = _algorithm(a, w)
    if alg is None:
        return None
    data = (shape[0], shape[-1], *shape[1:-1]) if last else shape
    if r.dtype != float32 and not _is_right_in_bfloat16(r, a, w):
        return None
    places = memory((*data[:2], *w.out), index_type(a), (0, *range(2, len(data)), 1) if last else None)
    make = _gradient if r.op.forward_op else _pooled
    return make(r, alg, w, data, last, places)


def _is_right_in_bfloat16(r: Request, a: Any, w: Windows) -> bool:
    """False where oneDNN is wrong: 32-bit indices, and sums of gradients over overlapping windows."""
    if a.pool_type == "max" and index_type(a).itemsize > 1:
        return False
    return r.op.forward_op is None or all(k <= s for k, s in zip(w.kernel, w.stride))


def _gradient(
    r: Request, alg: int, w: Windows, data: Shape, last: bool, places: Memory
) -> ChosenKernel | None:
    primitive = _backward(alg, w, data, r.dtype, last)
    if primitive is None or (alg == MAX_POOL and primitive.wants(WORKSPACE) != places):
        return None
    source, target = _memories(w, data, r.dtype, last)

    def connect(xp: Any, a: Any, d_out: Any, index: Any, *, d_data: Any, work: Any) -> Run:
        if d_data is None:
            return in_turn(())
        arrays = {DIFF_DST: (target, d_out), DIFF_SRC: (source, d_data)}
        return bind(primitive, arrays if index is None else {**arrays, WORKSPACE: (places, index)}, work)

    return connected(connect, primitive.scratch, f"onednn {primitive.implementation}")


def _pooled(r: Request, alg: int, w: Windows, data: Shape, last: bool, places: Memory) -> ChosenKernel | None:
    numbered = alg == MAX_POOL and r.is_used("index")
    primitive = _forward(alg, numbered, w, data, r.dtype, last)
    if primitive is None or (numbered and primitive.wants(WORKSPACE) != places):
        return None
    source, target = _memories(w, data, r.dtype, last)
    op = r.op
    own = op.workspace(r.attrs, r.inputs, r.outputs, r.dtype) if alg == MAX_POOL else 0

    def connect(xp: Any, a: Any, x: Any, *, out: Any, index: Any, work: Any) -> Run:
        if out is None and index is None:
            return in_turn(())
        if (numbered and index is None) or out is None:  # requested in a call, but not when it was planned
            return lambda: op.forward(xp, a, x, out=out, index=index, work=work)
        arrays = {SRC: (source, x), DST: (target, out)}
        if not numbered:
            fast = bind(primitive, arrays, work)
        else:
            fast = bind(primitive, {**arrays, WORKSPACE: (places, index)}, work)
        if alg != MAX_POOL:
            return fast
        return _checked(fast, x, out, lambda: op.forward(xp, a, x, out=out, index=index, work=work))

    def like(xp: Any, a: Any, data: Any, *, out: Any, index: Any, work: Any) -> None: ...

    scratch = max(primitive.scratch, own)
    return connected(connect, scratch, f"onednn {primitive.implementation}", like=like)


def _checked(fast: Run, data: Any, out: Any, right: Run) -> Run:
    """`fast`, followed by `right` if it was wrong: some number is nan, or a maximum is -inf."""
    flat, made = data.reshape(-1), out.reshape(-1)
    if data.dtype == float32:

        def is_wrong() -> bool:
            return bool(np.isnan(np.maximum.reduce(flat)) or np.minimum.reduce(made) <= _LOWEST)
    else:
        # bfloat16 numbers as bits: those of nan are greater than those of inf, with either sign.
        signed, bits = flat.view(np.int16), flat.view(np.uint16)
        lowest = made.view(np.uint16)

        def is_wrong() -> bool:
            return bool(
                np.maximum.reduce(signed) > 0x7F80
                or np.maximum.reduce(bits) > 0xFF80
                or np.maximum.reduce(lowest) >= 0xFF7F
            )

    def run() -> None:
        fast()
        if is_wrong():
            right()

    return run


SERVES = ("ops.nn.pool", "ops.nn.pool_channels_last")
ROWS = kernel_rows(
    LIBRARY,
    dict.fromkeys((Pooling, PoolingChannelsLast, Pooling.grad_op, PoolingChannelsLast.grad_op), _row),
)
