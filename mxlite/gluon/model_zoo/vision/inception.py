"""Inception 3. Szegedy et al. 2016, "Rethinking the Inception architecture for computer vision"."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...blocks.hybrid_block import HybridBlock
from ..model_store import filled, HOME
from .concurrent import beside, row


def _convolution(channels: int, kernel: Any, strides: int = 1, padding: Any = 0) -> nn.HybridSequential:
    return row(
        nn.Conv2D(channels, kernel, strides, padding, use_bias=False),
        nn.BatchNorm(epsilon=0.001),
        nn.Activation("relu"),
    )


def _wide(channels: int, size: int) -> nn.HybridSequential:
    return _convolution(channels, (1, size), 1, (0, size // 2))


def _high(channels: int, size: int) -> nn.HybridSequential:
    return _convolution(channels, (size, 1), 1, (size // 2, 0))


def _averaged(channels: int) -> nn.HybridSequential:
    """The branch of an average over the neighbours."""
    return row(nn.AvgPool2D(pool_size=3, strides=1, padding=1), _convolution(channels, 1))


def _a(averaged: int) -> list[HybridBlock]:
    """Branches of 35x35."""
    return [
        row(_convolution(64, 1)),
        row(_convolution(48, 1), _convolution(64, 5, 1, 2)),
        row(_convolution(64, 1), _convolution(96, 3, 1, 1), _convolution(96, 3, 1, 1)),
        _averaged(averaged),
    ]


def _b() -> list[HybridBlock]:
    """Branches from 35x35 to 17x17."""
    return [
        row(_convolution(384, 3, 2)),
        row(_convolution(64, 1), _convolution(96, 3, 1, 1), _convolution(96, 3, 2)),
        row(nn.MaxPool2D(pool_size=3, strides=2)),
    ]


def _c(inner: int) -> list[HybridBlock]:
    """Branches of 17x17."""
    return [
        row(_convolution(192, 1)),
        row(_convolution(inner, 1), _wide(inner, 7), _high(192, 7)),
        row(_convolution(inner, 1), _high(inner, 7), _wide(inner, 7), _high(inner, 7), _wide(192, 7)),
        _averaged(192),
    ]


def _d() -> list[HybridBlock]:
    """Branches from 17x17 to 8x8."""
    return [
        row(_convolution(192, 1), _convolution(320, 3, 2)),
        row(_convolution(192, 1), _wide(192, 7), _high(192, 7), _convolution(192, 3, 2)),
        row(nn.MaxPool2D(pool_size=3, strides=2)),
    ]


def _e() -> list[HybridBlock]:
    """Branches of 8x8."""

    def split() -> HybridBlock:
        return beside(row(_wide(384, 3)), row(_high(384, 3)))

    return [
        row(_convolution(320, 1)),
        row(row(_convolution(384, 1)), split()),
        row(row(_convolution(448, 1), _convolution(384, 3, 1, 1)), split()),
        _averaged(192),
    ]


_MODULES = (
    ("A1_", _a, 32), ("A2_", _a, 64), ("A3_", _a, 64), ("B_", _b),
    ("C1_", _c, 128), ("C2_", _c, 160), ("C3_", _c, 160), ("C4_", _c, 192),
    ("D_", _d), ("E1_", _e), ("E2_", _e),
)  # fmt: skip


class Inception3(HybridBlock):
    """x: (N, 3, 299, 299) -> (N, classes)."""

    def __init__(self, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = row(
                _convolution(32, 3, 2),
                _convolution(32, 3),
                _convolution(64, 3, 1, 1),
                nn.MaxPool2D(pool_size=3, strides=2),
                _convolution(80, 1),
                _convolution(192, 3),
                nn.MaxPool2D(pool_size=3, strides=2),
            )
            for prefix, branches, *channels in _MODULES:
                module = beside(prefix=prefix)
                with module.name_scope():
                    module.add(*branches(*channels))
                self.features.add(module)
            self.features.add(nn.AvgPool2D(pool_size=8), nn.Dropout(0.5))
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return self.output(self.features(x))


def inception_v3(pretrained: bool = False, ctx: Any = None, root: str = HOME, **kwargs: Any) -> Inception3:
    """Inception 3."""
    made: Inception3 = filled(Inception3(**kwargs), "inceptionv3", pretrained, ctx, root)
    return made
