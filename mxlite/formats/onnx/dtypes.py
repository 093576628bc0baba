"""ONNX's element types and ours."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..building.errors import NotSupportedError

DType = np.dtype[Any]

TYPE_NAMES = (
    "undefined float32 uint8 int8 uint16 int16 int32 int64 string bool float16 float64 uint32 uint64 "
    "complex64 complex128 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz uint4 int4 "
    "float4_e2m1fn float8_e8m0fnu uint2 int2"
).split()

NUMPY: dict[int, DType] = {
    number: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    for number, name in enumerate(TYPE_NAMES)
    if name
    in "float32 uint8 int8 uint16 int16 int32 int64 bool float16 float64 uint32 uint64 bfloat16".split()
}
"""TensorProto.DataType -> the numpy type of its constants here."""

NUMBER: dict[DType, int] = {dtype: number for number, dtype in NUMPY.items()}


def type_name(number: int) -> str:
    """The standard's name of an element type."""
    return TYPE_NAMES[number] if 0 <= number < len(TYPE_NAMES) else f"number {number}"


def numpy_type(number: int, what: str) -> DType:
    """The type of constants. Raises NotSupportedError for strings, float8, int4 and the like."""
    if number not in NUMPY:
        raise NotSupportedError(f"{what} has elements of type {type_name(number)}")
    return NUMPY[number]
