"""Deformable convolution: each element of a window reads a position that an input gives.

J. Dai and others, 2017, "Deformable convolutional networks"; with a factor for each element, X. Zhu, H. Hu,
S. Lin, J. Dai, 2019, "Deformable ConvNets v2: more deformable, better results".

The sampled pixels are columns of a matrix, as in a convolution by im2col; for some output positions of one
image at a time (`deformable_places.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

from ...core.dtype import float32
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..nn.conv import add_bias, bias_bytes, bias_gradient, check_filters, check_window, geometry
from ..nn.conv_kernels import Geometry
from ..scratch import carve, Piece, scratch_bytes
from .deformable_places import place_pieces, Places, shaped

_ELEMENTS = 1 << 19  # size of a block's columns
_MOST = 1024  # the most output positions of a block


@record
class DeformableAttrs:
    """Parameters of a deformable convolution."""

    kernel: tuple[int, ...]
    num_filter: int
    stride: tuple[int, ...] = ()
    dilate: tuple[int, ...] = ()
    pad: tuple[int, ...] = ()
    num_group: int = 1
    num_deformable_group: int = 1
    workspace: int = 1024
    no_bias: bool = False
    layout: str | None = None

    def __post_init__(self) -> None:
        check_window(self)
        if len(self.kernel) != 2:
            raise OpAttributeError(f"kernel must be two numbers (KH, KW), got {self.kernel}.")
        check_filters(self)
        if self.num_deformable_group < 1:
            raise OpAttributeError(
                f"num_deformable_group must be at least 1, got {self.num_deformable_group}."
            )


@record
class ModulatedAttrs(DeformableAttrs):
    """Parameters of a modulated deformable convolution."""

    im2col_step: int = 64


class _Deformable(Op):
    """Base: `masked` operators have an input `mask`."""

    abstract = True
    accepts = "float"
    masked = False
    optional = {"bias": "no_bias"}

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        if len(data) != 4:
            raise ShapeError(f"data must be (N, C, H, W), got {data}.")
        for name in ("num_group", "num_deformable_group"):
            if data[1] % getattr(a, name):
                raise ShapeError(
                    f"{name}={getattr(a, name)} must divide the {data[1]} channels of data {data}."
                )
        g = geometry(a, data, float32)
        places = a.num_deformable_group * g.taps
        extra = [(g.n, 2 * places, *g.out), (g.n, places, *g.out)][: 1 + cls.masked]
        weight = (a.num_filter, g.c // a.num_group, *a.kernel)
        return (data, *extra, weight, (a.num_filter,))[: len(shapes)], ((g.n, g.f, *g.out),)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return prod(outputs[0]) * 2 * prod(inputs[-1 if a.no_bias else -2][1:]) + 8 * (
            prod(inputs[0][:2]) * prod(a.kernel) * prod(outputs[0][2:])
        )

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(a, geometry(a, inputs[0], dtype), cls.masked))

    @classmethod
    def backward_workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        g = geometry(a, inputs[0], dtype)
        pieces = [*_pieces(a, g, cls.masked), *_gradient_pieces(a, g)]
        # The bias's scratch comes last and reuses the same bytes.
        return max(scratch_bytes(pieces), 0 if a.no_bias else bias_bytes(outputs[0], dtype))


class DeformableConvolution(_Deformable):
    """Convolution whose window elements are moved by `offset`.

    data: (N, C, H, W);  offset: (N, D * KH * KW * 2, OH, OW);  weight: (F, C/G, KH, KW);  bias: (F,)  ->
    out: (N, F, OH, OW), where OH = (H + 2 * pad - ((KH - 1) * dilate + 1)) // stride + 1.

    Element k of the window at output position o reads o * stride - pad + k * dilate + offset, (y, x) of
    channels 2 * (d * KH * KW + k) and the next one, linear between pixels; 0 outside [0, H) x [0, W).
    D = `num_deformable_group` parts of the channels have their own offsets, G = `num_group` parts are
    convolved independently. `workspace` is accepted and has no effect.

    J. Dai and others, 2017, "Deformable convolutional networks".
    """

    op_name = "_contrib_DeformableConvolution"
    inputs = ("data", "offset", "weight", "bias")
    inferred = ("offset", "weight", "bias")
    Attrs = DeformableAttrs

    @staticmethod
    def forward(
        xp: Any, a: Any, data: Any, offset: Any, weight: Any, bias: Any = None, *, out: Any, work: Any
    ) -> None:
        _convolve(xp, a, data, offset, None, weight, bias, out, work, 0)

    @staticmethod
    def backward(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        offset: Any,
        weight: Any,
        *,
        d_data: Any,
        d_offset: Any,
        d_weight: Any,
        d_bias: Any,
        work: Any,
    ) -> None:
        gradients = d_data, d_offset, None, d_weight
        _gradients(xp, a, d_out, data, offset, None, weight, gradients, work, 0)
        bias_gradient(xp, d_out, d_bias, work)


class ModulatedGradients(NamedTuple):
    """Outputs of the gradient of a modulated deformable convolution."""

    d_data: Any
    d_offset: Any
    d_mask: Any
    d_weight: Any
    d_bias: Any


class ModulatedDeformableConvolution(_Deformable):
    """Convolution whose window elements are moved by `offset` and multiplied by `mask`.

    data: (N, C, H, W);  offset: (N, D * KH * KW * 2, OH, OW);  mask: (N, D * KH * KW, OH, OW);  weight: (F,
    C/G, KH, KW);  bias: (F,)  ->  out: (N, F, OH, OW).

    As `DeformableConvolution`, but zeros surround the image, and within one pixel of it their mean with
    the pixels at the edge is read. `im2col_step` and `workspace` are accepted and have no effect.

    X. Zhu, H. Hu, S. Lin, J. Dai, 2019, "Deformable ConvNets v2". MXNet 1.9.1 has gradients on GPUs only.
    """

    op_name = "_contrib_ModulatedDeformableConvolution"
    inputs = ("data", "offset", "mask", "weight", "bias")
    inferred = ("offset", "mask", "weight", "bias")
    masked = True
    Attrs = ModulatedAttrs

    @staticmethod
    def forward(
        xp: Any,
        a: Any,
        data: Any,
        offset: Any,
        mask: Any,
        weight: Any,
        bias: Any = None,
        *,
        out: Any,
        work: Any,
    ) -> None:
        _convolve(xp, a, data, offset, mask, weight, bias, out, work, 1)

    @staticmethod
    @grouped
    def backward(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        offset: Any,
        mask: Any,
        weight: Any,
        *,
        made: ModulatedGradients,
        work: Any,
    ) -> None:
        _gradients(xp, a, d_out, data, offset, mask, weight, made[:4], work, 1)
        bias_gradient(xp, d_out, made.d_bias, work)


def _block(g: Geometry) -> int:
    """Number of output positions that are computed together."""
    return max(1, min(prod(g.out), _MOST, _ELEMENTS // max(1, g.c * g.taps)))


def _pieces(a: Any, g: Geometry, masked: bool) -> list[Piece]:
    """An image with a pixel of 0 after each channel, the weight, outputs; columns and a temporary of their
    size; the pieces of positions."""
    block, acc = _block(g), g.acc
    columns = g.c * g.taps * block
    return [
        ((g.c, prod(g.size) + 1), acc),
        (_weight_shape(g), acc),
        ((0 if g.dtype == acc else g.f * block,), acc),
        ((columns,), acc),
        ((columns,), acc),
        *place_pieces(a.num_deformable_group * g.taps * block, acc, masked),
    ]


def _gradient_pieces(a: Any, g: Geometry) -> list[Piece]:
    """The gradients of an image, of the weight, of a block's part of that, of columns, of the four pixels of
    each position."""
    block, acc = _block(g), g.acc
    return [
        ((g.c, prod(g.size) + 1), acc),
        (_weight_shape(g), acc),
        (_weight_shape(g), acc),
        ((g.c * g.taps * block,), acc),
        ((4 * a.num_deformable_group * g.taps * block,), acc),
    ]


def _weight_shape(g: Geometry) -> Shape:
    return g.groups, g.f // g.groups, g.c // g.groups * g.taps


def _blocks(g: Geometry) -> Iterator[slice]:
    positions, block = prod(g.out), _block(g)
    return (slice(i, min(i + block, positions)) for i in range(0, positions, block))


def _convolve(
    xp: Any,
    a: Any,
    data: Any,
    offset: Any,
    mask: Any,
    weight: Any,
    bias: Any,
    out: Any,
    work: Any,
    reach: int,
) -> None:
    if out is None:
        return
    g = geometry(a, data.shape, data.dtype)
    if not data.size or not out.size:
        out.fill(0)
        add_bias(xp, out, bias)
        return
    image, factors, sums, columns, spare, *scratch = carve(work, _pieces(a, g, mask is not None))
    xp.copyto(factors, weight.reshape(factors.shape))
    image[:, -1] = 0
    for n in range(g.n):
        xp.copyto(image[:, :-1], data[n].reshape(g.c, -1))
        target = out[n].reshape(g.groups, -1, prod(g.out))
        for at in _blocks(g):
            places = Places(xp, a, g, offset[n], None if mask is None else mask[n], at, reach, scratch)
            sampled = places.columns(image, columns, spare)
            if g.acc == g.dtype:
                xp.matmul(factors, sampled, out=target[..., at])
            else:
                result = shaped(sums, *target[..., at].shape)
                xp.matmul(factors, sampled, out=result)
                xp.copyto(target[..., at], result, casting="unsafe")
    add_bias(xp, out, bias)


def _gradients(
    xp: Any,
    a: Any,
    d_out: Any,
    data: Any,
    offset: Any,
    mask: Any,
    weight: Any,
    made: tuple[Any, ...],
    work: Any,
    reach: int,
) -> None:
    """Fill d_data, d_offset, d_mask and d_weight, the four of `made`; unwanted ones are None."""
    d_data, d_offset, d_mask, d_weight = made
    g = geometry(a, data.shape, data.dtype)
    if all(x is None for x in made) or not data.size or not d_out.size:
        for x in made:
            if x is not None:
                x.fill(0)
        return
    image, factors, sums, columns, spare, *scratch, d_image, total, part, d_columns, four = carve(
        work, [*_pieces(a, g, mask is not None), *_gradient_pieces(a, g)]
    )
    xp.copyto(factors, weight.reshape(factors.shape))
    image[:, -1] = 0
    total.fill(0)
    for n in range(g.n):
        xp.copyto(image[:, :-1], data[n].reshape(g.c, -1))
        d_image.fill(0)
        for at in _blocks(g):
            places = Places(xp, a, g, offset[n], None if mask is None else mask[n], at, reach, scratch)
            head = d_out[n].reshape(g.groups, -1, prod(g.out))[..., at]
            if g.acc != g.dtype:
                wide = shaped(sums, *head.shape)
                xp.copyto(wide, head)
                head = wide
            if d_weight is not None:
                sampled = places.columns(image, columns, spare)
                xp.matmul(head, sampled.transpose(0, 2, 1), out=part)
                xp.add(total, part, out=total)
            if d_data is None and d_offset is None and d_mask is None:
                continue
            d_sampled = shaped(d_columns, *factors.shape[::2], at.stop - at.start)
            xp.matmul(factors.transpose(0, 2, 1), head, out=d_sampled)
            if d_offset is not None or d_mask is not None:
                places.slopes(image, d_sampled, spare, four)
            if d_data is not None:
                places.scatter(d_sampled, spare, d_image)
            places.write_gradients(d_offset, d_mask, n, at, columns)
        if d_data is not None:
            xp.copyto(d_data[n].reshape(g.c, -1), d_image[:, :-1], casting="unsafe")
    if d_weight is not None:
        xp.copyto(d_weight.reshape(total.shape), total, casting="unsafe")
