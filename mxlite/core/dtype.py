"""Element types: the numpy dtype, MXNet's name and MXNet's number of each."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from .errors import DTypeError, nearest

bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)

FLAGS: dict[int, np.dtype[Any]] = {
    0: np.dtype("float32"),
    1: np.dtype("float64"),
    2: np.dtype("float16"),
    3: np.dtype("uint8"),
    4: np.dtype("int32"),
    5: np.dtype("int8"),
    6: np.dtype("int64"),
    7: np.dtype("bool"),
    12: bfloat16,
}
"""MXNet's type numbers (mshadow's TypeFlag), as written in its files."""

_BY_NAME = {str(d): d for d in FLAGS.values()}
_FLAG_OF = {d: f for f, d in FLAGS.items()}

float32 = FLAGS[0]
float64 = FLAGS[1]


def as_dtype(kind: Any) -> np.dtype[Any]:
    """The supported dtype that `kind` names: a numpy dtype, type or name for one ("f", "double"), an array
    for its own, as numpy has it, or None for float32.
    """
    if kind is None:
        return float32
    if isinstance(kind, str) and kind in _BY_NAME:
        return _BY_NAME[kind]
    try:
        dtype: np.dtype[Any] = np.dtype(kind if isinstance(kind, type) else getattr(kind, "dtype", kind))
    except (TypeError, ValueError, SyntaxError):
        near = nearest(kind, _BY_NAME) if isinstance(kind, str) else ""
        raise DTypeError(f"dtype {kind!r} is not supported; use one of {sorted(_BY_NAME)}.{near}") from None
    if dtype not in _FLAG_OF:
        raise DTypeError(f"dtype {str(dtype)!r} is not supported; use one of {sorted(_BY_NAME)}.")
    return dtype


def flag_of(dtype: Any) -> int:
    """MXNet's number of a dtype."""
    return _FLAG_OF[as_dtype(dtype)]


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which numbers of `dtype` are summed: float32 for the two-byte floats, else `dtype`."""
    return float32 if dtype.itemsize == 2 else np.dtype(dtype)


def is_floating(dtype: Any) -> bool:
    """True for a floating-point type, which can have gradients."""
    d = as_dtype(dtype)
    return d.kind == "f" or d == bfloat16
