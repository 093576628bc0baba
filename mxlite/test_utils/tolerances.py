"""Tolerances by dtype, and the device and dtype of tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core import bfloat16, Context, current_context
from ..ndarray.context import num_gpus

Tolerance = float | Mapping[Any, float] | None
"""One number, or one for each dtype; None for the defaults."""

_EXACT = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def default_context() -> Context:
    """The device that tests run on: the current one."""
    return current_context()


def list_gpus() -> range:
    """The numbers of the GPUs there are."""
    return range(num_gpus())


def default_dtype() -> type[np.float32]:
    """float32."""
    return np.float32


def default_rtols() -> dict[np.dtype[Any], float]:
    """Relative tolerances by dtype. bfloat16, which MXNet does not list, has 8 bits: 4 times float16's."""
    return {
        np.dtype("float16"): 1e-2,
        np.dtype(bfloat16): 4e-2,
        np.dtype("float32"): 1e-4,
        np.dtype("float64"): 1e-5,
        **{np.dtype(name): 0 for name in _EXACT},
    }


def default_atols() -> dict[np.dtype[Any], float]:
    """Absolute tolerances by dtype."""
    return {
        np.dtype("float16"): 1e-1,
        np.dtype(bfloat16): 1e-1,
        np.dtype("float32"): 1e-3,
        np.dtype("float64"): 1e-20,
        **{np.dtype(name): 0 for name in _EXACT},
    }


def default_numeric_eps() -> dict[np.dtype[Any], float]:
    """Steps of finite differences by dtype: powers of two, which lose no bits when they are added."""
    return {
        np.dtype("float16"): 1.0 / 2**6,
        np.dtype("float32"): 1.0 / 2**9,
        np.dtype("float64"): 1.0 / 2**14,
    }


def get_tolerance(dat: Any, tol: Tolerance, default_tol: Mapping[Any, float]) -> float:
    """`tol` for the dtype of `dat`; that of `default_tol` where `tol` says nothing."""
    dtype = np.dtype(dat.dtype)
    if tol is None:
        return default_tol[dtype]
    if not isinstance(tol, Mapping):
        return float(tol)
    own = {np.dtype(k): v for k, v in tol.items()}
    return own.get(dtype, default_tol[dtype])


def get_tols(x: Any, y: Any, rtol: Tolerance, atol: Tolerance) -> tuple[float, float]:
    """(rtol, atol) for a comparison: the larger ones of the two dtypes."""
    x, y = (v if hasattr(v, "dtype") else np.asarray(v) for v in (x, y))
    relative, absolute = (
        max(get_tolerance(v, tol, default) for v in (x, y))
        for tol, default in ((rtol, default_rtols()), (atol, default_atols()))
    )
    return relative, absolute


def get_rtol(rtol: float | None = None, dtype: Any = np.float64) -> float:
    """`rtol`, or the default for `dtype`."""
    return default_rtols()[np.dtype(dtype)] if rtol is None else rtol


def get_atol(atol: float | None = None, dtype: Any = np.float64) -> float:
    """`atol`, or the default for `dtype`."""
    return default_atols()[np.dtype(dtype)] if atol is None else atol


def get_etol(etol: float | None = None) -> float:
    """`etol`, the share of elements that may differ; 0 by default."""
    return 0 if etol is None else etol


def effective_dtype(dat: Any) -> np.dtype[Any]:
    """The dtype whose tolerances fit `dat`: its own. MXNet says float16 for float32 on GPUs that round to
    TF32.
    """
    return np.dtype(dat.dtype)
