"""Convolution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Literal

from ..core.dtype import float32
from ..core.errors import OpAttributeError, ShapeError
from ..graph.ir import Shape
from ..graph.opdef import DType, Op, Shapes
from .channels import channel_sum, sum_piece
from .conv_kernels import BACKWARD, FORWARD, Geometry
from .scratch import carve, scratch_bytes
from .windows import output_size, per_axis

LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


class Convolution(Op):
    """Cross-correlation of each sample with `num_filter` kernels, plus bias.

    data: (N, C, H, W);  weight: (F, C/G, KH, KW);  bias: (F,)  ->  out: (N, F, OH, OW), where
    OH = (H + 2 * pad - ((KH - 1) * dilate + 1)) // stride + 1. One, two or three spatial axes: as many as
    `kernel` has numbers. G = `num_group` parts of the channels are convolved apart from each other.

    `workspace`, `cudnn_tune` and `cudnn_off` are accepted and have no effect. Cost: 2 * N * F * OH * OW *
    C/G * KH * KW.
    """

    inputs = ("data", "weight", "bias")
    inferred = ("weight", "bias")

    @dataclass(frozen=True)
    class Attrs:
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
            rank = len(self.kernel)
            if rank not in LAYOUTS:
                raise OpAttributeError(f"kernel must have 1, 2 or 3 numbers, got {self.kernel}.")
            if self.layout not in (None, LAYOUTS[rank]):
                raise OpAttributeError(
                    f"layout {self.layout!r} is not supported for a kernel of {rank} numbers: "
                    f"use {LAYOUTS[rank]!r}."
                )
            if self.num_filter < 1 or self.num_group < 1 or self.num_filter % self.num_group:
                raise OpAttributeError(
                    f"num_group={self.num_group} must divide num_filter={self.num_filter}, both at least 1."
                )
            for name, least in (("kernel", 1), ("stride", 1), ("dilate", 1), ("pad", 0)):
                if any(v < least for v in per_axis(name, getattr(self, name), rank, least)):
                    raise OpAttributeError(f"{name} must be at least {least}, got {getattr(self, name)}.")

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return cls.inputs[:2] if a.no_bias else cls.inputs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        rank = len(a.kernel)
        if len(data) != rank + 2:
            raise ShapeError(
                f"data must have {rank + 2} axes ({LAYOUTS[rank]}) for kernel {a.kernel}, got {data}."
            )
        if data[1] % a.num_group:
            raise ShapeError(f"num_group={a.num_group} must divide the {data[1]} channels of data {data}.")
        weight = (a.num_filter, data[1] // a.num_group, *a.kernel)
        out = (data[0], a.num_filter, *_geometry(a, data, float32).out)
        return (data, weight, (a.num_filter,))[: len(shapes)], (out,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return prod(outputs[0]) * (2 * prod(inputs[1][1:]) + (not a.no_bias))

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_geometry(a, inputs[0], dtype).forward_pieces)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        g = _geometry(a, inputs[0], dtype)
        # The bias comes last and takes the same bytes again.
        bias = 0 if a.no_bias else scratch_bytes([_bias_piece(g), ((g.f,), g.acc)])
        return max(scratch_bytes(g.backward_pieces), bias)

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any) -> None:
        if out is None:
            return
        g = _geometry(a, data.shape, data.dtype)
        FORWARD[g.way](xp, g, data, weight, out, work)
        if bias is not None:
            xp.add(out, bias.reshape(-1, *(1,) * len(a.kernel)), out=out)

    @staticmethod
    def backward(
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
        g = _geometry(a, data.shape, data.dtype)
        if d_data is not None or d_weight is not None:
            BACKWARD[g.way](xp, g, d_out, data, weight, d_data, d_weight, work)
        if d_bias is not None:
            part, total = carve(work, [_bias_piece(g), ((g.f,), g.acc)])
            channel_sum(xp, d_out.reshape(g.n, g.f, -1), part, total)
            xp.copyto(d_bias, total, casting="unsafe")


def _bias_piece(g: Geometry) -> tuple[Shape, DType]:
    return sum_piece(g.n, g.f, prod(g.out), g.acc)


@lru_cache(maxsize=4096)
def _geometry(a: Any, data: Shape, dtype: DType) -> Geometry:
    """The convolution of an array of this shape and type; kept, for it is asked for at each call."""
    rank = len(a.kernel)
    stride, dilate = per_axis("stride", a.stride, rank, 1), per_axis("dilate", a.dilate, rank, 1)
    pad = per_axis("pad", a.pad, rank, 0)
    out = output_size(data[2:], a.kernel, stride, dilate, pad)
    return Geometry(
        data[0], data[1], data[2:], a.num_filter, out, a.kernel, stride, dilate, pad, a.num_group, dtype
    )
