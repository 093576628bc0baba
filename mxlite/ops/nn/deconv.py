"""Transposed convolution."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from ...core.dtype import float32
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Shapes
from .conv import (
    backward_bytes,
    check_filters,
    check_window,
    checked_data,
    forward_bytes,
    LinearInWindows,
    make_gradients,
    make_out,
)
from .conv_kernels import Geometry
from .windows import per_axis


@record
class DeconvAttrs:
    """Parameters of a transposed convolution."""

    kernel: tuple[int, ...]
    num_filter: int
    stride: tuple[int, ...] = ()
    dilate: tuple[int, ...] = ()
    pad: tuple[int, ...] = ()
    adj: tuple[int, ...] = ()
    target_shape: tuple[int, ...] = ()
    num_group: int = 1
    workspace: int = 512
    no_bias: bool = True
    cudnn_tune: Literal["off", "limited_workspace", "fastest"] | None = None
    cudnn_off: bool = False
    layout: str | None = None

    def __post_init__(self) -> None:
        check_window(self)
        rank = len(self.kernel)
        check_filters(self)
        stride = per_axis("stride", self.stride, rank, 1)
        adj, computed = per_axis("adj", self.adj, rank, 0), any(self.target_shape)
        if not computed and any(v < 0 or v >= s for v, s in zip(adj, stride)):
            raise OpAttributeError(f"adj must be at least 0 and less than stride {stride}, got {self.adj}.")
        if any(v < 0 for v in per_axis("target_shape", self.target_shape, rank, 0)):
            raise OpAttributeError(f"target_shape must be at least 0, got {self.target_shape}.")


@lru_cache(maxsize=4096)
def geometry_of(a: Any, data: Shape, dtype: DType) -> Geometry:
    """The convolution whose transpose takes `data`: `data` has the shape of its output."""
    rank = len(a.kernel)
    stride, dilate = per_axis("stride", a.stride, rank, 1), per_axis("dilate", a.dilate, rank, 1)
    pad, adj = per_axis("pad", a.pad, rank, 0), per_axis("adj", a.adj, rank, 0)
    whole = tuple((n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(data[2:], stride, a.kernel, dilate))
    if any(a.target_shape):
        excess = tuple(n - t for n, t in zip(whole, a.target_shape))
        if any(e < 0 for e in excess):
            raise ShapeError(
                f"target_shape {a.target_shape} is larger than {whole}, all that data {data} gives."
            )
        pad, adj = tuple((e + 1) // 2 for e in excess), tuple(e % 2 for e in excess)
    size = tuple(n - 2 * p + j for n, p, j in zip(whole, pad, adj))
    if any(n < 1 for n in size):
        raise ShapeError(f"pad {pad} leaves nothing of the {whole} that data {data} gives.")
    return Geometry(
        data[0], a.num_filter, size, data[1], data[2:], a.kernel, stride, dilate, pad, a.num_group, dtype
    )


def _make_out(xp: Any, g: Geometry, data: Any, weight: Any, out: Any, work: Any) -> None:
    make_gradients(xp, g, data, None, weight, out, None, work)


def _make_gradients(
    xp: Any, g: Geometry, d_out: Any, data: Any, weight: Any, d_data: Any, d_weight: Any, work: Any
) -> None:
    if d_data is not None:
        make_out(xp, g, d_out, weight, d_data, work)
    make_gradients(xp, g, data, d_out, None, None, d_weight, work)


class Deconvolution(LinearInWindows):
    """Transposed convolution: the gradient in a convolution's data, if the gradient in its output is `data`.

    data: (N, C, H, W);  weight: (C, F/G, KH, KW);  bias: (F,)  ->  out: (N, F, OH, OW), where
    OH = (H - 1) * stride + (KH - 1) * dilate + 1 - 2 * pad + adj and F = `num_filter`. One, two or three
    spatial axes. G = `num_group` parts of the channels are convolved independently.

    `target_shape` says OH, OW itself; `pad` and `adj` then follow from it, whatever they say: half of what
    is too much is cut at each side, of an odd number one more at the front. `no_bias` is True unless said
    otherwise. `workspace`, `cudnn_tune` and `cudnn_off` have no effect. Cost: 2 * N * C * H * W * F/G * KH
    * KW.
    """

    Attrs = DeconvAttrs
    geometry = staticmethod(geometry_of)
    make_out = staticmethod(_make_out)
    make_gradients = staticmethod(_make_gradients)
    out_bytes = staticmethod(backward_bytes)
    data_bytes = staticmethod(forward_bytes)
    multiplied = staticmethod(lambda data, out: data)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = checked_data(a, shapes[0])
        weight = (data[1], a.num_filter // a.num_group, *a.kernel)
        g = geometry_of(a, data, float32)
        return (data, weight, (a.num_filter,))[: len(shapes)], ((g.n, g.c, *g.size),)
