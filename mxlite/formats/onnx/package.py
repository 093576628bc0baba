"""The `onnx` package, imported when it is needed: it is an extra, `mxlite[onnx]`."""

from __future__ import annotations

from typing import Any

from ...core import MXLiteError


def onnx_package() -> Any:
    """The `onnx` module. Raises MXLiteError with what to install where it is missing."""
    try:
        import onnx
        import onnx.defs
        import onnx.numpy_helper
    except ImportError as error:
        raise MXLiteError(
            f"ONNX models are read with the package onnx, which cannot be imported ({error}). "
            f"Install it with: pip install 'mxlite[onnx]'"
        ) from None
    return onnx
