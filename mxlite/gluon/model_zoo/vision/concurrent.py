"""HybridConcurrent and Identity: blocks side by side, as in Inception, SqueezeNet and DenseNet."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...blocks.hybrid_block import HybridBlock


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
