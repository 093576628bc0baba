"""Blocks one after another and side by side, as in Inception, SqueezeNet and DenseNet."""

from __future__ import annotations

from ... import nn
from ...blocks.hybrid_block import HybridBlock
from ...contrib.nn import HybridConcurrent


def row(*blocks: HybridBlock) -> nn.HybridSequential:
    """Blocks one after another, without a prefix of their own."""
    made = nn.HybridSequential(prefix="")
    made.add(*blocks)
    return made


def beside(*blocks: HybridBlock, prefix: str = "") -> HybridConcurrent:
    """Blocks side by side, their channels joined."""
    made = HybridConcurrent(axis=1, prefix=prefix)
    made.add(*blocks)
    return made
