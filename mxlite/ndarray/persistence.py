"""save and load: NDArrays in MXNet's container files (see `container.py`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from ..backends import backend_of
from ..core import cpu, FormatError, replacing
from ..core.dtype import as_dtype
from ..core.wanted import wanted_path
from ..engine import get_engine
from .container import read_container, write_container
from .ndarray import NDArray
from .sparse_array import sparse_array
from .sparse_form import Form

Arrays = list[NDArray] | dict[str, NDArray]


def save(fname: str | os.PathLike[str], data: NDArray | Sequence[NDArray] | Mapping[str, NDArray]) -> None:
    """Write an array, a list of arrays or a dict of named arrays. Waits. The file is replaced as a whole."""
    if isinstance(data, NDArray):
        data = [data]
    names: list[str] = []
    if isinstance(data, Mapping):
        names, arrays = list(data), list(data.values())
        if bad := [n for n in names if not isinstance(n, str)]:
            raise TypeError(f"names of saved arrays are str, got {bad[0]!r}.")
    elif isinstance(data, (list, tuple)):
        arrays = list(data)
    else:
        raise TypeError(f"save takes an NDArray, a list or a dict of them, got {type(data).__name__}.")
    for array in arrays:
        if not isinstance(array, NDArray):
            raise TypeError(f"save takes NDArrays, got {type(array).__name__}.")
    get_engine().wait_for(*(a.var for a in arrays))
    with replacing(fname) as file:
        write_container(file, [a.look() if a.stype == "default" else a.storage for a in arrays], names)


def load(fname: str | os.PathLike[str]) -> Arrays:
    """Arrays of a file: a dict if they are named, else a list. They are put on cpu(0), wherever they lived.

    Raises FormatError, naming file and byte, for a file that is truncated, corrupt or of another kind.
    """
    fname = wanted_path("load: fname", fname)
    with open(fname, "rb") as file:
        return _read(file, fname)


def load_frombuffer(buf: bytes | bytearray | memoryview) -> Arrays:
    """`load` for the content of a file."""
    if not isinstance(buf, (bytes, bytearray, memoryview)):
        raise TypeError(f"load_frombuffer takes bytes, got {type(buf).__name__}.")
    return _read(buf, "the buffer")


def _read(source: BinaryIO | bytes | bytearray | memoryview, what: str) -> Arrays:
    backend = backend_of(cpu())

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return backend.array(shape, as_dtype(dtype))

    raw, names = read_container(source, what, allocate)
    arrays = [sparse_array(a) if isinstance(a, Form) else NDArray(a) for a in raw]
    if not names:
        return arrays
    if len(set(names)) < len(names):
        twice = next(n for i, n in enumerate(names) if n in names[:i])
        raise FormatError(f"{what} has two arrays of the name {twice!r}.")
    return dict(zip(names, arrays))
