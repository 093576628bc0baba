"""RNNCell, LSTMCell and GRUCell."""

from __future__ import annotations

from typing import Any

from .cell import HybridRecurrentCell


class _GatedCell(HybridRecurrentCell):
    """What all have in common: weights and biases of inputs and of the state for some gates.

    inputs: (N, C); states: (N, hidden_size) each -> output: (N, hidden_size).
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
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size = hidden_size
        rows = self._gates * hidden_size

        def get(name: str, shape: tuple[int, ...], init: Any) -> Any:
            return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)

        self.i2h_weight = get("i2h_weight", (rows, input_size), i2h_weight_initializer)
        self.h2h_weight = get("h2h_weight", (rows, hidden_size), h2h_weight_initializer)
        self.i2h_bias = get("i2h_bias", (rows,), i2h_bias_initializer)
        self.h2h_bias = get("h2h_bias", (rows,), h2h_bias_initializer)

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of each state."""
        info = {"shape": (batch_size, self._hidden_size), "__layout__": "NC"}
        return [dict(info) for _ in range(self._num_states)]

    def reset(self) -> None:
        """Begin a new sequence: the next call is that of place 0."""
        super().reset()
        self._place = -1

    def _named(self, name: str) -> str:
        """A node's name at this place of the sequence, as MXNet has it: t0_out."""
        return f"t{self._place}_{name}"

    def _products(self, F: Any, x: Any, state: Any, p: dict[str, Any]) -> tuple[Any, Any]:
        """W x + b and V h + c of the next place, the gates side by side."""
        self._place += 1
        i2h, h2h = (
            F.FullyConnected(
                value,
                p[f"{name}_weight"],
                p[f"{name}_bias"],
                num_hidden=self._gates * self._hidden_size,
                name=self._named(name),
            )
            for name, value in (("i2h", x), ("h2h", state))
        )
        return i2h, h2h

    def __repr__(self) -> str:
        shape = self.i2h_weight.shape
        return f"{type(self).__name__}({shape[1] or None} -> {shape[0]})"


def _activated(F: Any, x: Any, activation: Any, name: str | None = None) -> Any:
    return F.Activation(x, act_type=activation, name=name) if isinstance(activation, str) else activation(x)


class RNNCell(_GatedCell):
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
        out = _activated(F, i2h + h2h, self._activation, self._named("out"))
        return out, [out]


class LSTMCell(_GatedCell):
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
        i, f, g, o = F.SliceChannel(i2h + h2h, num_outputs=4, name=self._named("slice"))
        i, f, o = (_activated(F, gate, self._recurrent_activation) for gate in (i, f, o))
        cell = f * states[1] + i * _activated(F, g, self._activation)
        out = F.elemwise_mul(o, _activated(F, cell, self._activation), name=self._named("out"))
        return out, [out, cell]


class GRUCell(_GatedCell):
    """h' = (1 - z) tanh(W x + b + r (V h + c)) + z h, with the gates r, z; cuDNN's form."""

    _gates = 3

    def _alias(self) -> str:
        return "gru"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **params: Any) -> Any:
        """The output and the new states."""
        i2h, h2h = self._products(F, inputs, states[0], params)
        ri, zi, gi = F.SliceChannel(i2h, num_outputs=3, name=self._named("i2h_slice"))
        rh, zh, gh = F.SliceChannel(h2h, num_outputs=3, name=self._named("h2h_slice"))
        r = F.sigmoid(ri + rh, name=self._named("r_act"))
        z = F.sigmoid(zi + zh, name=self._named("z_act"))
        fresh = (1.0 - z) * F.tanh(gi + r * gh, name=self._named("h_act"))
        out = F.elemwise_add(fresh, z * states[0], name=self._named("out"))
        return out, [out]
