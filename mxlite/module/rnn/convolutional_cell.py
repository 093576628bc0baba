"""Cells whose products are convolutions, so that states are images (Shi et al., 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ... import symbol
from ...core.errors import OpAttributeError
from ...symbol import Symbol
from .base_cell import BaseRNNCell, StateInfo
from .params import RNNParams
from .step_cell import gru_step, lstm_step

Pair = tuple[int, int]


def _leaky(data: Symbol, **kwargs: Any) -> Symbol:
    made: Symbol = symbol.LeakyReLU(data, act_type="leaky", slope=0.2, **kwargs)
    return made


class BaseConvRNNCell(BaseRNNCell):
    """Base of the convolutional cells.

    input_shape: of one step, batch included. The state's kernel is odd, and padded so that the state keeps
    its size. Initializers are those of the four parameters.
    """

    _prefix_of_kind = ""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_hidden: int,
        h2h_kernel: Pair = (3, 3),
        h2h_dilate: Pair = (1, 1),
        i2h_kernel: Pair = (3, 3),
        i2h_stride: Pair = (1, 1),
        i2h_pad: Pair = (1, 1),
        i2h_dilate: Pair = (1, 1),
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        activation: Any = _leaky,
        prefix: str | None = None,
        params: RNNParams | None = None,
        conv_layout: str = "NCHW",
    ) -> None:
        super().__init__(self._prefix_of_kind if prefix is None else prefix, params)
        if any(k % 2 == 0 for k in h2h_kernel):
            raise OpAttributeError(
                f"{type(self).__name__}: h2h_kernel must be odd, so that the state keeps its size; "
                f"got {h2h_kernel}."
            )
        pad = tuple(d * (k - 1) // 2 for d, k in zip(h2h_dilate, h2h_kernel))
        self._num_hidden = num_hidden
        self._activation = activation
        self._conv_layout = conv_layout
        inward = dict(kernel=i2h_kernel, stride=i2h_stride, pad=i2h_pad, dilate=i2h_dilate)
        first = symbol.Convolution(
            symbol.Variable("data"), num_filter=num_hidden, layout=conv_layout, **inward
        )
        _, outputs, _ = first.infer_shape(data=input_shape)
        assert outputs is not None and outputs[0] is not None
        self._state_shape = (0, *outputs[0][1:])
        self._i2h = partial(symbol.Convolution, layout=conv_layout, **inward)
        self._h2h = partial(
            symbol.Convolution,
            layout=conv_layout,
            kernel=h2h_kernel,
            stride=(1, 1),
            pad=pad,
            dilate=h2h_dilate,
        )
        own = self._params
        self._iW = own.get("i2h_weight", init=i2h_weight_initializer)
        self._hW = own.get("h2h_weight", init=h2h_weight_initializer)
        self._iB = own.get("i2h_bias", init=i2h_bias_initializer)
        self._hB = own.get("h2h_bias", init=h2h_bias_initializer)

    @property
    def state_info(self) -> list[StateInfo]:
        return [{"shape": self._state_shape, "__layout__": self._conv_layout}]

    def _products(self, inputs: Symbol, state: Symbol, name: str) -> tuple[Symbol, Symbol]:
        filters = self._num_hidden * len(self._gate_names)
        i2h = self._i2h(data=inputs, weight=self._iW, bias=self._iB, num_filter=filters, name=f"{name}i2h")
        h2h = self._h2h(data=state, weight=self._hW, bias=self._hB, num_filter=filters, name=f"{name}h2h")
        return i2h, h2h

    def _next(self) -> str:
        self._counter += 1
        return f"{self._prefix}t{self._counter}_"


class ConvRNNCell(BaseConvRNNCell):
    """RNNCell with convolutions."""

    _prefix_of_kind = "ConvRNN_"

    _gate_names = ("",)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        name = self._next()
        i2h, h2h = self._products(inputs, states[0], name)
        output = self._get_activation(i2h + h2h, self._activation, name=f"{name}out")
        return output, [output]


class ConvLSTMCell(BaseConvRNNCell):
    """LSTMCell with convolutions."""

    _prefix_of_kind = "ConvLSTM_"

    @property
    def state_info(self) -> list[StateInfo]:
        return super().state_info * 2

    _gate_names = ("_i", "_f", "_c", "_o")

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        name = self._next()
        i2h, h2h = self._products(inputs, states[0], name)
        axis = self._conv_layout.find("C")
        return lstm_step(i2h + h2h, states[1], name, self._activation, self, axis=axis)


class ConvGRUCell(BaseConvRNNCell):
    """GRUCell with convolutions."""

    _prefix_of_kind = "ConvGRU_"

    _gate_names = ("_r", "_z", "_o")

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        name = self._next()
        i2h, h2h = self._products(inputs, states[0], name)
        return gru_step(i2h, h2h, states[0], name, self._activation, self)
