"""Cells whose products are convolutions, so that states are rows, images or volumes (Shi et al., 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.errors import OpAttributeError
from ...rnn.gates import GatedCell, GRUStep, LSTMStep, RNNStep

Sizes = int | Sequence[int]


class _ConvCell(GatedCell):
    """A cell whose weights are kernels.

    input_shape: of one sample at one place, in `conv_layout` without N, where the channels come first unless
    it is told; inputs (N, *input_shape) -> output and states (N, hidden_channels, ...). The state's kernel is
    odd, and padded so that the state keeps its size.
    """

    _axes: int

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
        self._axis = axis = layout.index("C")
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
        rows, get = self._gates * hidden_channels, self._parameter
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

    def _alias(self) -> str:
        return f"conv_{self._kind}"

    def _product(self, F: Any, name: str, value: Any, weight: Any, bias: Any) -> Any:
        return F.Convolution(
            value,
            weight,
            bias,
            num_filter=self._gates * self._hidden_channels,
            layout=self._conv_layout,
            name=f"t{self._counter}_{name}",
            **self._convolutions[name],
        )

    def __repr__(self) -> str:
        rows, channels = (self.i2h_weight.shape[i] for i in (0, self._axis))
        return f"{type(self).__name__}({channels or None} -> {rows}, {self._activation}, {self._conv_layout})"


class Conv1DRNNCell(RNNStep, _ConvCell):
    """RNNCell with convolutions of rows: h' = activation(W * x + b + V * h + c)."""

    _axes = 1


class Conv2DRNNCell(RNNStep, _ConvCell):
    """RNNCell with convolutions of images: h' = activation(W * x + b + V * h + c)."""

    _axes = 2


class Conv3DRNNCell(RNNStep, _ConvCell):
    """RNNCell with convolutions of volumes: h' = activation(W * x + b + V * h + c)."""

    _axes = 3


class Conv1DLSTMCell(LSTMStep, _ConvCell):
    """LSTMCell with convolutions of rows; states h and c."""

    _axes = 1


class Conv2DLSTMCell(LSTMStep, _ConvCell):
    """LSTMCell with convolutions of images; states h and c."""

    _axes = 2


class Conv3DLSTMCell(LSTMStep, _ConvCell):
    """LSTMCell with convolutions of volumes; states h and c."""

    _axes = 3


class Conv1DGRUCell(GRUStep, _ConvCell):
    """GRUCell with convolutions of rows, in cuDNN's form."""

    _axes = 1


class Conv2DGRUCell(GRUStep, _ConvCell):
    """GRUCell with convolutions of images, in cuDNN's form."""

    _axes = 2


class Conv3DGRUCell(GRUStep, _ConvCell):
    """GRUCell with convolutions of volumes, in cuDNN's form."""

    _axes = 3
