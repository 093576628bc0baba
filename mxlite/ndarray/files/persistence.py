"""save and load: NDArrays in MXNet's container files (see `container.py`)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...backends import backend_of
from ...core import cpu, FormatError, replacing
from ...core.dtype import as_dtype
from ...core.errors import ArgumentError
from ...core.wanted import wanted_path
from ...engine import get_engine
from ..ndarray import NDArray
from ..sparse_arrays.sparse_array import sparse_array
from ..sparse_arrays.sparse_form import SparseForm
from .container import read_array, read_container, write_container
from .stored import FileSource, StoredArray

Arrays = list[NDArray] | dict[str, NDArray]
Stored = NDArray | StoredArray


def save(fname: str | os.PathLike[str], data: NDArray | Sequence[NDArray] | Mapping[str, NDArray]) -> None:
    """Write an array, a list of arrays or a dict of named arrays. Waits. The file is replaced as a whole."""
    if isinstance(data, NDArray):
        data = [data]
    names: list[str] = []
    if isinstance(data, Mapping):
        names, arrays = list(data), list(data.values())
        if bad := [n for n in names if not isinstance(n, str)]:
            raise ArgumentError(f"names of saved arrays are str, got {bad[0]!r}.")
    elif isinstance(data, (list, tuple)):
        arrays = list(data)
    else:
        raise ArgumentError(f"save takes an NDArray, a list or a dict of them, got {type(data).__name__}.")
    for array in arrays:
        if not isinstance(array, NDArray):
            raise ArgumentError(f"save takes NDArrays, got {type(array).__name__}.")
    get_engine().wait_for(*(a.var for a in arrays))
    with replacing(fname) as file:
        write_container(file, [a if a.stype == "default" else a.storage for a in arrays], names)


def load(fname: str | os.PathLike[str]) -> Arrays:
    """Arrays of a file: a dict if they are named, else a list. They are put on cpu(0), wherever they lived.

    Raises FormatError, naming file and byte, for a file that is truncated, corrupt or of another kind.
    """
    fname = wanted_path("load: fname", fname)
    arrays: Arrays = _loaded(*read_container(FileSource.opened(fname), _allocate), fname)
    return arrays


def load_stored(fname: str | os.PathLike[str]) -> list[Stored] | dict[str, Stored]:
    """`load`, but dense arrays stay in the file, which is open as long as one of them exists.

    It may be replaced meanwhile, as `save` does, but not be written into.
    """
    fname = wanted_path("load: fname", fname)
    arrays: list[Stored] | dict[str, Stored] = _loaded(*read_container(FileSource.opened(fname), None), fname)
    return arrays


def load_frombuffer(buf: bytes | bytearray | memoryview) -> Arrays:
    """`load` for the content of a file."""
    if not isinstance(buf, (bytes, bytearray, memoryview)):
        raise ArgumentError(f"load_frombuffer takes bytes, got {type(buf).__name__}.")
    what = "the buffer"
    arrays: Arrays = _loaded(*read_container(FileSource.of(buf, what), _allocate), what)
    return arrays


def load_raw(handle: bytes | bytearray) -> np.ndarray[Any, Any]:
    """The elements of the array in one of MXNet's pickles. FormatError where it is not a dense one."""
    found = read_array(FileSource.of(handle, "the pickled array"), _allocate)
    if isinstance(found, SparseForm):
        raise FormatError("the pickled array is a sparse one, and an NDArray is dense.")
    return found


def _allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = backend_of(cpu()).array(shape, as_dtype(dtype))
    return array


def _loaded(raw: list[Any], names: list[str], what: str) -> Any:
    """Arrays with their names, if they have some."""
    arrays = [
        a if isinstance(a, StoredArray) else sparse_array(a) if isinstance(a, SparseForm) else NDArray(a)
        for a in raw
    ]
    if not names:
        return arrays
    named = dict(zip(names, arrays))
    if len(named) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise FormatError(f"{what} has two arrays of the name {twice!r:.100}.")
    return named
