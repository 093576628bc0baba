"""What a program will be, before any of its arrays exists."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph import Graph
from ..memplan import MemoryPlan
from .candidates import Candidates
from .lower import Lowered
from .watch import Seen


@dataclass(frozen=True)
class Planned:
    """What `bind` has worked out before any array exists."""

    asked: Candidates
    infer: Lowered
    infer_plan: MemoryPlan
    train: Lowered
    train_plan: MemoryPlan
    shown: tuple[Seen, ...] = ()

    @property
    def graph(self) -> Graph:
        """With all shapes and types but those of mixed precision."""
        return self.asked.inferred

    @property
    def lowered(self) -> tuple[Lowered, Lowered]:
        """Training and inference."""
        return self.train, self.infer
