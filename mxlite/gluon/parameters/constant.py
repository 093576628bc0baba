"""Constant: an array of a block that is not learnt."""

from __future__ import annotations

import warnings
from typing import Any

from ... import ndarray as nd
from ...module.initial import initializer
from ...ndarray import NDArray
from .parameter import Parameter


class Constant(Parameter):
    """A parameter that never changes: no gradient, and always the value it was made with."""

    def __init__(self, name: str, value: Any) -> None:
        self.value: NDArray = value if isinstance(value, NDArray) else nd.array(value)
        super().__init__(
            name,
            grad_req="null",
            shape=self.value.shape,
            dtype=self.value.dtype,
            init=ValueOf(self.value),
            differentiable=False,
        )

    @property
    def grad_req(self) -> str:
        """Always 'null'."""
        return "null"

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req != "null":
            warnings.warn(
                f"Constant {self.name!r} has no gradient: grad_req {req!r} is ignored.", stacklevel=2
            )

    def initialize(
        self, init: Any = None, ctx: Any = None, default_init: Any = None, force_reinit: bool = False
    ) -> None:
        """Make its arrays with its value, whatever `init` says."""
        super().initialize(self.init, ctx, default_init, force_reinit)


class ValueOf(initializer.Initializer):
    """The initializer of a constant: a copy of an array."""

    def __init__(self, value: NDArray) -> None:
        super().__init__(value=value.asnumpy().tolist())
        self._value = value

    def _init_weight(self, name: str, arr: NDArray) -> None:
        self._value.copyto(arr)
