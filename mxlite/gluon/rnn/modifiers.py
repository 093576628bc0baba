"""Cells that change another cell, and DropoutCell."""

from __future__ import annotations

from typing import Any

from ... import ndarray as nd
from ...core.errors import ArgumentError
from .bidirectional import BidirectionalCell
from .cell import HybridRecurrentCell
from .sequence import masked, merged, module_of, places


class DropoutCell(HybridRecurrentCell):
    """Dropout of the inputs; it has no states."""

    def __init__(self, rate: float, axes: Any = (), prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix, params)
        self._rate = rate
        self._axes = axes

    def _alias(self) -> str:
        return "dropout"

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """None."""
        return []

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        """The inputs, of which some are 0 in training."""
        return (F.Dropout(inputs, p=self._rate, axes=self._axes) if self._rate > 0 else inputs), states

    def __call__(self, inputs: Any, states: Any) -> Any:
        """The inputs, of which some are 0 in training, and `states`, an empty list."""
        F = module_of(inputs)
        return self.hybrid_forward(F, inputs, states)


class ModifierCell(HybridRecurrentCell):
    """Base of cells that change another one, whose parameters they have."""

    def __init__(self, base_cell: Any) -> None:
        if base_cell._modified:
            raise ArgumentError(f"Cell {base_cell.name!r} is inside of another modifier already.")
        base_cell._modified = True
        super().__init__(prefix=base_cell.prefix + self._alias(), params=None)
        self.base_cell = base_cell

    @property
    def params(self) -> Any:
        """The other cell's parameters."""
        return self.base_cell.params if "base_cell" in self.__dict__ else self._params

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Those of the other cell."""
        found: list[dict[str, Any]] = self.base_cell.state_info(batch_size)
        return found

    def begin_state(self, batch_size: int = 0, func: Any = nd.zeros, **kwargs: Any) -> list[Any]:
        """Those of the other cell."""
        self.base_cell._modified = False
        try:
            begin: list[Any] = self.base_cell.begin_state(batch_size=batch_size, func=func, **kwargs)
        finally:
            self.base_cell._modified = True
        return begin

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_cell!r})"


class ZoneoutCell(ModifierCell):
    """Elements of outputs and states stay with these probabilities in training as they were at the last
    place.

    Krueger et al. 2017.
    """

    def __init__(self, base_cell: Any, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0) -> None:
        if isinstance(base_cell, BidirectionalCell):
            raise ArgumentError(
                "ZoneoutCell: a BidirectionalCell runs no single place; put it around its two cells."
            )
        super().__init__(base_cell)
        self._outputs, self._states = zoneout_outputs, zoneout_states
        self._before: Any = None

    def _alias(self) -> str:
        return "zoneout"

    def reset(self) -> None:
        """Forget the last output."""
        super().reset()
        self._before = None

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        """The output and the new states."""
        out, new = self.base_cell(inputs, states)

        def mixed(rate: float, fresh: Any, old: Any) -> Any:
            if rate == 0:
                return fresh
            drawn = F.Dropout(F.ones_like(fresh), p=rate)
            return F.where(drawn, fresh, F.zeros_like(fresh) if old is None else old)

        out = mixed(self._outputs, out, self._before)
        self._before = out
        return out, [mixed(self._states, a, b) for a, b in zip(new, states)]

    def __call__(self, inputs: Any, states: Any) -> Any:
        """The output and the new states. It remembers its last output, and so never is a program of its
        own.
        """
        return self.hybrid_forward(module_of(inputs), inputs, states)


class ResidualCell(ModifierCell):
    """The other cell's output plus its input. Wu et al. 2016."""

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        """The output and the new states."""
        out, new = self.base_cell(inputs, states)
        return out + inputs, new

    def _alias(self) -> str:
        return "residual"

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """See `RecurrentCell.unroll`; behind `valid_length` outputs are 0."""
        self.reset()
        steps = places(length, inputs, layout)
        outputs, states = self.base_cell.unroll(length, steps, begin_state, layout, None, valid_length)
        if valid_length is not None:
            steps = masked(module_of(steps), steps, valid_length)
        outputs = [o + x for o, x in zip(outputs, steps)]
        return (merged(outputs, layout) if merge_outputs else outputs), states
