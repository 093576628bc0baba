"""CUDA C++ source as passed to the compiler: the shared files of `cuda/`, then a kernel's own lines."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

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


@dataclass(frozen=True)
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
    folder = resources.files("mxlite.backends.gpu") / "cuda"
    parts = [(folder / f"{name}.cuh").read_text(encoding="utf-8") for name in names]
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
