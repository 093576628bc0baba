"""Pooling of channels-last arrays."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...core.record import record
from ...graph.opdef import DType, Op, require_kind, Shapes, Types
from ..layout import FixedLayout
from ..scratch import carve, in_accumulator, scratch_bytes
from .pool import Pooling
from .pool_gradients import ChosenPooling
from .pool_kernels import index_type


@record
class ChannelsLastPoolingAttrs(FixedLayout, Pooling.Attrs):
    """Parameters of Pooling, without a layout."""


class PoolingChannelsLast(Pooling):
    """One number for each window of a channels-last array; see Pooling.

    data: (N, *S, C)  ->  out: (N, *OS, C).

    As in Pooling, max has a hidden output `index` (N, *OS, C), the number of each maximum in its window
    counted row by row, or the window's size if it has none (all of it is padding); backward reads
    nothing else.
    """

    op_name = "_pooling_channels_last"
    aliases = ()  # type: ignore[assignment]
    Attrs = ChannelsLastPoolingAttrs
    last = True

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        # That of Pooling, between arrays with their channels after the batch. Only lp reads the data.
        data = ins["data"] if a.pool_type == "lp" else w.zeros_like(ins["data"])
        plain = {n: w._channels_first(e) for n, e in outs.items() if n not in Pooling.unneeded(a)}
        head = {"out": w._channels_first(heads["out"])}
        attrs = Pooling.Attrs(**asdict(a))
        gradients = Pooling.derivative(w, attrs, {"data": w._channels_first(data)}, plain, head)
        return {"data": w._channels_last(gradients["data"])}


class ExtremePoolingChannelsLast(Op):
    """The largest element of each window of a channels-last array, or the smallest, in channels with a gamma
    below 0: a norm with that gamma turns either into the largest.

    data: (N, *S, C);  gamma: (C,)  ->  out, index: (N, *OS, C); index as in `_pooling_channels_last`.
    There is no gradient.
    """

    op_name = "_extreme_pooling_channels_last"
    inputs = ("data", "gamma")
    outputs = ("out", "index")
    hidden = 1
    accepts = "float"
    Attrs = ChannelsLastPoolingAttrs

    flops = PoolingChannelsLast.flops

    @staticmethod
    def infer_shape(a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        return (data, data[-1:]), PoolingChannelsLast.infer_shape(a, data)[1]

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        data = dtypes[0]
        require_kind(cls, data)
        return (data, in_accumulator(data, cls.inputs[1:], dtypes[1:])), (data, index_type(a))

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        own = scratch_bytes([(inputs[0], dtype), (inputs[1], dtype)])
        return own + PoolingChannelsLast.workspace(a, inputs, outputs, dtype)

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, gamma: Any, *, out: Any, index: Any, work: Any) -> None:
        pieces = [(data.shape, data.dtype), (gamma.shape, data.dtype)]
        turned, sign = carve(work, pieces)
        sign.fill(1)
        sign[gamma < 0] = -1
        xp.multiply(data, sign, out=turned)
        rest = work[scratch_bytes(pieces) :]
        PoolingChannelsLast.forward(xp, a, turned, out=out, index=index, work=rest)
        if out is not None:
            xp.multiply(out, sign, out=out)


class ChosenPoolingChannelsLast(ChosenPooling):
    """The element that `index` selects in each window of a channels-last array; 0 if it selects none. With
    the `index` of max pooling that is its result; with other data, the elements at the same positions.

    data: (N, *S, C);  index: (N, *OS, C)  ->  out: (N, *OS, C). There is no gradient.
    """

    op_name = "_chosen_pooling_channels_last"
    cheap = True
    Attrs = ChannelsLastPoolingAttrs
    of = PoolingChannelsLast
    flops = PoolingChannelsLast.flops
    backward = derivative = None  # type: ignore[assignment]
