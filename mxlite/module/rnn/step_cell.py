"""The three usual cells: RNNCell, LSTMCell, GRUCell. Each step is a handful of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import symbol
from ...core.wanted import whole
from ...ops import find_op
from ...symbol import Symbol
from ...symbol.functions import apply
from ..initial.initializer import LSTMBias
from .base_cell import BaseRNNCell, StateInfo
from .params import RNNParams


class _StepCell(BaseRNNCell):
    """A cell that adds two products, of its inputs and of its last state."""

    def __init__(self, num_hidden: int, prefix: str, params: RNNParams | None, **i2h_bias: Any) -> None:
        super().__init__(prefix, params)
        self._num_hidden = whole(f"{type(self).__name__}: num_hidden", num_hidden, 1)
        own = self._params
        self._iW, self._hW = own.get("i2h_weight"), own.get("h2h_weight")
        self._iB, self._hB = own.get("i2h_bias", **i2h_bias), own.get("h2h_bias")

    @property
    def state_info(self) -> list[StateInfo]:
        return [{"shape": (0, self._num_hidden), "__layout__": "NC"}]

    def _products(self, inputs: Symbol, state: Symbol, name: str) -> tuple[Symbol, Symbol]:
        """Both for all gates, (N, G * H)."""
        rows = self._num_hidden * len(self._gate_names)
        return tuple(
            symbol.FullyConnected(data=x, weight=w, bias=b, num_hidden=rows, name=f"{name}{kind}")
            for x, w, b, kind in (
                (inputs, self._iW, self._iB, "i2h"),
                (state, self._hW, self._hB, "h2h"),
            )
        )


class RNNCell(_StepCell):
    """out = activation(Wx x + bx + Wh h + bh). `activation`: 'tanh', 'relu', or a function on symbols."""

    def __init__(
        self,
        num_hidden: int,
        activation: Any = "tanh",
        prefix: str = "rnn_",
        params: RNNParams | None = None,
    ) -> None:
        super().__init__(num_hidden, prefix, params)
        self._activation = activation

    _gate_names = ("",)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        self._counter += 1
        name = f"{self._prefix}t{self._counter}_"
        i2h, h2h = self._products(inputs, states[0], name)
        output = self._get_activation(i2h + h2h, self._activation, name=f"{name}out")
        return output, [output]


class LSTMCell(_StepCell):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997). States are h and c, gates i, f, c, o.

    `forget_bias` is the initial bias of the forget gate.
    """

    def __init__(
        self,
        num_hidden: int,
        prefix: str = "lstm_",
        params: RNNParams | None = None,
        forget_bias: float = 1.0,
    ) -> None:
        super().__init__(num_hidden, prefix, params, init=LSTMBias(forget_bias=forget_bias))

    @property
    def state_info(self) -> list[StateInfo]:
        return super().state_info * 2

    _gate_names = ("_i", "_f", "_c", "_o")

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        self._counter += 1
        name = f"{self._prefix}t{self._counter}_"
        i2h, h2h = self._products(inputs, states[0], name)
        return lstm_step(i2h + h2h, states[1], name, "tanh", self)


class GRUCell(_StepCell):
    """Gated recurrent unit (Cho et al., 2014) as cuDNN has it. Gates r, z, o."""

    def __init__(self, num_hidden: int, prefix: str = "gru_", params: RNNParams | None = None) -> None:
        super().__init__(num_hidden, prefix, params)

    _gate_names = ("_r", "_z", "_o")

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        self._counter += 1
        name = f"{self._prefix}t{self._counter}_"
        i2h, h2h = self._products(inputs, states[0], f"{name}_")
        return gru_step(i2h, h2h, states[0], name, "tanh", self)


def lstm_step(
    gates: Symbol, c: Symbol, name: str, activation: Any, cell: BaseRNNCell, **sliced: Any
) -> tuple[Symbol, list[Symbol]]:
    """h, [h, c] from the sums of all four gates; `sliced` gives the axis along which they lie."""
    parts = symbol.SliceChannel(gates, num_outputs=4, **sliced, name=f"{name}slice")
    add = symbol.Activation(parts[0], act_type="sigmoid", name=f"{name}i")
    keep = symbol.Activation(parts[1], act_type="sigmoid", name=f"{name}f")
    new = cell._get_activation(parts[2], activation, name=f"{name}c")
    show = symbol.Activation(parts[3], act_type="sigmoid", name=f"{name}o")
    c = named_sum(keep * c, add * new, f"{name}state")
    h = named_product(show, cell._get_activation(c, activation), f"{name}out")
    return h, [h, c]


def gru_step(
    i2h: Symbol, h2h: Symbol, h: Symbol, name: str, activation: Any, cell: BaseRNNCell
) -> tuple[Symbol, list[Symbol]]:
    """h, [h] from the two products, each with its three gates one below the other."""
    # MXNet's names have two underscores here; parameter files ignore them, but graphs are compared by them.
    i2h_r, i2h_z, i2h_o = symbol.SliceChannel(i2h, num_outputs=3, name=f"{name}_i2h_slice")
    h2h_r, h2h_z, h2h_o = symbol.SliceChannel(h2h, num_outputs=3, name=f"{name}_h2h_slice")
    reset = symbol.Activation(i2h_r + h2h_r, act_type="sigmoid", name=f"{name}_r_act")
    update = symbol.Activation(i2h_z + h2h_z, act_type="sigmoid", name=f"{name}_z_act")
    new = cell._get_activation(i2h_o + reset * h2h_o, activation, name=f"{name}_h_act")
    h = named_sum((1.0 - update) * new, update * h, f"{name}out")
    return h, [h]


def named_sum(a: Symbol, b: Symbol, name: str) -> Symbol:
    """a + b as a node of this name."""
    return apply(find_op("elemwise_add"), "_plus", (a, b), {"name": name})


def named_product(a: Symbol, b: Symbol, name: str) -> Symbol:
    """a * b as a node of this name."""
    return apply(find_op("elemwise_mul"), "_mul", (a, b), {"name": name})
