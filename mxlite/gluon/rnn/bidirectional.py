"""BidirectionalCell: one cell from the first place on, one from the last."""

from __future__ import annotations

from typing import Any

from ... import ndarray as nd
from ...core.errors import MissingMethodError
from .cell import HybridRecurrentCell
from .sequence import merged, module_of, places, reversed_places
from .stacked import infos


class BidirectionalCell(HybridRecurrentCell):
    """Two cells, whose outputs are side by side: (N, 2 hidden_size). It runs whole sequences only:
    `unroll`.
    """

    def __init__(self, l_cell: Any, r_cell: Any, output_prefix: str = "bi_") -> None:
        super().__init__(prefix="", params=None)
        self.register_child(l_cell, "l_cell")
        self.register_child(r_cell, "r_cell")
        self._output_prefix = output_prefix

    @property
    def cells(self) -> list[Any]:
        """The cell from the first place on, and that from the last."""
        return list(self._children.values())

    def __call__(self, inputs: Any, states: Any) -> Any:
        """MissingMethodError: what follows is not known at one place."""
        raise MissingMethodError("A BidirectionalCell runs no single place of a sequence: call unroll.")

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of each state of both cells."""
        return infos(self.cells, batch_size)

    def begin_state(self, batch_size: int = 0, func: Any = nd.zeros, **kwargs: Any) -> list[Any]:
        """States of both cells to begin with."""
        return [s for c in self.cells for s in c.begin_state(batch_size=batch_size, func=func, **kwargs)]

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """See `RecurrentCell.unroll`. The second cell begins at each sample's last valid place."""
        self.reset()
        F = module_of(inputs)
        steps = places(length, inputs, layout)
        states = self._start(F, steps[0], begin_state)
        left, right = self.cells
        count = len(left.state_info())
        forth, first = left.unroll(length, steps, states[:count], layout, None, valid_length)
        back, second = right.unroll(
            length, reversed_places(F, steps, valid_length), states[count:], layout, None, valid_length
        )
        back = reversed_places(F, back, valid_length)
        outputs = [
            F.concat(a, b, dim=1, name=f"{self._output_prefix}t{i}")
            for i, (a, b) in enumerate(zip(forth, back))
        ]
        return (merged(outputs, layout) if merge_outputs else outputs), [*first, *second]
