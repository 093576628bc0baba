"""RNNCell, LSTMCell and GRUCell."""

from __future__ import annotations

from typing import Any

from .cell import HybridRecurrentCell
from .gates import Gates


class GatedCell(HybridRecurrentCell):
    """What all have in common: weights and biases of inputs and of the state for some gates.

    inputs: (N, C); states: (N, hidden_size) each -> output: (N, hidden_size). With a `projection_size` the
    output and the first state are (N, projection_size), products of the hidden values and one more weight.
    """

    _gates: int
    _num_states = 1

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
        projection_size: int | None = None,
        h2r_weight_initializer: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size = hidden_size
        self._input_size = input_size
        self._projection_size = projection_size
        rows = self._gates * hidden_size

        def get(name: str, shape: tuple[int, ...], init: Any) -> Any:
            return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)

        self.i2h_weight = get("i2h_weight", (rows, input_size), i2h_weight_initializer)
        outputs = projection_size or hidden_size
        self.h2h_weight = get("h2h_weight", (rows, outputs), h2h_weight_initializer)
        if projection_size:
            self.h2r_weight = get("h2r_weight", (projection_size, hidden_size), h2r_weight_initializer)
        self.i2h_bias = get("i2h_bias", (rows,), i2h_bias_initializer)
        self.h2h_bias = get("h2h_bias", (rows,), h2h_bias_initializer)

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of each state."""
        info = {"shape": (batch_size, self._hidden_size), "__layout__": "NC"}
        return [dict(info) for _ in range(self._num_states)]

    def _gates_at_place(self, F: Any) -> Gates:
        """The gates at this place of the sequence, whose nodes MXNet names t0_out and so on."""
        return Gates(F, f"t{self._counter}_", self._get_activation)

    def _products(self, F: Any, x: Any, state: Any, p: dict[str, Any]) -> tuple[Any, Any]:
        """W x + b and V h + c, the gates side by side."""
        i2h, h2h = (
            F.FullyConnected(
                value,
                p[f"{name}_weight"],
                p[f"{name}_bias"],
                num_hidden=self._gates * self._hidden_size,
                name=f"t{self._counter}_{name}",
            )
            for name, value in (("i2h", x), ("h2h", state))
        )
        return i2h, h2h

    def __repr__(self) -> str:
        shape = self.i2h_weight.shape
        return f"{type(self).__name__}({shape[1] or None} -> {shape[0]})"


class RNNCell(GatedCell):
    """h' = activation(W x + b + V h + c)."""

    _gates = 1

    def __init__(
        self,
        hidden_size: int,
        activation: Any = "tanh",
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
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
        )
        self._activation = activation

    def _alias(self) -> str:
        return "rnn"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **params: Any) -> Any:
        """The output and the new states."""
        i2h, h2h = self._products(F, inputs, states[0], params)
        out = self._get_activation(F, i2h + h2h, self._activation, name=f"t{self._counter}_out")
        return out, [out]


class LSTMCell(GatedCell):
    """c' = f c + i g, h' = o tanh(c'), with the gates i, f, g, o of W x + b + V h + c; states h and c."""

    _gates = 4
    _num_states = 2

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
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
        )
        self._activation = activation
        self._recurrent_activation = recurrent_activation

    def _alias(self) -> str:
        return "lstm"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **params: Any) -> Any:
        """The output and the new states."""
        i2h, h2h = self._products(F, inputs, states[0], params)
        out, cell = self._gates_at_place(F).lstm(
            i2h + h2h, states[1], self._activation, self._recurrent_activation
        )
        return out, [out, cell]


class GRUCell(GatedCell):
    """h' = (1 - z) tanh(W x + b + r (V h + c)) + z h, with the gates r, z; cuDNN's form."""

    _gates = 3

    def _alias(self) -> str:
        return "gru"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **params: Any) -> Any:
        """The output and the new states."""
        i2h, h2h = self._products(F, inputs, states[0], params)
        out = self._gates_at_place(F).gru(i2h, h2h, states[0])
        return out, [out]
