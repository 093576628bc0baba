"""Dense, Dropout, Embedding and Flatten."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.wanted import whole
from ..blocks.hybrid_block import HybridBlock
from .activation import Activation


class Dense(HybridBlock):
    """act(x W^T + b). x: (N, ...) -> (N, units); with `flatten=False` (..., K) -> (..., units).

    in_units: K, 0 to let the first forward pass tell it.
    """

    def __init__(
        self,
        units: int,
        activation: str | None = None,
        use_bias: bool = True,
        flatten: bool = True,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_units: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._flatten = flatten
        self._units = whole("Dense: units", units, 0)
        with self.name_scope():
            self.weight = self.params.get(
                "weight",
                shape=(units, in_units),
                init=weight_initializer,
                dtype=dtype,
                allow_deferred_init=True,
            )
            self.bias = (
                self.params.get(
                    "bias", shape=(units,), init=bias_initializer, dtype=dtype, allow_deferred_init=True
                )
                if use_bias
                else None
            )
            self.act = None if activation is None else Activation(activation, prefix=activation + "_")

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        """See the class."""
        out = F.FullyConnected(
            x, weight, bias, no_bias=bias is None, num_hidden=self._units, flatten=self._flatten, name="fwd"
        )
        return out if self.act is None else self.act(out)

    def __repr__(self) -> str:
        shape = self.weight.shape or (self._units, 0)
        act = "linear" if self.act is None else self.act
        return f"{type(self).__name__}({shape[1] or None} -> {shape[0]}, {act})"


class Dropout(HybridBlock):
    """In training, elements are 0 with probability `rate`, and the others are scaled by 1 / (1 - rate).

    axes: those along which all elements share one draw.
    """

    def __init__(self, rate: float, axes: Any = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._rate = rate
        self._axes = axes

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return F.Dropout(x, p=self._rate, axes=self._axes, name="fwd") if self._rate > 0 else F.identity(x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p = {self._rate}, axes={self._axes})"


class Embedding(HybridBlock):
    """Rows of a table by number. x: (...) whole numbers below `input_dim` -> (..., output_dim)."""

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        sparse_grad: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._kwargs = dict(input_dim=input_dim, output_dim=output_dim, dtype=dtype, sparse_grad=sparse_grad)
        self.weight = self.params.get(
            "weight",
            shape=(input_dim, output_dim),
            init=weight_initializer,
            dtype=dtype,
            allow_deferred_init=True,
            grad_stype="row_sparse" if sparse_grad else "default",
        )

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        """See the class."""
        return F.Embedding(x, weight, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        k = self._kwargs
        return f"{type(self).__name__}({k['input_dim']} -> {k['output_dim']}, {np.dtype(k['dtype']).name})"


class Flatten(HybridBlock):
    """(N, ...) -> (N, product of the rest)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """See the class."""
        return F.Flatten(x)

    def __repr__(self) -> str:
        return type(self).__name__
