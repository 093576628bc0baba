"""RecurrentCell: one place of a recurrent net, `outputs, states = cell(inputs, states)`, and its
unrolling.
"""

from __future__ import annotations

from typing import Any

from ... import ndarray as nd, symbol as sym
from ...core import StateError
from ...core.errors import MissingMethodError
from ..blocks.block import Block
from ..blocks.hybrid_block import HybridBlock
from .sequence import masked, merged, module_of, places
from .states import zeros_for


class RecurrentCell(Block):
    """Base of cells. A subclass says in `state_info` which states it has."""

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._modified = False
        self.reset()

    def reset(self) -> None:
        """Begin a new sequence: cells that remember something forget it, and the next call is of place 0."""
        self._counter = -1
        for child in self._children.values():
            if isinstance(child, RecurrentCell):
                child.reset()

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of each state."""
        raise MissingMethodError(f"{type(self).__name__} must define state_info(batch_size).")

    def begin_state(self, batch_size: int = 0, func: Any = nd.zeros, **kwargs: Any) -> list[Any]:
        """States to begin with, zeros unless `func` makes others. StateError below a modifier cell."""
        if self._modified:
            raise StateError(
                f"{self.name!r} is inside of a modifier cell, such as ZoneoutCell: call that one's "
                f"begin_state."
            )
        made = []
        for i, info in enumerate(self.state_info(batch_size)):
            given = {"name": f"{self.prefix}begin_state_{i}"} if func is sym.zeros else {}
            made.append(func(shape=info["shape"], **given, **kwargs))
        return made

    def forward(self, inputs: Any, states: Any) -> Any:
        """The output and the new states at the next place of the sequence, whose number names the nodes."""
        self._counter += 1
        return super().forward(inputs, states)

    def _get_activation(self, F: Any, inputs: Any, activation: Any, **named: Any) -> Any:
        """`inputs` under an activation, which is told by its name or is a function such as a block."""
        if isinstance(activation, str):
            return F.Activation(inputs, act_type=activation, **named)
        return activation(inputs)

    def _start(self, F: Any, inputs: Any, states: Any) -> Any:
        """`states`, or zeros for inputs of this batch size, (N, ...)."""
        if states is not None:
            return states
        return zeros_for([info["shape"] for info in self.state_info()], inputs, F, 0)

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """The outputs at `length` places, and the states after the last.

        inputs: one array in `layout`, or a list of places.  merge_outputs: True for one array of outputs,
        else a list.  valid_length: (N,) lengths; outputs behind them are 0, and states are those at the last
        valid place.
        """
        self.reset()
        F = module_of(inputs)
        steps = places(length, inputs, layout)
        states = self._start(F, steps[0], begin_state)
        outputs, history = [], []
        for x in steps:
            out, states = self(x, states)
            outputs.append(out)
            history.append(states)
        if valid_length is not None:
            states = [
                F.SequenceLast(F.stack(*each, axis=0), valid_length, use_sequence_length=True)
                for each in zip(*history)
            ]
            outputs = masked(F, outputs, valid_length)
        return (merged(outputs, layout) if merge_outputs else outputs), states


class HybridRecurrentCell(RecurrentCell, HybridBlock):
    """A cell that is a hybrid block: `hybrid_forward(F, inputs, states, **params)`."""

    def hybrid_forward(self, F: Any, *args: Any, **kwargs: Any) -> Any:
        """The output and the new states."""
        raise MissingMethodError(f"{type(self).__name__} has no hybrid_forward.")
