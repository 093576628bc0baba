"""Names that MXNet's programs import from `mxnet.base` besides its error: types of Python and numpy."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import MXLiteError

mx_real_t = np.float32
"""The element type of arrays for which no other is given."""
string_types = (str,)
numeric_types = (float, int, np.generic)
integer_types = (int, np.integer)


def py_str(text: bytes | str) -> str:
    """Text from MXNet's C strings; text of Python as it is."""
    return text.decode("utf-8") if isinstance(text, bytes) else text


class NotImplementedForSymbol(MXLiteError, NotImplementedError):
    """Raised for what arrays can do and symbols cannot, such as `bool(symbol)`: symbols have no values."""

    def __init__(
        self, function: Callable[..., Any] | str, alias: str | None = None, *args: Any, text: str = ""
    ) -> None:
        name = function if isinstance(function, str) else function.__name__
        called = f" (`{alias}`)" if alias else ""
        kinds = f" with arguments of types {[type(a).__name__ for a in args]}" if args else ""
        said = f"{name}{called} is not defined for symbols{kinds}: they have no values before they run."
        super().__init__(text or said)


def _as_list(obj: Any) -> list[Any]:
    """A list or tuple as a list, anything else as the only element of one."""
    return list(obj) if isinstance(obj, (list, tuple)) else [obj]


def data_dir_default() -> str:
    """The default folder for downloaded data: ~/.mxnet."""
    return os.path.join(os.path.expanduser("~"), ".mxnet")


def data_dir() -> str:
    """The folder of downloaded data: the environment variable MXNET_HOME, or `data_dir_default()`."""
    return os.getenv("MXNET_HOME", data_dir_default())
