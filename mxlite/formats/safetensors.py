"""Parameters in the safetensors format, in which models of PyTorch are exchanged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import ndarray as nd
from ..core import ArgumentError, FormatError, MXLiteError, replacing
from ..core.disk.files import opened
from ..core.dtype import as_dtype
from ..core.wanted import wanted_path

METADATA = {"format": "pt"}
"""Libraries of PyTorch ask for this entry before they read a file."""


def load_safetensors(path: str | os.PathLike[str]) -> dict[str, nd.NDArray]:
    """The arrays of a safetensors file by name: the names of a `state_dict`, which `from_torch` keeps.

        arrays = mx.formats.load_safetensors("model.safetensors")
        module.set_params(arrays, arrays, allow_extra=True)

    Raises FormatError, naming the file, for a file that is damaged or of another kind, and for elements of a
    type that mxlite does not have; nothing is allocated beyond the size of the file. Needs the package
    safetensors.
    """
    path = wanted_path("load_safetensors: path", path)
    package = _package()
    opened(path).close()  # what is wrong with the path is told in our words
    arrays = {}
    try:
        with package.safe_open(path, framework="np") as file:
            for name in file.keys():
                kind = file.get_slice(name).get_dtype()
                if kind not in _TYPES:
                    raise FormatError(
                        f"{path}: {name!r} has elements of type {kind}; mxlite has {', '.join(_TYPES)}."
                    )
                arrays[name] = nd.array(file.get_tensor(name), dtype=_TYPES[kind])
    except package.SafetensorError as error:
        raise FormatError(f"{path} is no safetensors file, or damaged: {error}.") from None
    return arrays


def save_safetensors(
    path: str | os.PathLike[str],
    arg_params: Mapping[str, nd.NDArray],
    aux_params: Mapping[str, nd.NDArray] | None = None,
) -> None:
    """Write arguments and auxiliary states under their names; PyTorch's `load_state_dict` takes them.

    Waits. The file is replaced as a whole or not at all. Meanwhile memory holds the arrays twice. Raises
    ArgumentError for a name in both. Needs the package safetensors.
    """
    package = _package()
    aux_params = aux_params or {}
    if both := sorted(arg_params.keys() & aux_params.keys()):
        raise ArgumentError(f"save_safetensors: {both[0]!r} is an argument and an auxiliary state.")
    arrays = {
        n: np.ascontiguousarray(a.asnumpy()).reshape(a.shape) for n, a in {**arg_params, **aux_params}.items()
    }
    content = package.numpy.save(arrays, METADATA)
    with replacing(path) as file:
        file.write(content)


_TYPES = {
    kind: as_dtype(name)
    for kind, name in (
        ("F32", "float32"), ("F64", "float64"), ("F16", "float16"), ("BF16", "bfloat16"), ("I64", "int64"),
        ("I32", "int32"), ("I8", "int8"), ("U8", "uint8"), ("BOOL", "bool"),
    )
}  # fmt: skip


def _package() -> Any:
    """The `safetensors` module. Raises MXLiteError with what to install where it is missing."""
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise MXLiteError(
            f"Safetensors files are read and written with the package safetensors, which cannot be imported "
            f"({error}). Install it with: pip install 'mxlite[safetensors]'"
        ) from None
    return safetensors
