"""`mx.sym.zeros` and its kind: constants inside a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops import find_op
from ..ops.shape.split import split_parameters
from .functions import apply
from .symbol import Symbol


def zeros(shape: Any, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Zeros of `shape`, an int or ints; float32 unless `dtype` says otherwise. kwargs: name, attr."""
    return _constant("_zeros", {"shape": _axes(shape)}, dtype, kwargs)


def ones(shape: Any, dtype: Any = None, **kwargs: Any) -> Symbol:
    """Ones of `shape`, an int or ints; float32 unless `dtype` says otherwise. kwargs: name, attr."""
    return _constant("_ones", {"shape": _axes(shape)}, dtype, kwargs)


def full(shape: Any, val: float, dtype: Any = None, **kwargs: Any) -> Symbol:
    """The number `val` in an array of `shape`, an int or ints. kwargs: name, attr."""
    return _constant("_full", {"shape": _axes(shape), "value": float(val)}, dtype, kwargs)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    name: str | None = None,
    dtype: Any = None,
) -> Symbol:
    """start, start + step, ... as long as it is before `stop`, each `repeat` times; one number counts from 0.

    With `infer_range` and no `stop`: as many as the array has that it is used with, from `start`.
    """
    given = {"start": start, "stop": stop, "step": step, "repeat": repeat, "infer_range": infer_range}
    return _constant("_arange", given, dtype, {"name": name})


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    name: str | None = None,
    dtype: Any = None,
) -> Symbol:
    """`num` numbers from `start` to `stop`, equally far apart, `stop` being the last with `endpoint`."""
    given = {"start": start, "stop": stop, "num": num, "endpoint": endpoint}
    return _constant("_linspace", given, dtype, {"name": name})


def eye(N: int, M: int = 0, k: int = 0, dtype: Any = None, **kwargs: Any) -> Symbol:
    """(N, M) zeros with ones on diagonal `k`; M = 0 means square. kwargs: name, attr."""
    return _constant("_eye", {"N": N, "M": M, "k": k}, dtype, kwargs)


def split_v2(
    ary: Symbol, indices_or_sections: int | Sequence[int], axis: int = 0, squeeze_axis: bool = False
) -> Symbol:
    """So many equal parts along `axis`, or the parts between these places: one output each."""
    given = split_parameters(indices_or_sections)
    return apply(
        find_op("_split_v2"), "_split_v2", (ary,), {**given, "axis": axis, "squeeze_axis": squeeze_axis}
    )


def _axes(shape: Any) -> Any:
    return (shape,) if isinstance(shape, int) else shape


def _constant(op: str, parameters: dict[str, Any], dtype: Any, kwargs: dict[str, Any]) -> Symbol:
    parameters["dtype"] = "float32" if dtype is None else dtype
    return apply(find_op(op), op, (), {**parameters, **kwargs})
