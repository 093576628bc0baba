"""Planned programs, before any of their arrays exists."""

from __future__ import annotations

from dataclasses import dataclass

from ...graph import Graph
from ...memplan import MemoryPlan
from ..request.watch import Seen
from .candidates import Candidates
from .lower import Lowered


@dataclass(frozen=True)
class Planned:
    """Result of planning in `bind`, before any array exists."""

    asked: Candidates
    infer: Lowered
    infer_plan: MemoryPlan
    train: Lowered
    train_plan: MemoryPlan
    shown: tuple[Seen, ...] = ()

    @property
    def graph(self) -> Graph:
        """The graph with all shapes and types but those of mixed precision."""
        return self.asked.inferred

    @property
    def lowered(self) -> tuple[Lowered, Lowered]:
        """Training and inference."""
        return self.train, self.infer
