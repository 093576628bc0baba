"""Convolution with its channels last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from .....core.dtype import float32
from .....graph.grouped import grouped
from .....graph.opdef import DType
from .....ops.layout import first
from .....ops.nn.conv import geometry
from .....ops.nn.conv_channels_last import ConvolutionChannelsLast, ConvolutionEpilogue
from .....ops.nn.conv_kernels import Geometry, LinearGradients
from .....ops.scratch import carve, Piece, scratch_bytes
from .... import base
from ....composed_space import ComposedSpace
from ....elementwise.epilogue import RECTIFIER
from ... import convolution
from ...kernel_row import BOTH, kernel_rows
from ...onednn import in_turn, Run

_byte = np.dtype("uint8")
_STORED = (float32, np.dtype("float16"), np.dtype(ml_dtypes.bfloat16))


def forward(r: base.Request) -> base.ChosenKernel | None:
    """The forward pass, with or without an epilogue."""
    ways = _ways(r)
    if ways is None:
        return None
    part, needs = convolution.ConvolutionPart(ways), r.op.signature.needs

    def kernel(knobs: Sequence[base.Knobs]) -> base.ChosenKernel | None:
        way = part.way(*knobs)
        if way is None:
            return None

        def connect(xp: Any, a: Any, *given: Any, out: Any, work: Any) -> Run:
            have = dict(zip(needs, given))
            arrays = (have["data"], have["weight"], have["bias"], have.get("addend"), out)
            run: Run = way.connect(*arrays, work, have.get("factor"))
            return run

        bits = convolution.bits_of(way)
        return base.connected(connect, way.nbytes, way.name, like=r.op.forward, bits=bits)

    return _with_space([part], kernel)


def way_of(r: base.Request) -> Any:
    """Implementation of the forward pass, see `convolution`; None if there is none."""
    ways = _ways(r)
    return None if ways is None else ways.rule()


def _ways(r: base.Request) -> convolution.ForwardWays | None:
    found = _geometry(r)
    applied = getattr(r.attrs, "epilogue", None)
    # oneDNN has more functions, but generated code behind it is as fast: see docs/kernels.md.
    if found is None or applied not in (None, RECTIFIER):
        return None
    add, scale = (getattr(r.attrs, n, False) for n in ("add", "scale"))
    return convolution.ForwardWays(*found, not r.attrs.no_bias, add, applied is not None, r.train, scale)


def _with_space(
    parts: Sequence[convolution.ConvolutionPart],
    kernel: Callable[[Sequence[base.Knobs]], base.ChosenKernel | None],
) -> base.ChosenKernel | None:
    """The kernel by rule, with the space of all."""
    found = kernel([part.default for part in parts])
    return None if found is None else replace(found, space=ComposedSpace(parts, kernel))


def backward(r: base.Request) -> base.ChosenKernel | None:
    """The gradients in data, weight and bias that are requested."""
    found = _geometry(r)
    if found is None:
        return None
    g, weight = found
    wants_data, wants_weight = r.is_used("d_data"), r.is_used("d_weight")
    bias = r.is_used("d_bias") and not r.attrs.no_bias
    made, adds = weight, False
    if r.tile.is_special:  # sums over tiles are float32
        made, adds = r.made("d_weight" if wants_weight else "d_bias"), bool(r.tile.adds)
        if r.tile.strides or wants_data or made != float32 or r.tile.keeps != 1:
            return None
    by_data = [convolution.DataWays(g, weight)] if wants_data else []
    by_weight = [convolution.WeightWays(g, made, bias, adds)] if wants_weight or bias else []
    parts = [*map(convolution.ConvolutionPart, by_weight), *map(convolution.ConvolutionPart, by_data)]

    def kernel(knobs: Sequence[base.Knobs]) -> base.ChosenKernel | None:
        ways = [part.way(some) for part, some in zip(parts, knobs)]
        if None in ways:
            return None
        return _backward(r, ways[0] if by_weight else None, ways[-1] if by_data else None)

    return _with_space(parts, kernel)


def _backward(r: base.Request, weight_way: Any, data_way: Any) -> base.ChosenKernel:
    """The kernel of a gradient by these algorithms."""
    bias, wants_weight = r.is_used("d_bias") and not r.attrs.no_bias, r.is_used("d_weight")
    made = r.made("d_weight" if wants_weight else "d_bias") if r.tile.is_special else r.dtypes[1]
    ways = [w for w in (weight_way, data_way) if w is not None]
    # The weight gradient needs a buffer even if only the bias gradient is read.
    spare = r.inputs[1] if bias and not wants_weight else (0,)
    pieces: list[Piece] = [(spare, made), ((max((w.nbytes for w in ways), default=0),), _byte)]

    @grouped
    def connect(
        xp: Any, a: Any, d_out: Any, data: Any, weight: Any, *, made: LinearGradients, work: Any
    ) -> Run:
        d_data, d_weight, d_bias = made
        unread, scratch = carve(work, pieces)
        calls: list[Run] = []
        if weight_way is not None and (d_weight is not None or d_bias is not None):
            calls.append(
                weight_way.connect(d_out, data, unread if d_weight is None else d_weight, d_bias, scratch)
            )
        if data_way is not None and d_data is not None:
            calls.append(data_way.connect(d_out, weight, d_data, scratch))
        return in_turn(calls)

    name = ", ".join(dict.fromkeys(w.name for w in ways))
    return base.connected(connect, scratch_bytes(pieces), name, bits=convolution.bits_of(*ways))


def _geometry(r: base.Request) -> tuple[Geometry, DType] | None:
    """The convolution and the type of its weight, which may be wider, if there may be a kernel: for floats,
    and not empty.
    """
    weight = r.dtypes[1]
    if weight not in (r.dtypes[0], float32) or r.dtypes[0] not in _STORED or {*r.dtypes[2:]} - {weight}:
        return None
    if 0 in r.inputs[0] or 0 in r.outputs[0] or 0 in r.inputs[1]:
        return None
    return geometry(r.attrs, first(r.inputs[0]), r.dtypes[0]), weight


SERVES = ("ops.nn.conv_channels_last",)
ROWS = {
    **kernel_rows(BOTH, {ConvolutionChannelsLast: forward, ConvolutionEpilogue: forward}),
    **kernel_rows(BOTH, {ConvolutionChannelsLast.grad_op: backward}, tiles=True),
}
