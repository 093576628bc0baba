"""Structures that kernels take by value: their fields as declared in CUDA."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from .source import shared

_TYPES: dict[str, Any] = {
    "int": ctypes.c_int,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "double": ctypes.c_double,
}
_FIELD = re.compile(r"(\*?)(\w+)((?:\[\w+\])*)")


def declared(file: str, name: str, **structures: Any) -> list[tuple[str, Any]]:
    """ctypes' `_fields_` of ``struct name`` in cuda/<file>.cuh; `structures` are the types of fields that are
    structures themselves."""
    return fields_of(shared(file), name, **structures)


def fields_of(text: str, name: str, **structures: Any) -> list[tuple[str, Any]]:
    """The same for a structure that stands in `text`."""
    found = re.search(rf"struct {name} {{(.*?)}};", text, re.DOTALL)
    assert found is not None, name
    fields = []
    for line in re.sub("//.*", "", found[1]).split(";")[:-1]:
        kind, names = re.fullmatch(r"(?:const )?(\w+) (.*)", line.strip()).groups()  # type: ignore[union-attr]
        for pointer, field, lengths in _FIELD.findall(names):
            made = ctypes.c_void_p if pointer else {**_TYPES, **structures}[kind]
            for length in reversed(re.findall(r"\w+", lengths)):
                made = made * _number(text, length)
            fields.append((field, made))
    return fields


def _number(text: str, length: str) -> int:
    """The number that `length` is, or is named."""
    named = re.search(rf"\b{length} = (\d+)", text)
    return int(named[1] if named else length)
