"""CUDA C++ source as passed to the compiler: the shared files of `cuda/`, then a kernel's own lines."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

from ....core.record import record

NAMES = {
    "float32": "float",
    "float64": "double",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "int8": "signed char",
    "uint8": "uint8",
    "int32": "int",
    "int64": "int64",
    "bool": "bool",
}
"""The C++ type of an array's elements, by dtype."""

_FOLDER = resources.files("mxlite.backends.gpu") / "cuda"


@record
class KernelSource:
    """`text` defines kernels (extern "C"). `options` are NVRTC's, besides the architecture.

    Products and sums are not contracted unless `contract` is set: without it, a generated kernel does the
    arithmetic of the reference, rounding by rounding.
    """

    text: str
    contract: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        return ("-std=c++17", "-default-device", f"--fmad={'true' if self.contract else 'false'}")


@functools.lru_cache(maxsize=128)
def shared(*names: str) -> str:
    """The files `names` of the directory cuda/, in that order, as one text."""
    parts = [(_FOLDER / f"{name}.cuh").read_text(encoding="utf-8") for name in names]
    return "".join(parts).replace("#pragma once\n", "")


@functools.lru_cache(maxsize=256)
def assembled(*parts: str, contract: bool = False) -> KernelSource:
    """A source of several parts, each of them text, or the name of a file of the directory cuda/."""
    text = "".join(shared(part) if part.isidentifier() else part for part in parts)
    return KernelSource(text, contract)


def typedefs(**types: str) -> str:
    """Definitions of type names: ``typedefs(T="float")``."""
    return "".join(f"typedef {kind} {name};\n" for name, kind in types.items())


def kernel(name: str, parameters: Sequence[str], body: Sequence[str], threads: int, blocks: int = 0) -> str:
    """The definition of a kernel of blocks of at most `threads`.

    `blocks` of them must fit a multiprocessor, which bounds the registers of a thread; 0: the compiler
    decides.
    """
    bounds = f"{threads}, {blocks}" if blocks else f"{threads}"
    head = f'extern "C" __global__ void __launch_bounds__({bounds}) {name}(\n    '
    lines = "".join(f"    {line}\n" for line in body)
    return head + ",\n    ".join(parameters) + ") {\n" + lines + "}\n"


# -- structures that kernels take by value: their fields as declared in CUDA

_TYPES: dict[str, Any] = {
    "int": ctypes.c_int,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "double": ctypes.c_double,
}
_FIELD = re.compile(r"(\*?)(\w+)((?:\[\w+\])*)")


def structure(file: str, name: str, **structures: Any) -> Any:
    """The ctypes structure for ``struct name`` of cuda/<file>.cuh; see `declared`."""
    return type(name, (ctypes.Structure,), {"_fields_": declared(file, name, **structures)})


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
