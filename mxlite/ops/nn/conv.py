"""Convolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, Literal

from ...core.compat.npshape import UNKNOWN
from ...core.dtype import float32
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..reduce.channels import channel_sum, sum_piece
from ..scratch import accumulator, carve, Piece, scratch_bytes
from .conv_kernels import BACKWARD, FORWARD, Geometry
from .windows import output_size, per_axis

LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


@record
class ConvAttrs:
    """Parameters of a convolution."""

    kernel: tuple[int, ...]
    num_filter: int
    stride: tuple[int, ...] = ()
    dilate: tuple[int, ...] = ()
    pad: tuple[int, ...] = ()
    num_group: int = 1
    workspace: int = 1024
    no_bias: bool = False
    cudnn_tune: Literal["off", "limited_workspace", "fastest"] | None = None
    cudnn_off: bool = False
    layout: str | None = None

    def __post_init__(self) -> None:
        check_window(self)
        check_filters(self)


def check_window(a: Any) -> None:
    """Raise OpAttributeError for an invalid kernel, stride, dilate, pad or, if there is one, layout."""
    rank = len(a.kernel)
    if rank not in LAYOUTS:
        raise OpAttributeError(f"kernel must have 1, 2 or 3 numbers, got {a.kernel}.")
    if getattr(a, "layout", None) not in (None, LAYOUTS[rank]):
        raise OpAttributeError(
            f"layout {a.layout!r} is not supported for a kernel of {rank} numbers: use {LAYOUTS[rank]!r}, "
            f"and transpose around it."
        )
    for name, least in (("kernel", 1), ("stride", 1), ("dilate", 1), ("pad", 0)):
        if any(v < least for v in per_axis(name, getattr(a, name), rank, least)):
            raise OpAttributeError(f"{name} must be at least {least}, got {getattr(a, name)}.")


def check_filters(a: Any) -> None:
    """Raise OpAttributeError unless the filters can be divided among the groups."""
    if a.num_filter < 1 or a.num_group < 1 or a.num_filter % a.num_group:
        raise OpAttributeError(
            f"num_group={a.num_group} must divide num_filter={a.num_filter}, both at least 1."
        )


def checked_data(a: Any, data: Shape | None) -> Shape:
    """The shape `data`. Raises ShapeError unless it has the kernel's axes, and channels for all groups."""
    assert data is not None
    rank = len(a.kernel)
    if len(data) != rank + 2:
        raise ShapeError(
            f"data must have {rank + 2} axes ({LAYOUTS[rank]}) for kernel {a.kernel}, got {data}."
        )
    if data[1] % a.num_group:
        raise ShapeError(f"num_group={a.num_group} must divide the {data[1]} channels of data {data}.")
    return data


@lru_cache(maxsize=4096)
def geometry(a: Any, data: Shape, dtype: DType) -> Geometry:
    """The convolution of an array of this shape and type; cached, as it is asked for at each call."""
    rank = len(a.kernel)
    stride, dilate = per_axis("stride", a.stride, rank, 1), per_axis("dilate", a.dilate, rank, 1)
    pad = per_axis("pad", a.pad, rank, 0)
    out = output_size(data[2:], a.kernel, stride, dilate, pad)
    return Geometry(
        data[0], data[1], data[2:], a.num_filter, out, a.kernel, stride, dilate, pad, a.num_group, dtype
    )


# A convolution is linear in its data and in its weight. The convolution family computes one of three
# things: the output from data and weight, the data('s gradient) from weight and output, the weight('s
# gradient) from data and output.


def make_out(xp: Any, g: Geometry, data: Any, weight: Any, out: Any, work: Any) -> None:
    """out = data convolved with weight."""
    if data.size == 0 or out.size == 0:
        out.fill(0)
    else:
        FORWARD[g.way](xp, g, data, weight, out, work)


def make_gradients(
    xp: Any, g: Geometry, d_out: Any, data: Any, weight: Any, d_data: Any, d_weight: Any, work: Any
) -> None:
    """d_data from weight and d_out, d_weight from data and d_out; unwanted or unneeded arrays are None."""
    if d_data is None and d_weight is None:
        return
    if d_out.size == 0 or g.c == 0:
        for x in (d_data, d_weight):
            if x is not None:
                x.fill(0)
    else:
        BACKWARD[g.way](xp, g, d_out, data, weight, d_data, d_weight, work)


def forward_bytes(g: Geometry) -> int:
    """Scratch of `make_out`."""
    return scratch_bytes(g.forward_pieces)


def backward_bytes(g: Geometry) -> int:
    """Scratch of `make_gradients`."""
    return scratch_bytes(g.backward_pieces)


def add_bias(xp: Any, out: Any, bias: Any) -> None:
    """out += bias of each channel, if there is one."""
    if bias is not None:
        xp.add(out, bias.reshape(-1, *(1,) * (out.ndim - 2)), out=out)


def bias_gradient(xp: Any, d_out: Any, d_bias: Any, work: Any) -> None:
    """d_bias = sum of d_out over all axes but the channel's."""
    if d_bias is None:
        return
    n, f = d_out.shape[:2]
    part, total = carve(work, _bias_pieces(d_out.shape, d_out.dtype))
    channel_sum(xp, d_out.reshape(n, f, prod(d_out.shape[2:])), part, total)
    xp.copyto(d_bias, total, casting="unsafe")


def bias_bytes(out: Shape, dtype: DType) -> int:
    """Scratch of `bias_gradient`."""
    return scratch_bytes(_bias_pieces(out, dtype))


def _bias_pieces(out: Shape, dtype: DType) -> list[Piece]:
    acc = accumulator(dtype)
    return [sum_piece(out[0], out[1], prod(out[2:]), acc), ((out[1],), acc)]


class LinearInWindows(Op):
    """Base of a convolution and of its transpose, which are linear in `data` and in `weight`.

    Each of data, weight and output (for the first two: its gradient) is computed from the two others, by
    `make_out` and `make_gradients`, in scratch of `out_bytes`, `data_bytes` and `weight_bytes`.
    """

    abstract = True
    inputs = ("data", "weight", "bias")
    optional = {"bias": "no_bias"}
    inferred = ("weight", "bias")
    accepts = "float"

    # The convolution that computes it; what computes each array of that; the array whose every element is
    # multiplied by every weight.
    geometry: ClassVar[Callable[..., Geometry]]
    make_out: ClassVar[Callable[..., None]]
    make_gradients: ClassVar[Callable[..., None]]
    out_bytes: ClassVar[Callable[..., int]]
    data_bytes: ClassVar[Callable[..., int]]
    weight_bytes: ClassVar[Callable[..., int]] = staticmethod(backward_bytes)
    multiplied: ClassVar[Callable[..., Shape]]

    @classmethod
    def linear_flops(cls, data: Shape, weight: Shape, out: Shape) -> int:
        """Operations of each of the three computations."""
        return 2 * prod(cls.multiplied(data, out)) * prod(weight[1:])

    @classmethod
    def flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return cls.linear_flops(inputs[0], inputs[1], outputs[0]) + (not a.no_bias) * prod(outputs[0])

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return cls.out_bytes(cls.geometry(a, inputs[0], dtype))

    @classmethod
    def backward_workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        g = cls.geometry(a, inputs[0], dtype)
        # Kernels that run one after the other use the same bytes.
        bias = 0 if a.no_bias else bias_bytes(outputs[0], dtype)
        return max(cls.data_bytes(g), cls.weight_bytes(g), bias)

    @classmethod
    def forward(
        cls, xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any
    ) -> None:
        if out is None:
            return
        cls.make_out(xp, cls.geometry(a, data.shape, data.dtype), data, weight, out, work)
        add_bias(xp, out, bias)

    @classmethod
    def backward(
        cls,
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        weight: Any,
        *,
        d_data: Any,
        d_weight: Any,
        d_bias: Any,
        work: Any,
    ) -> None:
        g = cls.geometry(a, data.shape, data.dtype)
        cls.make_gradients(xp, g, d_out, data, weight, d_data, d_weight, work)
        bias_gradient(xp, d_out, d_bias, work)

    @classmethod
    def derivative(cls, w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        d_out, linear, name = heads["out"], asdict(a) | {"no_bias": True}, cls.op_name.lower()
        gradients = {
            "data": getattr(w, f"_{name}_d_data")(d_out, ins["weight"], ins["data"], **linear),
            "weight": getattr(w, f"_{name}_d_weight")(d_out, ins["data"], **linear),
        }
        if not a.no_bias:
            gradients["bias"] = w.sum(d_out, axis=(1,), exclude=True)
        return gradients


class Convolution(LinearInWindows):
    """Cross-correlation of each sample with `num_filter` kernels, plus bias.

    data: (N, C, H, W);  weight: (F, C/G, KH, KW);  bias: (F,)  ->  out: (N, F, OH, OW), where
    OH = (H + 2 * pad - ((KH - 1) * dilate + 1)) // stride + 1. One, two or three spatial axes: as many as
    `kernel` has numbers. G = `num_group` parts of the channels are convolved independently.

    `workspace`, `cudnn_tune` and `cudnn_off` are accepted and have no effect. Cost: 2 * N * F * OH * OW *
    C/G * KH * KW.
    """

    aliases = ("Convolution_v1",)
    Attrs = ConvAttrs
    geometry = staticmethod(geometry)
    make_out = staticmethod(make_out)
    make_gradients = staticmethod(make_gradients)
    out_bytes = staticmethod(forward_bytes)
    data_bytes = staticmethod(backward_bytes)
    multiplied = staticmethod(lambda data, out: out)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = checked_data(a, shapes[0])
        weight = (a.num_filter, data[1] // a.num_group, *a.kernel)
        out = (data[0], a.num_filter, *geometry(a, data, float32).out)
        return (data, weight, (a.num_filter,))[: len(shapes)], (out,)

    @staticmethod
    def infer_inputs(
        a: Any, inputs: Sequence[Shape | None], outputs: Sequence[Shape | None]
    ) -> Sequence[Shape | None]:
        data, out = inputs[0], outputs[0]
        if data is None or out is None or len(data) != len(a.kernel) + 2 or len(out) != len(data):
            return inputs
        rank, lengths = len(a.kernel), list(data[2:])
        windows = [per_axis(n, getattr(a, n), rank, d) for n, d in (("stride", 1), ("dilate", 1), ("pad", 0))]
        for i, (size, stride, dilate, pad) in enumerate(zip(a.kernel, *windows)):
            if lengths[i] == UNKNOWN != out[2 + i] and stride == 1:  # others come from several lengths
                lengths[i] = out[2 + i] + dilate * (size - 1) - 2 * pad
        return ((out[0], data[1], *lengths), *inputs[1:])
