"""Dtypes as numbers: the run-time type argument of kernels, for arrays of which they read little."""

from __future__ import annotations

from ....graph.opdef import DType
from .source import NAMES

KINDS = {name: i for i, name in enumerate(NAMES)}
"""The enumeration at the top of cuda/whole.cuh."""

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})


def kind(dtype: DType) -> int:
    return KINDS[str(dtype)]


def known(*dtypes: DType) -> bool:
    """True if kernels read and write all of these."""
    return all(str(d) in KINDS for d in dtypes)


def floating(*dtypes: DType) -> bool:
    return all(str(d) in FLOATS for d in dtypes)


def computed_in(*dtypes: DType) -> str:
    """The C++ type of intermediate values between arrays of these types."""
    if not floating(*dtypes):
        return "int64"
    return wide(*dtypes)


def wide(*dtypes: DType | str) -> str:
    """The C++ type of intermediate values, "double" if one of these types is float64, else "float"."""
    return "double" if "float64" in map(str, dtypes) else "float"
