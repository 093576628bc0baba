"""LSTMPCell, VariationalDropoutCell, and dynamic_unroll: a cell over a sequence as one loop."""

from __future__ import annotations

from typing import Any

from ....core.errors import ArgumentError
from ...rnn import BidirectionalCell, ModifierCell
from ...rnn.gated_cells import DenseCell
from ...rnn.gates import LSTMStep
from ...rnn.sequence import merged, module_of, places


class LSTMPCell(LSTMStep, DenseCell):
    """LSTMCell whose output is a projection of h, r = P h; states r and c. Sak and others 2014.

    inputs: (N, C); states: (N, projection_size) and (N, hidden_size) -> output: (N, projection_size).
    """

    _kind = "lstmp"

    def __init__(
        self,
        hidden_size: int,
        projection_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        h2r_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(
            hidden_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            input_size,
            prefix,
            params,
            projection_size,
            h2r_weight_initializer,
        )

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of both states."""
        sizes = (self._projection_size, self._hidden_size)
        return [{"shape": (batch_size, size), "__layout__": "NC"} for size in sizes]

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **params: Any) -> Any:
        """The output and the new states."""
        i2h, h2h = self._products(F, inputs, states[0], params)
        hidden, cell = self._gates_at_place(F).lstm(i2h + h2h, states[1], out="hidden")
        out = F.FullyConnected(
            hidden,
            params["h2r_weight"],
            no_bias=True,
            num_hidden=self._projection_size,
            name=f"t{self._counter}_out",
        )
        return out, [out, cell]

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} -> {self._projection_size})"


class VariationalDropoutCell(ModifierCell):
    """Dropout of the inputs, the first state and the outputs of a cell, by the same masks at all places until
    `reset()`. Gal and Ghahramani 2016.
    """

    def __init__(
        self,
        base_cell: Any,
        drop_inputs: float = 0.0,
        drop_states: float = 0.0,
        drop_outputs: float = 0.0,
    ) -> None:
        if drop_states and isinstance(base_cell, BidirectionalCell):
            raise ArgumentError(
                "VariationalDropoutCell: drop_states needs a cell that runs single places, which a "
                "BidirectionalCell does not; put it around its two cells."
            )
        super().__init__(base_cell)
        self.drop_inputs, self.drop_states, self.drop_outputs = drop_inputs, drop_states, drop_outputs

    def _alias(self) -> str:
        return "vardrop"

    def reset(self) -> None:
        """Begin a new sequence, with new masks."""
        super().reset()
        self._masks: dict[str, Any] = {}

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        """The output and the new states."""

        def dropped(what: str, value: Any, rate: float) -> Any:
            if not rate:
                return value
            if what not in self._masks:
                self._masks[what] = F.Dropout(F.ones_like(value), p=rate)
            return value * self._masks[what]

        first, *others = states
        states = [dropped("states", first, self.drop_states), *others]
        out, new = self.base_cell(dropped("inputs", inputs, self.drop_inputs), states)
        return dropped("outputs", out, self.drop_outputs), new

    def __call__(self, inputs: Any, states: Any) -> Any:
        """The output and the new states. It remembers its masks, and so never is a program of its own."""
        return self.hybrid_forward(module_of(inputs), inputs, states)

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """See `RecurrentCell.unroll`. Where no state is dropped, the other cell unrolls over inputs that are
        dropped all at once; outputs are one array then, unless `merge_outputs` is False.
        """
        if self.drop_states:
            return super().unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)
        self.reset()
        F, axis = module_of(inputs), layout.index("T")

        def dropped(value: Any, rate: float) -> Any:
            return F.Dropout(value, p=rate, axes=(axis,)) if rate else value

        if isinstance(inputs, (list, tuple)):
            inputs = merged(list(inputs), layout)
        outputs, states = self.base_cell.unroll(
            length, dropped(inputs, self.drop_inputs), begin_state, layout, True, valid_length
        )
        outputs = dropped(outputs, self.drop_outputs)
        return (places(length, outputs, layout) if merge_outputs is False else outputs), states


def dynamic_unroll(
    cell: Any,
    inputs: Any,
    begin_state: Any,
    drop_inputs: float = 0,
    drop_outputs: float = 0,
    layout: str = "TNC",
    valid_length: Any = None,
) -> tuple[Any, Any]:
    """The outputs of a cell along a sequence of any length, in `layout`, and the states after it: a loop
    (`contrib.foreach`), so that the graph of symbols has the cell once.

    Dropout of inputs and outputs is by one mask for all places.  valid_length: (N,) lengths; outputs behind
    them are 0, and states are those at the last valid place.
    """
    F = module_of(inputs)
    axis = layout.index("T")

    def time_first(value: Any) -> Any:
        return F.swapaxes(value, dim1=0, dim2=axis) if axis else value

    def dropped(value: Any, rate: float) -> Any:
        return F.Dropout(value, p=rate, axes=(0,)) if rate else value

    def counted(x: Any, states: Any) -> Any:
        """One place; a sample that has ended keeps its states."""
        *before, place = states
        out, new = cell(x, before)
        goes_on = F.broadcast_greater(valid_length, place)
        return out, [*(F.where(goes_on, a, b) for a, b in zip(new, before)), place + 1]

    rows = dropped(time_first(inputs), drop_inputs)
    if valid_length is None:
        outputs, states = F.contrib.foreach(cell, rows, begin_state)
        return time_first(dropped(outputs, drop_outputs)), states
    begin = begin_state if isinstance(begin_state, (list, tuple)) else [begin_state]
    outputs, states = F.contrib.foreach(counted, rows, [*begin, F.zeros((1,))])
    outputs = dropped(outputs, drop_outputs)
    outputs = F.SequenceMask(outputs, valid_length, use_sequence_length=True)
    return time_first(outputs), states[:-1]
