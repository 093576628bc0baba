"""Cells on top of each other."""

from __future__ import annotations

from typing import Any

from ... import ndarray as nd
from ..blocks.block import Block
from .cell import HybridRecurrentCell, RecurrentCell
from .sequence import module_of, places


def infos(cells: Any, batch_size: int) -> list[dict[str, Any]]:
    """The states of several cells in a row."""
    return [info for c in cells for info in c.state_info(batch_size)]


class _Stack(RecurrentCell):
    """What both have in common: the states of all cells in one list."""

    def add(self, cell: Block) -> None:
        """Put a cell on top."""
        self.register_child(cell)

    @property
    def cells(self) -> list[Any]:
        """The cells from the bottom up."""
        return list(self._children.values())

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of each state of all cells."""
        return infos(self.cells, batch_size)

    def begin_state(self, batch_size: int = 0, func: Any = nd.zeros, **kwargs: Any) -> list[Any]:
        """States of all cells to begin with."""
        return [s for c in self.cells for s in c.begin_state(batch_size=batch_size, func=func, **kwargs)]

    def _through(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """One place, cell by cell."""
        new: list[Any] = []
        at = 0
        for cell in self.cells:
            count = len(cell.state_info())
            inputs, own = cell(inputs, list(states[at : at + count]))
            new += own
            at += count
        return inputs, new

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """Cell by cell, each over the whole sequence; see `RecurrentCell.unroll`."""
        self.reset()
        F = module_of(inputs)
        steps: Any = places(length, inputs, layout)
        states = self._start(F, steps[0], begin_state)
        new: list[Any] = []
        at = 0
        for i, cell in enumerate(self.cells):
            count = len(cell.state_info())
            merge = merge_outputs if i == len(self.cells) - 1 else None
            steps, own = cell.unroll(length, steps, states[at : at + count], layout, merge, valid_length)
            new += own
            at += count
        return steps, new

    def __getitem__(self, i: int) -> Any:
        return self.cells[i]

    def __len__(self) -> int:
        return len(self._children)


class SequentialRNNCell(_Stack):
    """Cells on top of each other, of any kind."""

    def forward(self, inputs: Any, states: Any) -> Any:
        """The top cell's output and the new states of all."""
        return self._through(inputs, states)


class HybridSequentialRNNCell(_Stack, HybridRecurrentCell):
    """Hybrid cells on top of each other."""

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        """The top cell's output and the new states of all."""
        return self._through(inputs, states)
