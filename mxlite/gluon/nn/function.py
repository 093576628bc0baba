"""Lambda and HybridLambda: functions as layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import ndarray as nd, symbol as sym
from ...core.errors import ArgumentError, nearest
from ..blocks.block import Block
from ..blocks.hybrid_block import HybridBlock


class Lambda(Block):
    """A function of arrays as a layer; text is the name of one in mx.nd."""

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        self._function, self._name = _found(function, nd)

    def forward(self, *args: Any) -> Any:
        """function(*args)."""
        return self._function(*args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name})"


class HybridLambda(HybridBlock):
    """A function `f(F, x, ...)` as a hybrid layer; text is the name of one in both mx.nd and mx.sym."""

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        if isinstance(function, str):
            _found(function, nd)
            _found(function, sym)
            self._function: Callable[..., Any] = lambda F, *args: getattr(F, function)(*args)
            self._name = function
        else:
            self._function, self._name = _found(function, nd)

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        """function(F, x, *args)."""
        return self._function(F, x, *args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name})"


def _found(function: Any, module: Any) -> tuple[Callable[..., Any], str]:
    if isinstance(function, str):
        if not hasattr(module, function):
            raise ArgumentError(
                f"{module.__name__} has no function {function!r}.{nearest(function, dir(module))}"
            )
        return getattr(module, function), function
    if not callable(function):
        raise ArgumentError(f"A layer's function must be a name or a function, got {function!r}.")
    return function, getattr(function, "__name__", type(function).__name__)
