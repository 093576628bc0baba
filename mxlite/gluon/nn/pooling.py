"""Pooling layers, and padding by reflection."""

from __future__ import annotations

from typing import Any

from ..blocks.hybrid_block import HybridBlock
from .convolution import spread


class _Pooling(HybridBlock):
    """What all have in common. `_spatial` is the number of spatial axes."""

    _spatial: int
    _kwargs: dict[str, Any]

    def _make(
        self, pool_type: str, pool_size: Any, strides: Any, padding: Any, layout: str, **kwargs: Any
    ) -> None:
        """Keep the operator's parameters; `strides` None: as the window."""
        kind = type(self).__name__
        size = spread(pool_size, self._spatial, f"{kind}: pool_size")
        step = size if strides is None else spread(strides, self._spatial, f"{kind}: strides")
        pad = spread(padding, self._spatial, f"{kind}: padding")
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


def _rounding(ceil_mode: bool) -> str:
    return "full" if ceil_mode else "valid"


class MaxPool1D(_Pooling):
    """The largest element of each window, over one spatial axis."""

    _spatial = 1

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
        convention = _rounding(ceil_mode)
        self._make("max", pool_size, strides, padding, layout, pooling_convention=convention)


class MaxPool2D(_Pooling):
    """The largest element of each window, over two spatial axes."""

    _spatial = 2

    def __init__(
        self,
        pool_size: Any = (2, 2),
        strides: Any = None,
        padding: Any = 0,
        layout: str = "NCHW",
        ceil_mode: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        convention = _rounding(ceil_mode)
        self._make("max", pool_size, strides, padding, layout, pooling_convention=convention)


class MaxPool3D(_Pooling):
    """The largest element of each window, over three spatial axes."""

    _spatial = 3

    def __init__(
        self,
        pool_size: Any = (2, 2, 2),
        strides: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        layout: str = "NCDHW",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        convention = _rounding(ceil_mode)
        self._make("max", pool_size, strides, padding, layout, pooling_convention=convention)


class AvgPool1D(_Pooling):
    """The mean element of each window, over one spatial axis; padding counts unless `count_include_pad` is
    False.
    """

    _spatial = 1

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
        convention = _rounding(ceil_mode)
        self._make(
            "avg",
            pool_size,
            strides,
            padding,
            layout,
            pooling_convention=convention,
            count_include_pad=count_include_pad,
        )


class AvgPool2D(_Pooling):
    """The mean element of each window, over two spatial axes; padding counts unless `count_include_pad` is
    False.
    """

    _spatial = 2

    def __init__(
        self,
        pool_size: Any = (2, 2),
        strides: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        layout: str = "NCHW",
        count_include_pad: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        convention = _rounding(ceil_mode)
        self._make(
            "avg",
            pool_size,
            strides,
            padding,
            layout,
            pooling_convention=convention,
            count_include_pad=count_include_pad,
        )


class AvgPool3D(_Pooling):
    """The mean element of each window, over three spatial axes; padding counts unless `count_include_pad` is
    False.
    """

    _spatial = 3

    def __init__(
        self,
        pool_size: Any = (2, 2, 2),
        strides: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        layout: str = "NCDHW",
        count_include_pad: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        convention = _rounding(ceil_mode)
        self._make(
            "avg",
            pool_size,
            strides,
            padding,
            layout,
            pooling_convention=convention,
            count_include_pad=count_include_pad,
        )


class GlobalMaxPool1D(_Pooling):
    """The largest element of each channel, over the spatial axis."""

    _spatial = 1

    def __init__(self, layout: str = "NCW", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._make("max", 1, None, 0, layout, global_pool=True)


class GlobalMaxPool2D(_Pooling):
    """The largest element of each channel, over both spatial axes."""

    _spatial = 2

    def __init__(self, layout: str = "NCHW", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._make("max", 1, None, 0, layout, global_pool=True)


class GlobalMaxPool3D(_Pooling):
    """The largest element of each channel, over all three spatial axes."""

    _spatial = 3

    def __init__(self, layout: str = "NCDHW", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._make("max", 1, None, 0, layout, global_pool=True)


class GlobalAvgPool1D(_Pooling):
    """The mean element of each channel, over the spatial axis."""

    _spatial = 1

    def __init__(self, layout: str = "NCW", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._make("avg", 1, None, 0, layout, global_pool=True)


class GlobalAvgPool2D(_Pooling):
    """The mean element of each channel, over both spatial axes."""

    _spatial = 2

    def __init__(self, layout: str = "NCHW", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._make("avg", 1, None, 0, layout, global_pool=True)


class GlobalAvgPool3D(_Pooling):
    """The mean element of each channel, over all three spatial axes."""

    _spatial = 3

    def __init__(self, layout: str = "NCDHW", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._make("avg", 1, None, 0, layout, global_pool=True)


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
