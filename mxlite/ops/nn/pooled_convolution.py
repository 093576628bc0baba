"""Convolution and the max pooling after it, tiled over samples.

The largest arrays of a network such as VGG are the results of its first convolutions, and their only reader
is the pooling after them, which keeps a quarter of the numbers. As one operator neither they nor their
gradient ever exist as a whole:

    for samples [a, b)    made = convolution of data[a:b]             a tile, in the same bytes each time
                          out[a:b], index[a:b] = maxima of made

    for samples [a, b)    made = d_out[a:b], each at the place in its window that index names, 0 elsewhere
                          d_weight += from made and data[a:b]         d_bias += sum of made
                          d_data[a:b] = from made and weight

No product is computed twice. The operator enters when a step is simplified
(`backends/passes/fusion/pooled_convolutions.py`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from ...core.errors import OpAttributeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes, Types
from ..scratch import carve, scratch_bytes
from .conv_channels_last import ChannelsLastAttrs, ConvolutionChannelsLast
from .pool_channels_last import ChannelsLastPoolingAttrs, PoolingChannelsLast


@record
class PooledAttrs(ChannelsLastAttrs):
    """Parameters of the convolution; `pool_kernel` to `pooling_convention` are the pooling's; `samples`: the
    size of a tile, except the last.
    """

    pool_kernel: tuple[int, ...] = ()
    pool_stride: tuple[int, ...] = ()
    pool_pad: tuple[int, ...] = ()
    pooling_convention: Literal["valid", "full", "same"] = "valid"
    samples: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        pooling(self)
        if self.samples < 1:
            raise OpAttributeError(f"samples must be at least 1, got {self.samples}.")


@lru_cache(maxsize=4096)
def _pooling(
    kernel: Shape, stride: Shape, pad: Shape, convention: Literal["valid", "full", "same"]
) -> ChannelsLastPoolingAttrs:
    return ChannelsLastPoolingAttrs(kernel=kernel, stride=stride, pad=pad, pooling_convention=convention)


def pooling(a: PooledAttrs) -> ChannelsLastPoolingAttrs:
    """The parameters of the pooling alone."""
    return _pooling(a.pool_kernel, a.pool_stride, a.pool_pad, a.pooling_convention)


def made_shape(a: PooledAttrs, data: Shape) -> Shape:
    """The shape of the convolution's result for a tile of `data`: (samples, *S, F)."""
    band = (min(a.samples, data[0]), *data[1:])
    return ConvolutionChannelsLast.infer_shape(a, band, None, None)[1][0]


class PooledConvolution(Op):
    """``out = max pooling of Convolution(data)``, channels last.

    data: (N, *S, C);  weight: (F, C/G, *K);  bias: (F,)  ->  out: (N, *OS, F).

    As in Pooling there is a hidden output `index`, the number of each maximum in its window; backward reads
    it, data and weight. The reference kernel has no tiles: the operator exists for the backends' kernels.
    """

    op_name = "_pooled_convolution"
    inputs = ("data", "weight", "bias")
    outputs = ("out", "index")
    hidden = 1
    inferred = ("weight", "bias")
    accepts = "float"
    Attrs = PooledAttrs

    input_names = ConvolutionChannelsLast.input_names

    @classmethod
    def num_visible_outputs(cls, a: Any) -> int:
        return 1

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        ins, (convolved,) = ConvolutionChannelsLast.infer_shape(a, *shapes)
        return ins, PoolingChannelsLast.infer_shape(pooling(a), convolved)[1]

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        ins, outs = super().infer_type(a, *dtypes)
        return ins, PoolingChannelsLast.infer_type(pooling(a), outs[0])[1]

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        convolved = _made(a, inputs)
        own = ConvolutionChannelsLast.flops(a, inputs, (convolved,))
        return own + PoolingChannelsLast.flops(pooling(a), (convolved,), outputs)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        made = _made(a, inputs)
        convolution = ConvolutionChannelsLast.workspace(a, inputs, (made,), dtype)
        pool = PoolingChannelsLast.workspace(pooling(a), (made,), outputs, dtype)
        return scratch_bytes([(made, dtype)]) + max(convolution, pool)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        made = _made(a, inputs)
        convolution = ConvolutionChannelsLast.backward_workspace(a, inputs, (made,), dtype)
        pool = PoolingChannelsLast.backward_workspace(pooling(a), (made,), outputs, dtype)
        return scratch_bytes([(made, dtype)]) + max(convolution, pool)

    @staticmethod
    def forward(
        xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, index: Any, work: Any
    ) -> None:
        if out is None and index is None:
            return
        pieces = [(_made(a, (data.shape, weight.shape)), data.dtype)]
        (made,) = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        ConvolutionChannelsLast.forward(xp, a, data, weight, bias, out=made, work=rest)
        PoolingChannelsLast.forward(xp, pooling(a), made, out=out, index=index, work=rest)

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, data: Any, weight: Any, index: Any, *,
        d_data: Any, d_weight: Any, d_bias: Any, work: Any, shapes: Any,
    ) -> None:  # fmt: skip
        pieces = [(_made(a, shapes[0]), d_out.dtype)]
        (d_made,) = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        PoolingChannelsLast.backward(xp, pooling(a), d_out, None, None, index, d_data=d_made, work=rest)
        outs = {"d_data": d_data, "d_weight": d_weight, "d_bias": d_bias}
        own = (shapes[0], (d_made.shape,))
        ConvolutionChannelsLast.backward(xp, a, d_made, data, weight, **outs, work=rest, shapes=own)


def _made(a: PooledAttrs, inputs: Shapes) -> Shape:
    """The shape of the convolution's result."""
    return ConvolutionChannelsLast.infer_shape(a, *inputs)[1][0]
