"""Two cells that go through a sequence from both ends."""

from __future__ import annotations

from typing import Any

from ... import symbol
from ...symbol import Symbol
from .base_cell import BaseRNNCell
from .params import RNNParams
from .sequence import as_list, time_axis, Unrolling
from .sequential_cell import CellGroup


class BidirectionalCell(CellGroup):
    """`l_cell` forward, `r_cell` backward; outputs are joined along the channels.

    It can be unrolled, not stepped: the backward half starts at the end.
    """

    def __init__(
        self,
        l_cell: BaseRNNCell,
        r_cell: BaseRNNCell,
        params: RNNParams | None = None,
        output_prefix: str = "bi_",
    ) -> None:
        super().__init__(params)
        self._output_prefix = output_prefix
        self._join(l_cell)
        self._join(r_cell)

    def _unrolled(self, u: Unrolling) -> tuple[Any, Any]:
        """(outputs, [states of l_cell, states of r_cell])."""
        axis, merge = time_axis(u.layout), u.merge_outputs
        steps, states = as_list(u.length, u.inputs, u.layout), self._first_states(u)
        left_cell, right_cell = self._cells
        count = len(left_cell.state_info)
        left, left_states = left_cell.unroll(*u._replace(inputs=steps, begin_state=states[:count]))
        right, right_states = right_cell.unroll(*u._replace(inputs=steps[::-1], begin_state=states[count:]))
        after = [left_states, right_states]
        if merge is None:
            merge = isinstance(left, Symbol) and isinstance(right, Symbol)
            if not merge:
                left, right = self._parted(left, axis, u.length), self._parted(right, axis, u.length)
        if merge:
            back = symbol.reverse(right, axis=axis)
            return symbol.Concat(left, back, dim=2, name=f"{self._output_prefix}out"), after
        pairs = zip(left, list(right)[::-1])
        prefix = f"{self._output_prefix}t"
        return [symbol.Concat(a, b, dim=1, name=f"{prefix}{i}") for i, (a, b) in enumerate(pairs)], after

    @staticmethod
    def _parted(outputs: Any, axis: int, length: int) -> Any:
        if isinstance(outputs, Symbol):
            return list(symbol.SliceChannel(outputs, axis=axis, num_outputs=length, squeeze_axis=1))
        return outputs
