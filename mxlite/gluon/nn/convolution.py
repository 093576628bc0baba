"""Convolution layers, and their transposes.

data: (N, C, spatial...) -> (N, channels, spatial...).
"""

from __future__ import annotations

from typing import Any

from ...core.errors import OpAttributeError
from .activation import Activation
from .spatial import Spatial, spread


class _Layer(Spatial):
    """Base: geometry, parameters and how they print."""

    each = ("strides", "padding", "output_padding", "dilation")
    _operator = "Convolution"

    def _make(
        self,
        channels: int,
        in_channels: int,
        geometry: dict[str, Any],
        groups: int,
        layout: str,
        others: dict[str, Any],
    ) -> None:
        """Make the parameters, for `geometry` by the names that the layer's users know."""
        count, kind = self._spatial, type(self).__name__
        if len(layout) != count + 2 or not layout.startswith("N") or "C" not in layout:
            raise OpAttributeError(f"{kind}: layout must name N, C and {count} spatial axes, got {layout!r}.")
        names = dict(
            kernel_size="kernel", strides="stride", padding="pad", output_padding="adj", dilation="dilate"
        )
        self._channels, self._in_channels = channels, in_channels
        self._kwargs: dict[str, Any] = {
            names[k]: spread(v, count, f"{kind}: {k}") for k, v in geometry.items()
        }
        self._kwargs |= dict(
            num_filter=channels, num_group=groups, no_bias=not others["use_bias"], layout=layout
        )
        kernel = self._kwargs["kernel"]
        shape: tuple[int, ...]
        if self._operator == "Deconvolution":
            shape = (in_channels, channels // groups, *kernel)
        elif layout.endswith("C"):
            shape = (channels, *kernel, in_channels // groups)
        else:
            shape = (channels, in_channels // groups, *kernel)
        with self.name_scope():
            self.weight = self.params.get(
                "weight", shape=shape, init=others["weight_initializer"], allow_deferred_init=True
            )
            self.bias = (
                self.params.get(
                    "bias", shape=(channels,), init=others["bias_initializer"], allow_deferred_init=True
                )
                if others["use_bias"]
                else None
            )
            name = others["activation"]
            self.act = None if name is None else Activation(name, prefix=name + "_")

    def _alias(self) -> str:
        return "conv"

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        """See the module."""
        inputs = (x, weight) if bias is None else (x, weight, bias)
        out = getattr(F, self._operator)(*inputs, name="fwd", **self._kwargs)
        return out if self.act is None else self.act(out)

    def __repr__(self) -> str:
        k = self._kwargs
        told = f"kernel_size={k['kernel']}, stride={k['stride']}"
        told += f", padding={k['pad']}" if any(k["pad"]) else ""
        told += f", groups={k['num_group']}" if k["num_group"] != 1 else ""
        told += ", bias=False" if self.bias is None else ""
        told += "" if self.act is None else f", {self.act}"
        return f"{type(self).__name__}({self._in_channels or None} -> {self._channels}, {told})"


class _Convolution(_Layer):
    """Base: a convolution."""

    def __init__(
        self,
        channels: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        layout: str = "NCW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        geometry = dict(kernel_size=kernel_size, strides=strides, padding=padding, dilation=dilation)
        others = dict(activation=activation, use_bias=use_bias, weight_initializer=weight_initializer)
        others["bias_initializer"] = bias_initializer
        self._make(channels, in_channels, geometry, groups, layout, others)


class Conv1D(_Convolution, axes=1):
    """A convolution over one spatial axis."""


class Conv2D(_Convolution, axes=2):
    """A convolution over two spatial axes."""


class Conv3D(_Convolution, axes=3):
    """A convolution over three spatial axes."""


class _Transpose(_Layer):
    """Base: the transpose of a convolution."""

    _operator = "Deconvolution"

    def __init__(
        self,
        channels: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        layout: str = "NCW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        geometry = dict(kernel_size=kernel_size, strides=strides, padding=padding, dilation=dilation)
        geometry["output_padding"] = output_padding
        others = dict(activation=activation, use_bias=use_bias, weight_initializer=weight_initializer)
        others["bias_initializer"] = bias_initializer
        self._make(channels, in_channels, geometry, groups, layout, others)


class Conv1DTranspose(_Transpose, axes=1):
    """The transpose of a convolution over one spatial axis: what its gradient does to the data."""


class Conv2DTranspose(_Transpose, axes=2):
    """The transpose of a convolution over two spatial axes: what its gradient does to the data."""


class Conv3DTranspose(_Transpose, axes=3):
    """The transpose of a convolution over three spatial axes: what its gradient does to the data."""
