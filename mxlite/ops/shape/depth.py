"""Channels into space and back: the rearrangements of sub-pixel convolution (Shi et al. 2016)."""

from __future__ import annotations

from typing import Any

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from .reshape import Rearrangement


@record
class _Block:
    block_size: int

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise OpAttributeError(f"block_size must be at least 1, got {self.block_size}.")


class depth_to_space(Rearrangement):
    """Channels spread over blocks of pixels, `block_size` b wide.

    data: (N, b * b * C, H, W)  ->  out: (N, C, b * H, b * W), ``out[n, c, h * b + i, w * b + j]`` is
    ``data[n, (i * b + j) * C + c, h, w]`` (ONNX's mode "DCR").
    """

    Attrs = _Block

    @staticmethod
    def infer_shape(a, data):
        b = a.block_size
        if len(data) != 4 or data[1] % (b * b):
            raise ShapeError(f"data must be (N, C, H, W) with C divisible by {b * b}, got {data}.")
        n, c, h, w = data
        return (data,), ((n, c // (b * b), h * b, w * b),)

    @staticmethod
    def forward(xp, a, data, *, out):
        source, target = _blocks(a, data, out)
        xp.copyto(target, source)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.space_to_depth(heads["out"], block_size=a.block_size)}


class space_to_depth(Rearrangement):
    """Blocks of pixels, `block_size` b wide, put into channels: the inverse of `depth_to_space`.

    data: (N, C, b * H, b * W)  ->  out: (N, b * b * C, H, W)
    """

    Attrs = _Block

    @staticmethod
    def infer_shape(a, data):
        b = a.block_size
        if len(data) != 4 or data[2] % b or data[3] % b:
            raise ShapeError(f"data must be (N, C, H, W) with H and W divisible by {b}, got {data}.")
        n, c, h, w = data
        return (data,), ((n, c * b * b, h // b, w // b),)

    @staticmethod
    def forward(xp, a, data, *, out):
        target, source = _blocks(a, out, data)
        xp.copyto(target, source)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.depth_to_space(heads["out"], block_size=a.block_size)}


def _blocks(a: Any, deep: Any, wide: Any) -> tuple[Any, Any]:
    """Both arrays seen as (N, C, H, i, W, j)."""
    b, (n, c, h, w) = a.block_size, deep.shape
    c //= b * b
    return deep.reshape(n, b, b, c, h, w).transpose(0, 3, 4, 1, 5, 2), wide.reshape(n, c, h, b, w, b)
