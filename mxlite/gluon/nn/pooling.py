"""Pooling layers, and padding by reflection."""

from __future__ import annotations

from typing import Any

from ..blocks.hybrid_block import HybridBlock
from .spatial import Spatial, spread


class _Pooling(Spatial):
    """Base: the operator's parameters and how they print."""

    each = ("pool_size",)
    _kwargs: dict[str, Any]

    def _make(
        self, pool_type: str, pool_size: Any, strides: Any, padding: Any, layout: str, **kwargs: Any
    ) -> None:
        """Keep the operator's parameters; `strides` None: as the window. `ceil_mode` is one of Gluon's."""
        kind = type(self).__name__
        size = spread(pool_size, self._spatial, f"{kind}: pool_size")
        step = size if strides is None else spread(strides, self._spatial, f"{kind}: strides")
        pad = spread(padding, self._spatial, f"{kind}: padding")
        if "ceil_mode" in kwargs:
            kwargs["pooling_convention"] = "full" if kwargs.pop("ceil_mode") else "valid"
        self._kwargs = dict(kernel=size, stride=step, pad=pad, pool_type=pool_type, layout=layout, **kwargs)

    def _alias(self) -> str:
        return "pool"

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return F.Pooling(x, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        k = self._kwargs
        told = f"size={k['kernel']}, stride={k['stride']}, padding={k['pad']}"
        return f"{type(self).__name__}({told}, ceil_mode={k.get('pooling_convention') == 'full'})"


class _MaxPool(_Pooling):
    """Base: the largest element of each window."""

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: Any = 0,
        layout: str = "NCW",
        ceil_mode: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._make("max", pool_size, strides, padding, layout, ceil_mode=ceil_mode)


class MaxPool1D(_MaxPool, axes=1):
    """The largest element of each window, over one spatial axis."""


class MaxPool2D(_MaxPool, axes=2):
    """The largest element of each window, over two spatial axes."""


class MaxPool3D(_Pooling, axes=3):
    """The largest element of each window, over three spatial axes."""

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        layout: str = "NCW",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._make("max", pool_size, strides, padding, layout, ceil_mode=ceil_mode)


class AvgPool1D(_Pooling, axes=1):
    """The mean element of each window, over one spatial axis; padding counts unless `count_include_pad` is
    False.
    """

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: Any = 0,
        layout: str = "NCW",
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        given = dict(ceil_mode=ceil_mode, count_include_pad=count_include_pad)
        self._make("avg", pool_size, strides, padding, layout, **given)


class _AvgPool(_Pooling):
    """Base: the mean element of each window."""

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        layout: str = "NCW",
        count_include_pad: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        given = dict(ceil_mode=ceil_mode, count_include_pad=count_include_pad)
        self._make("avg", pool_size, strides, padding, layout, **given)


class AvgPool2D(_AvgPool, axes=2):
    """The mean element of each window, over two spatial axes; padding counts unless `count_include_pad` is
    False.
    """


class AvgPool3D(_AvgPool, axes=3):
    """The mean element of each window, over three spatial axes; padding counts unless `count_include_pad` is
    False.
    """


class _GlobalMaxPool(_Pooling):
    """Base: the largest element of each channel."""

    def __init__(self, layout: str = "NCW", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._make("max", 1, None, 0, layout, global_pool=True)


class GlobalMaxPool1D(_GlobalMaxPool, axes=1):
    """The largest element of each channel, over the spatial axis."""


class GlobalMaxPool2D(_GlobalMaxPool, axes=2):
    """The largest element of each channel, over both spatial axes."""


class GlobalMaxPool3D(_GlobalMaxPool, axes=3):
    """The largest element of each channel, over all three spatial axes."""


class _GlobalAvgPool(_Pooling):
    """Base: the mean element of each channel."""

    def __init__(self, layout: str = "NCW", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._make("avg", 1, None, 0, layout, global_pool=True)


class GlobalAvgPool1D(_GlobalAvgPool, axes=1):
    """The mean element of each channel, over the spatial axis."""


class GlobalAvgPool2D(_GlobalAvgPool, axes=2):
    """The mean element of each channel, over both spatial axes."""


class GlobalAvgPool3D(_GlobalAvgPool, axes=3):
    """The mean element of each channel, over all three spatial axes."""


class ReflectionPad2D(HybridBlock):
    """Padding by reflection at the border. padding: a number for all four sides, or 8 as `mx.nd.pad`
    takes.
    """

    def __init__(self, padding: Any = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._padding = (0, 0, 0, 0, *[padding] * 4) if isinstance(padding, int) else tuple(padding)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return F.pad(x, mode="reflect", pad_width=self._padding)
