"""Opening a model: a path, bytes or a ModelProto."""

from __future__ import annotations

import os
from typing import Any

from ...core import FormatError, read_at_most
from ...core.disk.files import opened
from .package import onnx_package

LARGEST_FILE = 2**31 - 1
"""The most bytes of a file: protobuf's own limit."""


def open_model(source: Any) -> tuple[Any, str | None]:
    """The ModelProto, and the folder where its external data may lie (None if it is no file).

    Raises FormatError for data that is no ONNX model.
    """
    onnx = onnx_package()
    if isinstance(source, onnx.ModelProto):
        return _checked(source, "The model"), None
    folder = None
    if isinstance(source, (bytes, bytearray, memoryview)):
        what, content = "The model", bytes(source)
    else:
        what = os.fspath(source)
        folder = os.path.dirname(os.path.abspath(what))
        with opened(what) as file:
            size = os.fstat(file.fileno()).st_size
            if size > LARGEST_FILE:
                raise FormatError(f"{what} has {size} bytes; an ONNX file has at most {LARGEST_FILE}.")
            content = read_at_most(file, LARGEST_FILE + 1)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # protobuf's DecodeError, whose module depends on its version
        raise FormatError(f"{what} is not an ONNX model, or it is cut short: {error}.") from None
    return _checked(model, what), folder


def _checked(model: Any, what: str) -> Any:
    if not model.HasField("graph") or not model.opset_import:
        raise FormatError(f"{what} is not an ONNX model: it has no graph or no opset.")
    return model
