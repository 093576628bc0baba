"""`mx.sym.random`: arrays of random numbers, drawn anew at every run."""

from __future__ import annotations

from typing import Any

from ..ops import find_op
from .functions import apply
from .symbol import Symbol


def uniform(low: float = 0, high: float = 1, shape: Any = (1,), dtype: Any = None, **kwargs: Any) -> Symbol:
    """Independent uniform numbers in [low, high), of `shape`; float32 unless `dtype` says otherwise."""
    return _draw("_random_uniform", {"low": low, "high": high, "shape": shape}, dtype, kwargs)


def normal(loc: float = 0, scale: float = 1, shape: Any = (1,), dtype: Any = None, **kwargs: Any) -> Symbol:
    """Independent normal numbers of mean `loc` and standard deviation `scale`, of `shape`."""
    return _draw("_random_normal", {"loc": loc, "scale": scale, "shape": shape}, dtype, kwargs)


def _draw(op: str, parameters: dict[str, Any], dtype: Any, kwargs: dict[str, Any]) -> Symbol:
    if dtype is not None:
        parameters["dtype"] = dtype
    return apply(find_op(op), op, (), {**parameters, **kwargs})
