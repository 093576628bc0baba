"""Arrays out of TensorProto, sizes checked before anything is allocated."""

from __future__ import annotations

import os
from math import prod
from typing import Any

import numpy as np

from ...core import FormatError
from ..building.errors import NotSupportedError
from .dtypes import numpy_type, type_name
from .package import onnx_package

_EXTERNAL = 1  # TensorProto.DataLocation
_FIELDS = {
    "float32": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint64": "uint64_data",
    "uint32": "uint64_data",
}  # all others are in int32_data


def read_tensor(tensor: Any, folder: str | None, what: str) -> np.ndarray:
    """The numbers of a TensorProto; `folder` is where the model's file lies, None for a model in memory.

    Raises FormatError where shape and data do not fit each other, or the data lies outside `folder`;
    NotSupportedError for element types without numpy's arithmetic.
    """
    dtype = numpy_type(tensor.data_type, what)
    shape = tuple(tensor.dims)
    if any(d < 0 for d in shape):
        raise FormatError(f"{what} has the shape {shape}; lengths cannot be negative.")
    if tensor.HasField("segment"):
        raise NotSupportedError(f"{what} is stored in segments")
    count = prod(shape)
    if tensor.data_location == _EXTERNAL:
        return _read_external(tensor, count * dtype.itemsize, folder, what).view(dtype).reshape(shape)
    if tensor.HasField("raw_data"):
        stored, wanted, unit = len(tensor.raw_data), count * dtype.itemsize, "bytes"
    else:
        stored, wanted, unit = len(getattr(tensor, _FIELDS.get(dtype.name, "int32_data"))), count, "numbers"
    if stored != wanted:
        raise FormatError(
            f"{what} of shape {shape} and type {type_name(tensor.data_type)} takes {wanted} {unit}, "
            f"but {stored} are there."
        )
    array: np.ndarray = onnx_package().numpy_helper.to_array(tensor)
    return array.reshape(shape)


def _read_external(tensor: Any, nbytes: int, folder: str | None, what: str) -> np.ndarray:
    about = {entry.key: entry.value for entry in tensor.external_data}
    location = str(about.get("location", ""))
    if folder is None:
        raise FormatError(f"{what} is stored in the file {location!r}; give import_model the model's path.")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, location))
    if not location or os.path.isabs(location) or os.path.commonpath([root, path]) != root:
        raise FormatError(f"{what} is stored in {location!r}, outside the model's folder; that is not read.")
    if not os.path.isfile(path):
        raise FormatError(f"{what} is stored in {location!r}, but that file is missing beside the model.")
    offset = _number(str(about.get("offset", "0")), "offset", what)
    length = _number(str(about.get("length", nbytes)), "length", what)
    size = os.path.getsize(path)
    if length != nbytes or offset + length > size:
        raise FormatError(
            f"{what} takes {nbytes} bytes; the file {location!r} of {size} bytes is said to hold {length} at "
            f"{offset}."
        )
    with open(path, "rb") as file:
        file.seek(offset)
        data = bytearray(file.read(nbytes))
    if len(data) != nbytes:
        raise FormatError(f"{what}: the file {location!r} ended early.")
    return np.frombuffer(data, np.uint8)


def _number(text: str, key: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise FormatError(f"{what} has the external {key} {text[:40]!r}; it must be a whole number.")
    return int(text)
