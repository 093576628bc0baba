"""Names that MXNet's programs import from `mxnet.util`: the meaning of 0 in shapes, and the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from ..errors import MXLiteError
from .npshape import (
    is_np_shape as is_np_shape,
    np_shape as np_shape,
    set_np_shape as set_np_shape,
    use_np_shape as use_np_shape,
)

_NO_ARRAYS = "mxlite has no arrays of mx.np: use mx.nd, with mx.np_shape() for axes of no elements."


def getenv(name: str) -> str | None:
    """The environment variable as text, None where it is not set."""
    return os.environ.get(name)


def setenv(name: str, value: str | None) -> None:
    """Set an environment variable; None takes it away."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def makedirs(d: str) -> None:
    """Make a folder and those above it; it may be there."""
    os.makedirs(os.path.expanduser(d), exist_ok=True)


def is_np_array() -> bool:
    """True if operators return arrays of mx.np: never here."""
    return False


@contextmanager
def np_array(active: bool = True) -> Iterator[None]:
    """`with np_array(False):` does nothing; MXLiteError for True, as mxlite has no mx.np."""
    if active:
        raise MXLiteError(_NO_ARRAYS)
    yield


def use_np(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of functions on arrays of mx.np: a call raises MXLiteError, as mxlite has none."""

    @wraps(function)
    def refused(*_: Any, **__: Any) -> Any:
        raise MXLiteError(f"{function.__name__}: {_NO_ARRAYS}")

    return refused


use_np_array = use_np


class _NumpyArrayScope:
    """`with _NumpyArrayScope(False):` does nothing; MXLiteError for True. Private in MXNet, too."""

    def __init__(self, is_np_array: bool) -> None:
        if is_np_array:
            raise MXLiteError(_NO_ARRAYS)
        self._is_np_array = False

    def __enter__(self) -> _NumpyArrayScope:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def set_np(shape: bool = True, array: bool = True) -> None:
    """Set the meaning of 0 in shapes (see `set_np_shape`); `array=True` is a MXLiteError, as mxlite has no
    mx.np.
    """
    if array:
        raise MXLiteError(_NO_ARRAYS)
    set_np_shape(shape)


def reset_np() -> None:
    """Back to MXNet's own meaning of shapes."""
    set_np_shape(False)
