"""The weight gradient of a convolution before a norm and max pooling, without the convolution's result.

    data -> convolution -> x -> norm -> rectifier -> max pooling     the first layers of a network for images

x is the largest array of such a network. Let d be the gradient that comes through pooling and rectifier,
which is 0 nearly everywhere, and X, Y the sums of d and of d * normalized x over its M positions. The
gradient in x is

    d_x = factor * (d - X / M - (x - mean) / std * Y / M),

which is linear in x, and so is the gradient in the weight. Each of its numbers is a sum of d_x times data,
or of d_x times patches, a patch being the inputs of one output of the convolution:

    d_weight = factor * (sum of d * patch - X / M * sum of patches - Y / (M std) * sum of (x - mean) * patch)

The last two sums can be computed as soon as there is a mean. d and Y need only those elements of x that
pooling selected. So x is dead when forward has passed the pooling, and backward has no array of its size. No
product is computed twice: the gradient is two products, one of which has few nonzero factors.

The operators enter when a step is combined (`backends/passes/fusion/stem_gradients.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from ...core.errors import DTypeError, ShapeError
from ...core.record import record
from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_kind, Shapes, Types
from ..norm.norm_act import line_of_norm, NormAct, NormActAttrs
from ..norm.norm_arrays import NormAffine, NormGradients, NormMoments
from ..scratch import accumulator, carve, Piece, scratch_bytes
from .conv_channels_last import ChannelsLastAttrs, ConvolutionChannelsLast
from .pool_channels_last import PoolingChannelsLast
from .pool_kernels import index_type
from .pooled_convolution import PooledAttrs, pooling


class ImageSums(Op):
    """Sums over all positions of the inputs of one output, its patch, for a convolution without bias.

    made: (N, *OS, F), the result for data: (N, *S, C), both channels last;  mean: (F,)
    ->  sums: (F, C, *K) of (made - mean) * patch;  patches: (C, *K) of patches.

    If data is of two bytes, everything but data and made is float32. There is no gradient.
    """

    op_name = "_image_sums"
    inputs = ("made", "data", "mean")
    outputs = ("sums", "patches")
    accepts = "float"
    Attrs = ChannelsLastAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        data = shapes[1]
        (_, weight), (made,) = ConvolutionChannelsLast.infer_shape(a, data, None)
        return (made, data, made[-1:]), (weight, weight[1:])

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        ins = _types(cls, dtypes, (2,), ())
        return ins, (ins[2],) * 2

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * prod(inputs[0]) * prod(outputs[1])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        made, data, _ = inputs
        own = scratch_bytes([(x, accumulator(dtype)) for x in (made, data, outputs[0])])
        return own + _own_bytes(a, made, data, dtype)

    @staticmethod
    def forward(
        xp: Any, a: Any, made: Any, data: Any, mean: Any, *, sums: Any, patches: Any, work: Any
    ) -> None:
        weight = ConvolutionChannelsLast.infer_shape(a, data.shape, None)[0][1]
        pieces = [(x, accumulator(data.dtype)) for x in (made.shape, data.shape, weight)]
        away, source, total = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        xp.copyto(source, data)
        if sums is not None:
            xp.subtract(made, mean, out=away)
            _weight_gradient(xp, a, away, source, sums, rest)
        if patches is not None:
            away.fill(1)
            _weight_gradient(xp, a, away, source, total, rest)
            xp.copyto(patches, total[0])


@record
class ImageGradientAttrs(PooledAttrs):
    """Parameters of the convolution and the pooling; `eps` and `momentum` of the norm; `relu`: True if
    negative results of the norm become 0.
    """

    eps: float = 1e-3
    momentum: float = 0.9
    relu: bool = True


class ImageGradientArrays(NamedTuple):
    """Inputs of `_image_gradient`."""

    grad: Any
    chosen: Any
    gamma: Any
    beta: Any
    mean: Any
    var: Any
    moving_mean: Any
    moving_var: Any
    index: Any
    data: Any
    sums: Any
    patches: Any

    @property
    def moments(self) -> NormMoments:
        """Those of the norm."""
        return NormMoments(self.mean, self.var, self.moving_mean, self.moving_var)


class ImageGradient(Op):
    """Gradients of ``max pooling of max(BatchNorm(Convolution(data)), 0)`` in weight, gamma and beta.

    grad, chosen, index: (N, *PS, F): the gradient in the result of pooling, the elements of the convolution's
    result that it selected, and their positions;  gamma, beta, mean, var, moving_mean, moving_var: (F,),
    `var` being the inverse standard deviation;  data: (N, *S, C);  sums: (F, C, *K) and patches: (C, *K), of
    `_image_sums` ->  d_weight: (F, C, *K);  d_gamma, d_beta: (F,).

    The statistics are those of the batch, and gamma is not fixed. Moves the moving averages.
    """

    op_name = "_image_gradient"
    inputs = ImageGradientArrays._fields
    outputs = ("d_weight", "d_gamma", "d_beta")
    accepts = "float"
    mutates = ("moving_mean", "moving_var")
    recomputable = False
    Attrs = ImageGradientAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        data = shapes[9]
        (_, weight), (made,) = ConvolutionChannelsLast.infer_shape(a, data, None)
        pooled = PoolingChannelsLast.infer_shape(pooling(a), made)[1][0]
        if shapes[0] is not None and shapes[0] != pooled:
            raise ShapeError(f"grad must be {pooled}, as what is pooled of {made}; got {shapes[0]}.")
        channel = pooled[-1:]
        ins = (pooled, pooled, *(channel,) * 6, pooled, data, weight, weight[1:])
        return ins, (weight, channel, channel)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        ins = _types(cls, dtypes, (2, 3, 4, 5, 6, 7, 10, 11), (8,))
        ins = (*ins[:8], index_type(pooling(a)), *ins[9:])
        return ins, (ins[0], ins[2], ins[2])

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return prod(inputs[0]) * (2 * prod(outputs[0][1:]) + 8)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        made, data = _made(a, inputs[9]), inputs[9]
        pool = PoolingChannelsLast.backward_workspace(pooling(a), (made,), (), accumulator(dtype))
        norm = NormAct.backward_workspace(act_attrs(a, inputs[0]), inputs[:1], inputs[:1], dtype)
        own = scratch_bytes(_gradient_pieces(a, inputs[0], data, outputs[0], dtype))
        return own + max(pool, norm, _own_bytes(a, made, data, dtype))

    @staticmethod
    @grouped
    def forward(
        xp: Any, a: Any, x: ImageGradientArrays, *, d_weight: Any, d_gamma: Any, d_beta: Any, work: Any
    ) -> None:
        grad, data, norm = x.grad, x.data, act_attrs(a, x.grad.shape)
        pieces = _gradient_pieces(a, grad.shape, data.shape, x.sums.shape, data.dtype)
        head, made, source, total, term, columns = carve(work, pieces)
        rest = work[scratch_bytes(pieces) :]
        d_gamma = columns[0] if d_gamma is None else d_gamma
        d_beta = columns[1] if d_beta is None else d_beta
        NormAct.backward.kernel(
            xp, norm, grad, x.chosen, x.gamma, x.beta, x.moments, None,
            made=NormGradients(None, d_gamma, d_beta), work=rest, train=True,
        )  # fmt: skip
        if d_weight is None:
            return
        factor, shift = columns[2:4]
        line_of_norm(xp, norm, NormAffine(x.gamma, x.beta, x.mean, x.var), factor, shift)
        xp.multiply(x.chosen, factor, out=head)
        xp.add(head, shift, out=head)
        if a.relu:  # 1 where the rectifier lets through, also at nan
            xp.less_equal(head, 0, out=head, casting="unsafe")
            xp.subtract(1, head, out=head)
        else:
            head.fill(1)
        xp.multiply(head, grad, out=head)
        xp.multiply(head, factor, out=head)
        xp.copyto(source, data)
        PoolingChannelsLast.backward(xp, pooling(a), head, None, None, x.index, d_data=made, work=rest)
        _weight_gradient(xp, a, made, source, total, rest)
        scale = 1.0 / prod(made.shape[:-1])
        settle(xp, (factor, x.var, d_gamma, d_beta), scale, x.sums, x.patches, total, term, columns[4])
        xp.copyto(d_weight, total, casting="unsafe")


def settle(
    xp: Any, columns: Sequence[Any], scale: float, sums: Any, patches: Any, total: Any, term: Any, column: Any
) -> None:
    """Add to `total`, the sum over d alone, the terms through the statistics. term, column: scratch.

    columns: factor, inverse standard deviation, sums of d * normalized x, of d; scale: 1 / M.
    """
    factor, inverse, by_x, by_one = columns
    rows = (-1, *(1,) * (total.ndim - 1))
    xp.multiply(by_x, inverse, out=column)
    for weight, of in ((column, sums), (by_one, patches)):
        xp.multiply(weight, factor, out=column)
        xp.multiply(column, -scale, out=column)
        xp.multiply(of, column.reshape(rows), out=term)
        xp.add(total, term, out=total)


def _types(
    op: type[Op], dtypes: Sequence[DType | None], wide: tuple[int, ...], free: tuple[int, ...]
) -> Types:
    """Types of inputs that are like the first, except those at `wide`, which have the type of sums."""
    data = dtypes[0]
    require_kind(op, data)
    acc = None if data is None else accumulator(data)
    wanted = tuple(acc if i in wide else data for i in range(len(dtypes)))
    for i, (name, dtype, want) in enumerate(zip(op.inputs, dtypes, wanted)):
        if i not in free and dtype is not None and want is not None and dtype != want:
            raise DTypeError(f"{name} must be {want} for {op.inputs[0]} of {data}, got {dtype}.")
    return wanted


def act_attrs(a: Any, shape: Shape) -> NormActAttrs:
    return NormActAttrs(eps=a.eps, momentum=a.momentum, fix_gamma=False, axis=len(shape) - 1, relu=a.relu)


def _made(a: Any, data: Shape) -> Shape:
    """The shape of the convolution's result."""
    return ConvolutionChannelsLast.infer_shape(a, data, None)[1][0]


def _weight_gradient(xp: Any, a: Any, grad: Any, data: Any, out: Any, work: Any) -> None:
    """The weight gradient of a convolution of `data`."""
    ConvolutionChannelsLast.backward(
        xp, a, grad, data, None, d_data=None, d_weight=out, d_bias=None, work=work,
        shapes=((data.shape, out.shape), (grad.shape,)),
    )  # fmt: skip


def _own_bytes(a: Any, made: Shape, data: Shape, dtype: DType) -> int:
    """Scratch of `_weight_gradient`."""
    weight = ConvolutionChannelsLast.infer_shape(a, data, None)[0][1]
    return ConvolutionChannelsLast.backward_workspace(a, (data, weight), (made,), accumulator(dtype))


def _gradient_pieces(a: Any, pooled: Shape, data: Shape, weight: Shape, dtype: DType) -> list[Piece]:
    """The rectified gradient; the same spread over its positions, and data; a sum and a term; columns."""
    wide = accumulator(dtype)
    shapes = (pooled, _made(a, data), data, weight, weight, (5, pooled[-1]))
    return [(s, wide) for s in shapes]
