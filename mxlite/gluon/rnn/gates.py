"""The gates of cells, in any layout: what RNN, LSTM and GRU make of products of an input and of the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .cell import HybridRecurrentCell

Activated = Callable[..., Any]


class Gates(NamedTuple):
    """A cell's place in a graph: its module of operators, the names of its nodes, where its gates lie.

    F: mx.nd or mx.sym.  prefix: of the names of nodes, as "t0_".  activated(F, x, activation, **named): the
    cell's own way to apply one.  axis: along which the gates lie side by side.
    """

    F: Any
    prefix: str
    activated: Activated
    axis: int = 1

    def lstm(
        self,
        gates: Any,
        c: Any,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        out: str = "out",
    ) -> tuple[Any, Any]:
        """h' = o tanh(c') and c' = f c + i g, of the sums of the gates i, f, g, o; h' is the node `out`."""
        F, named = self.F, self.prefix
        parts = F.SliceChannel(gates, num_outputs=4, axis=self.axis, name=f"{named}slice")
        i, f, o = (
            self.activated(F, parts[at], recurrent_activation, name=f"{named}{gate}")
            for at, gate in ((0, "i"), (1, "f"), (3, "o"))
        )
        g = self.activated(F, parts[2], activation, name=f"{named}c")
        c = F.elemwise_add(f * c, i * g, name=f"{named}state")
        return F.elemwise_mul(o, self.activated(F, c, activation), name=f"{named}{out}"), c

    def gru(self, i2h: Any, h2h: Any, h: Any, activation: Any = "tanh") -> Any:
        """h' = (1 - z) tanh(x + r y) + z h, of the gates r, z and of x, y in both products; cuDNN's form."""
        F, named = self.F, self.prefix
        ri, zi, gi = F.SliceChannel(i2h, num_outputs=3, axis=self.axis, name=f"{named}i2h_slice")
        rh, zh, gh = F.SliceChannel(h2h, num_outputs=3, axis=self.axis, name=f"{named}h2h_slice")
        r = F.sigmoid(ri + rh, name=f"{named}r_act")
        z = F.sigmoid(zi + zh, name=f"{named}z_act")
        fresh = (1.0 - z) * self.activated(F, gi + r * gh, activation, name=f"{named}h_act")
        return F.elemwise_add(fresh, z * h, name=f"{named}out")


class GatedCell(HybridRecurrentCell):
    """A cell with weights and biases of inputs and of the state for some gates, which lie side by side.

    A subclass says which gates there are (`RNNStep`, `LSTMStep`, `GRUStep`), another one how a weight is
    applied (`_product`).
    """

    _kind: str
    _gates: int
    _num_states = 1
    _axis = 1  # of the gates
    _activation: Any = "tanh"
    _recurrent_activation: Any = "sigmoid"

    def _parameter(self, name: str, shape: tuple[int, ...], init: Any) -> Any:
        return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)

    def _product(self, F: Any, name: str, value: Any, weight: Any, bias: Any) -> Any:
        """The product of the input (`name` is "i2h") or of the state ("h2h")."""
        raise NotImplementedError

    def _products(self, F: Any, x: Any, state: Any, p: dict[str, Any]) -> tuple[Any, Any]:
        """W x + b and V h + c."""
        i2h, h2h = (
            self._product(F, name, value, p[f"{name}_weight"], p[f"{name}_bias"])
            for name, value in (("i2h", x), ("h2h", state))
        )
        return i2h, h2h

    def _gates_at_place(self, F: Any) -> Gates:
        """The gates at this place of the sequence, whose nodes MXNet names t0_out and so on."""
        return Gates(F, f"t{self._counter}_", self._get_activation, self._axis)


class RNNStep(GatedCell):
    """h' = activation(W x + b + V h + c)."""

    _kind = "rnn"
    _gates = 1

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **params: Any) -> Any:
        """The output and the new states."""
        i2h, h2h = self._products(F, inputs, states[0], params)
        out = self._get_activation(F, i2h + h2h, self._activation, name=f"t{self._counter}_out")
        return out, [out]


class LSTMStep(GatedCell):
    """c' = f c + i g, h' = o tanh(c'), with the gates i, f, g, o of W x + b + V h + c; states h and c."""

    _kind = "lstm"
    _gates = 4
    _num_states = 2

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **params: Any) -> Any:
        """The output and the new states."""
        i2h, h2h = self._products(F, inputs, states[0], params)
        out, cell = self._gates_at_place(F).lstm(
            i2h + h2h, states[1], self._activation, self._recurrent_activation
        )
        return out, [out, cell]


class GRUStep(GatedCell):
    """h' = (1 - z) tanh(W x + b + r (V h + c)) + z h, with the gates r, z; cuDNN's form."""

    _kind = "gru"
    _gates = 3

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **params: Any) -> Any:
        """The output and the new states."""
        i2h, h2h = self._products(F, inputs, states[0], params)
        out = self._gates_at_place(F).gru(i2h, h2h, states[0], self._activation)
        return out, [out]
