"""Sequential and HybridSequential: blocks one after another."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from ..blocks.block import Block, wanted_block
from ..blocks.hybrid_block import HybridBlock


class _Row(Block):
    """What both have in common: children by number."""

    def add(self, *blocks: Block) -> None:
        """Append blocks."""
        for block in blocks:
            self.register_child(wanted_block(f"{type(self).__name__}.add: the block", block))

    def __getitem__(self, key: int | slice) -> Any:
        found = list(self._children.values())[key]
        if not isinstance(found, list):
            return found
        part = type(self)(prefix=self._prefix)
        part.add(*found)
        return part

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._children.values())

    def _through(self, x: Any, args: tuple[Any, ...]) -> Any:
        """`x` sent through all children; each but the last returns what the next one takes."""
        for block in self._children.values():
            x = block(x, *args)
            args = ()
            if isinstance(x, (tuple, list)):
                x, args = x[0], tuple(x[1:])
        return (x, *args) if args else x


class Sequential(_Row):
    """Blocks one after another, of any kind."""

    def forward(self, x: Any, *args: Any) -> Any:
        """The last block's outputs."""
        return self._through(x, args)

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridize all children, each by itself."""
        if self._children and all(isinstance(c, HybridBlock) for c in self._children.values()):
            warnings.warn(
                f"All children of {self.name!r} are hybrid blocks: as a HybridSequential they would be one "
                f"program, as a Sequential each is one.",
                stacklevel=2,
            )
        super().hybridize(active, **kwargs)


class HybridSequential(_Row, HybridBlock):
    """Hybrid blocks one after another: one bound program when hybridized."""

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        """The last block's outputs."""
        return self._through(x, args)
