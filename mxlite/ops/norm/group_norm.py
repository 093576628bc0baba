"""Normalization of each sample by itself over positions: GroupNorm and InstanceNorm."""

from __future__ import annotations

from math import prod
from typing import Any

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import require_rank, Shapes
from .layer_norm import require_eps
from .normalize import Rule
from .self_norm import SelfNorm, SelfNormWithStatistics


class GroupNorm(SelfNormWithStatistics):
    """Normalize each group of channels, ``out = (data - mean) / sqrt(var + eps) * gamma + beta``.

    data: (N, C, ...) with C a multiple of `num_groups`, G;  gamma, beta: (G,), or (C,)  ->  out: as data;
    mean, std = sqrt(var + eps): (N, G); they are outputs with `output_mean_var`.

    Y. Wu, K. He, 2018, "Group normalization". One gamma for each group is MXNet 1.9.1's rule, and the shape
    that is inferred; one for each channel, the paper's, PyTorch's and ONNX's, is used if gamma has that
    shape. The gradients of `mean` and `std` count as well (MXNet 1.9.1 drops them). gamma and beta are of
    data's dtype, or float32 beside 16-bit data; mean and std are of gamma's.
    """

    @record
    class Attrs:
        num_groups: int = 1
        eps: float = 1e-5
        output_mean_var: bool = False

        def __post_init__(self) -> None:
            require_eps(self.eps)
            if self.num_groups < 1:
                raise OpAttributeError(f"num_groups must be at least 1, got {self.num_groups}.")

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data, *affine = shapes
        assert data is not None
        require_rank(data, 2, "data")
        groups = a.num_groups
        if data[1] % groups:
            raise ShapeError(f"num_groups={groups} must divide axis 1 of data {data}.")
        want = (data[1],) if (data[1],) in affine else (groups,)
        for name, shape in zip(("gamma", "beta"), affine):
            if shape is not None and shape != want and -1 not in shape:
                raise ShapeError(f"{name} must be ({groups},) or ({data[1]},), as the other, got {shape}.")
        return (data, want, want), (data, (data[0], groups), (data[0], groups))

    @classmethod
    def rule(cls, a: Any, data: Shape, gamma: Shape) -> Rule:
        return _rule(a, data, gamma)


class InstanceNorm(SelfNorm):
    """Normalize each channel of each sample, ``out = (data - mean) / sqrt(var + eps) * gamma + beta``.

    data: (N, C, ...);  gamma, beta: (C,)  ->  out: as data. Mean and biased variance are over the positions.

    D. Ulyanov, A. Vedaldi, V. Lempitsky, 2016, "Instance normalization: the missing ingredient for fast
    stylization". gamma and beta are of data's dtype, or float32 beside 16-bit data.
    """

    @record
    class Attrs:
        eps: float = 1e-3

        def __post_init__(self) -> None:
            require_eps(self.eps)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        require_rank(data, 3, "data")
        return (data, data[1:2], data[1:2]), (data,)

    @classmethod
    def rule(cls, a: Any, data: Shape, gamma: Shape) -> Rule:
        return _each_channel(a, data)


def _rule(a: Any, shape: Shape, gamma: Shape) -> Rule:
    n, c, *rest = shape
    each = c // a.num_groups
    view = (n, a.num_groups, each, prod(rest), 1)
    return Rule(view, a.eps, channels=each if gamma == (c,) else 1)


def _each_channel(a: Any, shape: Shape) -> Rule:
    return Rule((shape[0], shape[1], 1, prod(shape[2:]), 1), a.eps)
