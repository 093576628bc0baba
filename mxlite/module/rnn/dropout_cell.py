"""Dropout as a layer of a stack of cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import symbol
from ...core.errors import OpAttributeError
from ...symbol import Symbol
from .base_cell import BaseRNNCell, StateInfo
from .params import RNNParams
from .sequence import Unrolling


class DropoutCell(BaseRNNCell):
    """Passes its inputs on, each with probability `dropout` as 0, the rest scaled. Has no states."""

    def __init__(self, dropout: float, prefix: str = "dropout_", params: RNNParams | None = None) -> None:
        super().__init__(prefix, params)
        if not isinstance(dropout, (int, float)):
            raise OpAttributeError(f"DropoutCell: dropout is a number from 0 to 1, got {dropout!r}.")
        self.dropout = dropout

    @property
    def state_info(self) -> list[StateInfo]:
        return []

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        if self.dropout > 0:
            inputs = symbol.Dropout(data=inputs, p=self.dropout)
        return inputs, list(states)

    def _unrolled(self, u: Unrolling) -> tuple[Any, Any]:
        """One node for a sequence that is one symbol, else one for each step."""
        inputs = u.asked(u.inputs)
        if isinstance(inputs, Symbol):
            return self(inputs, [])
        return super()._unrolled(u._replace(inputs=inputs))
