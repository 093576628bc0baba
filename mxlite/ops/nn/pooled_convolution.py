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

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Literal

from ...core.errors import OpAttributeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes, Types
from ..scratch import accumulator, carve, Piece, scratch_bytes
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


def bands(a: PooledAttrs, count: int) -> Iterator[slice]:
    """The samples of each tile of `count`."""
    return (slice(i, min(i + a.samples, count)) for i in range(0, count, a.samples))


def made_shape(a: PooledAttrs, data: Shape) -> Shape:
    """The shape of the convolution's result for a tile of `data`: (samples, *S, F)."""
    band = (min(a.samples, data[0]), *data[1:])
    return ConvolutionChannelsLast.infer_shape(a, band, None, None)[1][0]


class PooledConvolution(Op):
    """``out = max pooling of Convolution(data)``, channels last.

    data: (N, *S, C);  weight: (F, C/G, *K);  bias: (F,)  ->  out: (N, *OS, F).

    As in Pooling there is a hidden output `index`, the number of each maximum in its window; backward reads
    it, data and weight. The gradients in weight and bias are summed tile by tile.
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
        (convolved,) = ConvolutionChannelsLast.infer_shape(a, *inputs)[1]
        own = ConvolutionChannelsLast.flops(a, inputs, (convolved,))
        return own + PoolingChannelsLast.flops(pooling(a), (convolved,), outputs)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        def ask(ins: Shapes, made: Shape) -> int:
            return max(
                ConvolutionChannelsLast.workspace(a, ins, (made,), dtype),
                PoolingChannelsLast.workspace(pooling(a), (made,), outputs, dtype),
            )

        return scratch_bytes([(made_shape(a, inputs[0]), dtype)]) + _of_any_band(a, inputs, ask)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        def ask(ins: Shapes, made: Shape) -> int:
            return max(
                ConvolutionChannelsLast.backward_workspace(a, ins, (made,), dtype),
                PoolingChannelsLast.backward_workspace(pooling(a), (made,), outputs, dtype),
            )

        return scratch_bytes(_backward_pieces(a, inputs, dtype)) + _of_any_band(a, inputs, ask)

    @staticmethod
    def forward(
        xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, index: Any, work: Any
    ) -> None:
        if out is None and index is None:
            return
        pieces = [(made_shape(a, data.shape), data.dtype)]
        (band,) = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        for part in bands(a, len(data)):
            tile = band[: part.stop - part.start]
            ConvolutionChannelsLast.forward(xp, a, data[part], weight, bias, out=tile, work=rest)
            places = [None if x is None else x[part] for x in (out, index)]
            PoolingChannelsLast.forward(xp, pooling(a), tile, out=places[0], index=places[1], work=rest)

    @staticmethod
    def backward(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        weight: Any,
        index: Any,
        *,
        d_data: Any,
        d_weight: Any,
        d_bias: Any,
        work: Any,
        shapes: Any,
    ) -> None:
        ins = shapes[0]
        pieces = _backward_pieces(a, ins, d_out.dtype)
        band, *sums = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        totals, terms = sums[::2], sums[1::2]
        for total in totals:
            total.fill(0)
        for part in bands(a, ins[0][0]):
            tile = band[: part.stop - part.start]
            PoolingChannelsLast.backward(
                xp, pooling(a), d_out[part], None, None, index[part], d_data=tile, work=rest
            )
            ConvolutionChannelsLast.backward(
                xp,
                a,
                tile,
                None if data is None else data[part],
                weight,
                d_data=None if d_data is None else d_data[part],
                d_weight=None if d_weight is None else terms[0],
                d_bias=None if d_bias is None else terms[1],
                work=rest,
                shapes=(((len(tile), *ins[0][1:]), *ins[1:]), (tile.shape,)),
            )
            for total, term, wanted in zip(totals, terms, (d_weight, d_bias)):
                if wanted is not None:
                    xp.add(total, term, out=total)
        for total, wanted in zip(totals, (d_weight, d_bias)):
            if wanted is not None:
                xp.copyto(wanted, total, casting="unsafe")


def _of_any_band(a: PooledAttrs, inputs: Shapes, ask: Callable[[Shapes, Shape], int]) -> int:
    """The most scratch of a tile; the last, which is smaller, may take more than others.

    `ask(inputs, result of the convolution)` returns the scratch of one.
    """
    data, *rest = inputs
    counts = {part.stop - part.start for part in bands(a, data[0])} or {0}
    return max(ask(((n, *data[1:]), *rest), made_shape(a, (n, *data[1:]))) for n in counts)


def _backward_pieces(a: PooledAttrs, inputs: Shapes, dtype: DType) -> list[Piece]:
    """The gradient in the convolution's result for a tile; for weight and bias the sum and a tile's part."""
    wide = accumulator(dtype)
    vectors = inputs[1], (0 if a.no_bias else a.num_filter,)
    return [(made_shape(a, inputs[0]), dtype), *((s, wide) for s in vectors for _ in range(2))]
