"""Parameter files of a checkpoint: NDArray containers whose names say `arg:NAME` or `aux:NAME`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

from ..core import FormatError
from ..ndarray import load, NDArray, save
from ..ndarray.files.persistence import load_stored, Stored

_KINDS = ("arg", "aux")
Array = TypeVar("Array", bound=Stored)


def load_params(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
    """Arguments and auxiliary states of a `.params` file, by name.

    Raises FormatError for a file that is no container, or that has a name of another form.
    """
    return _by_kind(load(path), path)


def stored_params(path: str | os.PathLike[str]) -> tuple[dict[str, Stored], dict[str, Stored]]:
    """`load_params` whose arrays are still in the file, except sparse ones: to be copied to others."""
    return _by_kind(load_stored(path), path)


def _by_kind(
    arrays: list[Array] | dict[str, Array], path: str | os.PathLike[str]
) -> tuple[dict[str, Array], dict[str, Array]]:
    found: dict[str, dict[str, Array]] = {kind: {} for kind in _KINDS}
    if isinstance(arrays, list):
        if arrays:
            raise FormatError(
                f"{os.fspath(path)} holds {len(arrays)} arrays without names; parameters are called "
                f"'arg:NAME' or 'aux:NAME'. mx.nd.load reads it as a list."
            )
        arrays = {}
    for full_name, array in arrays.items():
        kind, colon, name = full_name.partition(":")
        if not colon or kind not in found:
            raise FormatError(
                f"{os.fspath(path)} holds {full_name!r}; parameters are named 'arg:NAME' or 'aux:NAME'. "
                f"mx.nd.load reads it as a dict."
            )
        found[kind][name] = array
    return found["arg"], found["aux"]


def save_params(
    path: str | os.PathLike[str], arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]
) -> None:
    """Write arguments, then auxiliary states. Waits. The file is replaced as a whole or not at all."""
    named = {f"arg:{name}": array for name, array in arg_params.items()}
    named |= {f"aux:{name}": array for name, array in aux_params.items()}
    save(path, named)
