"""Layers side by side, layers that do nothing, and convolutions' channels made into finer images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import ndarray as nd
from ...core.errors import RangeError
from ...core.wanted import whole
from .. import nn
from ..blocks.hybrid_block import HybridBlock
from ..nn import SyncBatchNorm as SyncBatchNorm


class Concurrent(nn.Sequential):
    """Blocks that take the same input; their outputs are joined along `axis`."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def forward(self, x: Any, *args: Any) -> Any:
        """The outputs of all children, joined."""
        return nd.concat(*(block(x, *args) for block in self._children.values()), dim=self.axis)


class HybridConcurrent(nn.HybridSequential):
    """Blocks that take the same input; their outputs are joined along `axis`."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        """The outputs of all children, joined."""
        return F.concat(*(block(x, *args) for block in self._children.values()), dim=self.axis)


class Identity(HybridBlock):
    """x -> x."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return x


class SparseEmbedding(nn.Embedding):
    """`nn.Embedding` with a gradient that stores the rows that were looked up."""

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_dim, output_dim, dtype, weight_initializer, sparse_grad=True, **kwargs)


class _PixelShuffle(HybridBlock):
    """Channels become finer images: (N, C * f1 * ..., L1, ...) -> (N, C, L1 * f1, ...).

    Shi and others, Real-time single image and video super-resolution using an efficient sub-pixel
    convolutional neural network, 2016. Channel (c * f1 + i) * f2 + j holds the points of channel c that lie i
    rows and j columns from the corner of each new cell of f1 x f2 points.
    """

    _axes: int

    def __init__(self, factor: int | Sequence[int]) -> None:
        super().__init__()
        factors = [factor] * self._axes if isinstance(factor, int) else list(factor)
        name = type(self).__name__
        if len(factors) != self._axes:
            raise RangeError(f"{name}: factor must be one number or {self._axes}, got {factor!r}.")
        self._factors = tuple(whole(f"{name}: factor", f, 1) for f in factors)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        factors, same = self._factors, (0,) * self._axes
        x = F.reshape(x, shape=(0, -4, -1, math.prod(factors), *same))
        for i in range(self._axes - 1):
            x = F.reshape(x, shape=(0, 0, *same[:i], -4, factors[i], math.prod(factors[i + 1 :]), *same))
        pairs = [(2 + self._axes + i, 2 + i) for i in range(self._axes)]
        x = F.transpose(x, axes=(0, 1, *(axis for pair in pairs for axis in pair)))
        return F.reshape(x, shape=(0, 0, *(-3,) * self._axes))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._factors[0] if self._axes == 1 else self._factors})"


class PixelShuffle1D(_PixelShuffle):
    """Channels become finer rows: (N, C * f, W) -> (N, C, W * f)."""

    _axes = 1


class PixelShuffle2D(_PixelShuffle):
    """Channels become finer images: (N, C * f1 * f2, H, W) -> (N, C, H * f1, W * f2)."""

    _axes = 2


class PixelShuffle3D(_PixelShuffle):
    """Channels become finer volumes: (N, C * f1 * f2 * f3, D, H, W) -> (N, C, D * f1, H * f2, W * f3)."""

    _axes = 3
