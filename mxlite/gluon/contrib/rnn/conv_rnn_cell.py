"""Cells whose products are convolutions, so that states are rows, images or volumes (Shi et al., 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.errors import OpAttributeError
from ...rnn.cell import HybridRecurrentCell
from ...rnn.gates import Gates

Sizes = int | Sequence[int]


class _ConvCell(HybridRecurrentCell):
    """What all have in common: kernels and biases of inputs and of the state for some gates.

    input_shape: of one sample at one place, in `conv_layout` without N, where the channels come first unless
    it is told; inputs (N, *input_shape) -> output and states (N, hidden_channels, ...). The state's kernel is
    odd, and padded so that the state keeps its size.
    """

    _axes: int
    _gates: int
    _num_states = 1

    def __init__(
        self,
        input_shape: Sequence[int],
        hidden_channels: int,
        i2h_kernel: Sizes,
        h2h_kernel: Sizes,
        i2h_pad: Sizes = 0,
        i2h_dilate: Sizes = 1,
        h2h_dilate: Sizes = 1,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        conv_layout: str | None = None,
        activation: Any = "tanh",
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_channels = hidden_channels
        self._input_shape = tuple(input_shape)
        self._activation = activation
        self._conv_layout = layout = conv_layout or "NC" + "DHW"[3 - self._axes :]
        self._channel_axis = axis = layout.index("C")
        i2h = self._sizes("i2h_kernel", i2h_kernel)
        h2h = self._sizes("h2h_kernel", h2h_kernel)
        pad = self._sizes("i2h_pad", i2h_pad)
        dilate = self._sizes("i2h_dilate", i2h_dilate)
        state_dilate = self._sizes("h2h_dilate", h2h_dilate)
        if any(k % 2 == 0 for k in h2h):
            raise OpAttributeError(
                f"{type(self).__name__}: h2h_kernel must be odd, so that the state keeps its size; got "
                f"{h2h_kernel}."
            )
        kept = tuple(d * (k - 1) // 2 for d, k in zip(state_dilate, h2h))
        self._convolutions = {
            "i2h": {"kernel": i2h, "pad": pad, "dilate": dilate},
            "h2h": {"kernel": h2h, "pad": kept, "dilate": state_dilate},
        }
        lengths = list(self._input_shape)
        channels = lengths.pop(axis - 1)

        def placed(of_axes: Sequence[int], of_channels: int) -> tuple[int, ...]:
            return (*of_axes[: axis - 1], of_channels, *of_axes[axis - 1 :])

        self._state_shape = placed(
            [
                n + 2 * p - d * (k - 1) if n else 0  # 0: a length that is not known
                for n, p, d, k in zip(lengths, pad, dilate, i2h)
            ],
            hidden_channels,
        )
        rows = self._gates * hidden_channels

        def get(name: str, shape: tuple[int, ...], init: Any) -> Any:
            return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)

        self.i2h_weight = get("i2h_weight", (rows, *placed(i2h, channels)), i2h_weight_initializer)
        self.h2h_weight = get("h2h_weight", (rows, *placed(h2h, hidden_channels)), h2h_weight_initializer)
        self.i2h_bias = get("i2h_bias", (rows,), i2h_bias_initializer)
        self.h2h_bias = get("h2h_bias", (rows,), h2h_bias_initializer)

    def _sizes(self, name: str, given: Sizes) -> tuple[int, ...]:
        """One size an axis. OpAttributeError for another number of them."""
        sizes = (given,) * self._axes if isinstance(given, int) else tuple(given)
        if len(sizes) != self._axes:
            raise OpAttributeError(
                f"{type(self).__name__}: {name} must be one number or {self._axes}, got {given!r}."
            )
        return sizes

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of each state."""
        info = {"shape": (batch_size, *self._state_shape), "__layout__": self._conv_layout}
        return [dict(info) for _ in range(self._num_states)]

    def _products(self, F: Any, x: Any, state: Any, p: dict[str, Any]) -> tuple[Any, Any]:
        """W * x + b and V * h + c, the gates side by side along the channels."""
        i2h, h2h = (
            F.Convolution(
                value,
                p[f"{name}_weight"],
                p[f"{name}_bias"],
                num_filter=self._gates * self._hidden_channels,
                layout=self._conv_layout,
                name=f"t{self._counter}_{name}",
                **self._convolutions[name],
            )
            for name, value in (("i2h", x), ("h2h", state))
        )
        return i2h, h2h

    def _gates_at_place(self, F: Any) -> Gates:
        return Gates(F, f"t{self._counter}_", self._get_activation, self._channel_axis)

    def __repr__(self) -> str:
        rows, channels = (self.i2h_weight.shape[i] for i in (0, self._channel_axis))
        return f"{type(self).__name__}({channels or None} -> {rows}, {self._activation}, {self._conv_layout})"


class _ConvRNNCell(_ConvCell):
    _gates = 1

    def _alias(self) -> str:
        return "conv_rnn"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **params: Any) -> Any:
        """The output and the new states."""
        i2h, h2h = self._products(F, inputs, states[0], params)
        out = self._get_activation(F, i2h + h2h, self._activation, name=f"t{self._counter}_out")
        return out, [out]


class _ConvLSTMCell(_ConvCell):
    _gates = 4
    _num_states = 2

    def _alias(self) -> str:
        return "conv_lstm"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **params: Any) -> Any:
        """The output and the new states."""
        i2h, h2h = self._products(F, inputs, states[0], params)
        out, cell = self._gates_at_place(F).lstm(i2h + h2h, states[1], self._activation)
        return out, [out, cell]


class _ConvGRUCell(_ConvCell):
    _gates = 3

    def _alias(self) -> str:
        return "conv_gru"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **params: Any) -> Any:
        """The output and the new states."""
        i2h, h2h = self._products(F, inputs, states[0], params)
        out = self._gates_at_place(F).gru(i2h, h2h, states[0], self._activation)
        return out, [out]


class Conv1DRNNCell(_ConvRNNCell):
    """RNNCell with convolutions of rows: h' = activation(W * x + b + V * h + c)."""

    _axes = 1


class Conv2DRNNCell(_ConvRNNCell):
    """RNNCell with convolutions of images: h' = activation(W * x + b + V * h + c)."""

    _axes = 2


class Conv3DRNNCell(_ConvRNNCell):
    """RNNCell with convolutions of volumes: h' = activation(W * x + b + V * h + c)."""

    _axes = 3


class Conv1DLSTMCell(_ConvLSTMCell):
    """LSTMCell with convolutions of rows; states h and c."""

    _axes = 1


class Conv2DLSTMCell(_ConvLSTMCell):
    """LSTMCell with convolutions of images; states h and c."""

    _axes = 2


class Conv3DLSTMCell(_ConvLSTMCell):
    """LSTMCell with convolutions of volumes; states h and c."""

    _axes = 3


class Conv1DGRUCell(_ConvGRUCell):
    """GRUCell with convolutions of rows, in cuDNN's form."""

    _axes = 1


class Conv2DGRUCell(_ConvGRUCell):
    """GRUCell with convolutions of images, in cuDNN's form."""

    _axes = 2


class Conv3DGRUCell(_ConvGRUCell):
    """GRUCell with convolutions of volumes, in cuDNN's form."""

    _axes = 3
