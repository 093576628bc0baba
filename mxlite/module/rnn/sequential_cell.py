"""Stacked cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core import StateError
from ...core.wanted import wanted
from ...ndarray import NDArray
from ...symbol import Symbol
from .base_cell import BaseRNNCell, StateInfo
from .params import RNNParams
from .sequence import Unrolling


class CellGroup(BaseRNNCell):
    """A cell composed of cells: states, weights and parameters are theirs, in order."""

    def __init__(self, params: RNNParams | None = None) -> None:
        super().__init__("", params)
        self._override_cell_params = params is not None
        self._cells: list[BaseRNNCell] = []

    def _join(self, cell: BaseRNNCell) -> None:
        """Append `cell`; raises StateError if both have parameters."""
        wanted(f"{type(self).__name__}.add: cell", cell, "an RNN cell", BaseRNNCell)
        if self._override_cell_params:
            if not cell._own_params:
                raise StateError(
                    f"params= is given to the {type(self).__name__} or to its cells, not to both: "
                    f"{type(cell).__name__} {cell._prefix!r} has parameters from elsewhere."
                )
            cell.params.adopt(self.params)
        self.params.adopt(cell.params)
        self._cells.append(cell)

    def reset(self) -> None:
        super().reset()
        for cell in self._cells:
            cell.reset()

    @property
    def state_info(self) -> list[StateInfo]:
        return [info for cell in self._cells for info in cell.state_info]

    def begin_state(self, **kwargs: Any) -> list[Any]:  # type: ignore[override]  # MXNet's signature
        self._must_be_free()
        return [state for cell in self._cells for state in cell.begin_state(**kwargs)]

    def unpack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        args = dict(args)
        for cell in self._cells:
            args = cell.unpack_weights(args)
        return args

    def pack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        args = dict(args)
        for cell in self._cells:
            args = cell.pack_weights(args)
        return args


class SequentialRNNCell(CellGroup):
    """A stack: each cell's output is the next one's input. States are those of all cells, one after another.

    `params` are for all cells, which then must have none of their own.
    """

    def add(self, cell: BaseRNNCell) -> None:
        """Put a cell on top."""
        self._join(cell)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        self._counter += 1
        after: list[Symbol] = []
        at = 0
        for cell in self._cells:
            count = len(cell.state_info)
            inputs, new = cell(inputs, states[at : at + count])
            at += count
            after += new
        return inputs, after

    def _unrolled(self, u: Unrolling) -> tuple[Any, Any]:
        """All steps of the first cell, then all of the second, and so on."""
        states, inputs = self._first_states(u), u.inputs
        after: list[Any] = []
        at = 0
        for i, cell in enumerate(self._cells):
            count = len(cell.state_info)
            merge = u.merge_outputs if i == len(self._cells) - 1 else None
            inputs, new = cell.unroll(u.length, inputs, states[at : at + count], u.layout, merge)
            at += count
            after += new
        return inputs, after
