"""RNNCell, LSTMCell and GRUCell."""

from __future__ import annotations

from typing import Any

from .gates import GatedCell, GRUStep, LSTMStep, RNNStep


class DenseCell(GatedCell):
    """A cell whose weights are matrices.

    inputs: (N, C); states: (N, hidden_size) each -> output: (N, hidden_size). With a `projection_size` the
    output and the first state are (N, projection_size), products of the hidden values and one more weight.
    """

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
        rows, outputs, get = self._gates * hidden_size, projection_size or hidden_size, self._parameter
        self.i2h_weight = get("i2h_weight", (rows, input_size), i2h_weight_initializer)
        self.h2h_weight = get("h2h_weight", (rows, outputs), h2h_weight_initializer)
        if projection_size:
            self.h2r_weight = get("h2r_weight", (projection_size, hidden_size), h2r_weight_initializer)
        self.i2h_bias = get("i2h_bias", (rows,), i2h_bias_initializer)
        self.h2h_bias = get("h2h_bias", (rows,), h2h_bias_initializer)

    def _alias(self) -> str:
        return self._kind

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of each state."""
        info = {"shape": (batch_size, self._hidden_size), "__layout__": "NC"}
        return [dict(info) for _ in range(self._num_states)]

    def _product(self, F: Any, name: str, value: Any, weight: Any, bias: Any) -> Any:
        rows = self._gates * self._hidden_size
        return F.FullyConnected(value, weight, bias, num_hidden=rows, name=f"t{self._counter}_{name}")

    def __repr__(self) -> str:
        shape = self.i2h_weight.shape
        return f"{type(self).__name__}({shape[1] or None} -> {shape[0]})"


class RNNCell(RNNStep, DenseCell):
    """h' = activation(W x + b + V h + c)."""

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


class LSTMCell(LSTMStep, DenseCell):
    """c' = f c + i g, h' = o tanh(c'), with the gates i, f, g, o of W x + b + V h + c; states h and c."""

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


class GRUCell(GRUStep, DenseCell):
    """h' = (1 - z) tanh(W x + b + r (V h + c)) + z h, with the gates r, z; cuDNN's form."""
