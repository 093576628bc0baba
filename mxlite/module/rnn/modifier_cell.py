"""Cells that wrap another cell and modify it: zoneout and residual connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import symbol
from ...core.errors import MXLiteError
from ...ndarray import NDArray
from ...symbol import Symbol
from .base_cell import BaseRNNCell, StateInfo
from .bidirectional_cell import BidirectionalCell
from .fused_cell import FusedRNNCell
from .params import RNNParams
from .sequence import as_asked, Unrolling


class ModifierCell(BaseRNNCell):
    """A cell with the parameters, states and weights of `base_cell`, which is not to be called any more."""

    def __init__(self, base_cell: BaseRNNCell) -> None:
        super().__init__()
        base_cell._modified = True
        self.base_cell = base_cell

    @property
    def params(self) -> RNNParams:
        self._own_params = False
        return self.base_cell.params

    @property
    def state_info(self) -> list[StateInfo]:
        return self.base_cell.state_info

    def begin_state(  # type: ignore[override]  # MXNet's signature
        self, init_sym: Callable[..., Any] = symbol.zeros, **kwargs: Any
    ) -> list[Any]:
        self._must_be_free()
        func = kwargs.pop("func", init_sym)
        return self._with_base(lambda cell: cell.begin_state(func=func, **kwargs))

    def _with_base(self, use: Callable[[BaseRNNCell], Any]) -> Any:
        """The result of `use` for the wrapped cell, which may be called meanwhile."""
        self.base_cell._modified = False
        try:
            return use(self.base_cell)
        finally:
            self.base_cell._modified = True

    def unpack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        return self.base_cell.unpack_weights(args)

    def pack_weights(self, args: Mapping[str, NDArray]) -> dict[str, NDArray]:
        return self.base_cell.pack_weights(args)


class ZoneoutCell(ModifierCell):
    """Keeps the last value of an output or state with these probabilities (Krueger et al., 2017)."""

    def __init__(
        self, base_cell: BaseRNNCell, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0
    ) -> None:
        if isinstance(base_cell, (FusedRNNCell, BidirectionalCell)):
            raise MXLiteError(
                f"ZoneoutCell needs a cell that goes step by step; {type(base_cell).__name__} does not: "
                f"unfuse() it, or put ZoneoutCells inside it."
            )
        super().__init__(base_cell)
        self.zoneout_outputs = zoneout_outputs
        self.zoneout_states = zoneout_states
        self.prev_output: Symbol | None = None

    def reset(self) -> None:
        super().reset()
        self.prev_output = None

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        output, after = self.base_cell(inputs, states)
        before = self.prev_output if self.prev_output is not None else symbol.zeros((0, 0))
        if self.zoneout_outputs:
            output = _mostly(self.zoneout_outputs, output, before)
        if self.zoneout_states:
            after = [_mostly(self.zoneout_states, new, old) for new, old in zip(after, states)]
        self.prev_output = output
        return output, after


def _mostly(p: float, new: Symbol, old: Symbol) -> Symbol:
    """`new`, but `old` with probability `p`; in training only."""
    kept: Symbol = symbol.where(symbol.Dropout(symbol.ones_like(new), p=p), new, old)
    return kept


class ResidualCell(ModifierCell):
    """Adds the inputs to the outputs (Wu et al., 2016, "Google's Neural Machine Translation System")."""

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        output, after = self.base_cell(inputs, states)
        return _sum(output, inputs), after

    def _unrolled(self, u: Unrolling) -> tuple[Any, Any]:
        outputs, after = self._with_base(lambda cell: cell.unroll(*u))
        merge = isinstance(outputs, Symbol) if u.merge_outputs is None else u.merge_outputs
        added = as_asked(u.length, u.inputs, u.layout, merge)
        if merge:
            return _sum(outputs, added), after
        return [_sum(o, i) for o, i in zip(outputs, added)], after


def _sum(output: Symbol, inputs: Symbol) -> Symbol:
    total: Symbol = symbol.elemwise_add(output, inputs, name=f"{output.name}_plus_residual")
    return total
