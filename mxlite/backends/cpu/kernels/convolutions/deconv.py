"""Transposed convolution, channels last: a convolution's data gradient, and the reverse."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from .....core.dtype import float32
from .....graph.grouped import grouped
from .....graph.ir import Shape
from .....ops.layout import first
from .....ops.nn.conv_kernels import LinearGradients
from .....ops.nn.deconv import geometry_of
from .....ops.nn.deconv_channels_last import DeconvolutionChannelsLast
from .....ops.scratch import carve, Piece, scratch_bytes
from .... import base
from ... import convolution
from ...kernel_row import BOTH, kernel_rows
from ...onednn import bind, cached, in_turn, memory, Primitive, Run
from ...onednn.constants import ADD, DST, SRC, SRC_1

_ADD = ctypes.c_int(ADD)
_STORED = (float32, np.dtype("float16"), np.dtype(ml_dtypes.bfloat16))


def forward(r: base.Request) -> base.ChosenKernel | None:
    """out = data convolved with weight, transposed, + bias."""
    if not _is_stored(r):
        return None
    way = convolution.by_data(geometry_of(r.attrs, first(r.inputs[0]), r.dtypes[0]), r.dtypes[0])
    if way is None:
        return None

    def connect(xp: Any, a: Any, data: Any, weight: Any, bias: Any, *, out: Any, work: Any) -> Run:
        if out is None:
            return in_turn(())
        main = way.connect(data, weight, out, work)
        return main if bias is None else in_turn([main, bias_added(out, bias)])

    return base.connected(connect, way.nbytes, way.name)


def backward(r: base.Request) -> base.ChosenKernel | None:
    """The gradients in data, weight and bias that are requested."""
    if not _is_stored(r):
        return None
    g, dtype = geometry_of(r.attrs, first(r.inputs[0]), r.dtypes[0]), r.dtypes[0]
    data_way = convolution.forward(g, dtype, False, False, False, True) if r.is_used("d_data") else None
    weight_way = convolution.by_weight(g, dtype, False) if r.is_used("d_weight") else None
    if (r.is_used("d_data") and data_way is None) or (r.is_used("d_weight") and weight_way is None):
        return None
    ways = [w for w in (weight_way, data_way) if w is not None]
    bias = r.is_used("d_bias")
    if not ways:
        return None
    sums = _sums(r.outputs[0]) if bias else []
    nbytes = max(scratch_bytes(sums), *(w.nbytes for w in ways))

    @grouped
    def connect(
        xp: Any, a: Any, d_out: Any, data: Any, weight: Any, *, made: LinearGradients, work: Any
    ) -> Run:
        d_data, d_weight, d_bias = made
        calls: list[Run] = []
        if weight_way is not None and d_weight is not None:
            calls.append(weight_way.connect(data, d_out, d_weight, None, work))
        if data_way is not None and d_data is not None:
            calls.append(data_way.connect(d_out, weight, None, None, d_data, work))
        if d_bias is not None:
            of_samples, total = carve(work, sums)
            rows = d_out.reshape(d_out.shape[0], -1, d_out.shape[-1])
            calls.append(partial(np.add.reduce, rows, axis=1, dtype=float32, out=of_samples))
            calls.append(partial(np.add.reduce, of_samples, axis=0, out=total))
            calls.append(partial(np.copyto, d_bias, total, casting="unsafe"))
        return in_turn(calls)

    return base.connected(connect, nbytes, ", ".join(dict.fromkeys(w.name for w in ways)))


def bias_added(out: Any, bias: Any) -> Run:
    """The call that adds a number to each channel of `out`, channels last."""
    channels = len(bias)
    rows = out.size // channels
    add = _add(rows, channels) if out.dtype == float32 else None
    if add is None:
        return partial(np.add, out, bias, out=out)
    whole, one = memory((rows, channels), float32), memory((1, channels), float32)
    return bind(add, {SRC: (whole, out), SRC_1: (one, bias), DST: (whole, out)})


@cached
def _add(rows: int, channels: int) -> Primitive | None:
    whole = memory((rows, channels), float32)
    made = Primitive("binary", _ADD, whole, memory((1, channels), float32), whole)
    return None if made.scratch else made


def _sums(out: Shape) -> list[Piece]:
    """Scratch for sums of each channel: for each sample, and for all."""
    return [((out[0], out[-1]), float32), ((out[-1],), float32)]


def _is_stored(r: base.Request) -> bool:
    """True if arrays are of a float type that there are kernels for, and not empty."""
    if len(set(r.dtypes)) != 1 or r.dtypes[0] not in _STORED:
        return False
    return 0 not in r.inputs[0] and 0 not in r.outputs[0] and 0 not in r.inputs[1]


SERVES = ("ops.nn.deconv_channels_last",)
ROWS = kernel_rows(BOTH, {DeconvolutionChannelsLast: forward, DeconvolutionChannelsLast.grad_op: backward})
