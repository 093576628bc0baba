"""Parameters in the safetensors format, in which models of PyTorch are exchanged."""

from __future__ import annotations

import json
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

ALIGN = 8  # bytes; the header's length is a multiple of it


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

    Waits. The file is replaced as a whole or not at all. Memory holds one array twice at a time. Raises
    ArgumentError for a name in both, and for elements of a type that the format lacks.
    """
    aux_params = aux_params or {}
    if both := sorted(arg_params.keys() & aux_params.keys()):
        raise ArgumentError(f"save_safetensors: {both[0]!r} is an argument and an auxiliary state.")
    arrays = {**arg_params, **aux_params}
    kinds = {dtype: kind for kind, dtype in _TYPES.items()}
    header: dict[str, Any] = {"__metadata__": METADATA}
    stop = 0
    # From wide elements to narrow ones, so that each array begins at a multiple of its element's size.
    for name in sorted(arrays, key=lambda n: (-as_dtype(arrays[n].dtype).itemsize, n)):
        array, dtype = arrays[name], as_dtype(arrays[name].dtype)
        if dtype not in kinds or name in header:
            raise ArgumentError(
                f"save_safetensors: a file cannot have {name!r}, of type {dtype}: arrays are of types "
                f"{', '.join(map(str, kinds))}, and not called {next(iter(header))!r}."
            )
        start, stop = stop, stop + array.size * dtype.itemsize
        header[name] = {"dtype": kinds[dtype], "shape": array.shape, "data_offsets": (start, stop)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGN)
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in [*header][1:]:
            file.write(np.ascontiguousarray(arrays[name].asnumpy()).reshape(-1).view(np.uint8))


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
    except ImportError as error:
        raise MXLiteError(
            f"Safetensors files are read and written with the package safetensors, which cannot be imported "
            f"({error}). Install it with: pip install 'mxlite[safetensors]'"
        ) from None
    return safetensors
