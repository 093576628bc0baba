"""What a program will be, before any of its arrays exists."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph import Graph
from ..memplan import MemoryPlan
from .lower import Lowered
from .watch import Seen


@dataclass(frozen=True)
class Planned:
    """What `bind` has worked out before any array exists."""

    graph: Graph
    infer: Lowered
    infer_plan: MemoryPlan
    train: Lowered
    train_plan: MemoryPlan
    shown: tuple[Seen, ...] = ()

    @property
    def lowered(self) -> tuple[Lowered, Lowered]:
        """Training and inference."""
        return self.train, self.infer
