"""Levels of x86-64: instructions that many processors have in common.

Named and defined by the System V psABI for AMD64 ("Micro-Architecture Levels"); LLVM and compilers know them
by the same names. `MXLITE_TARGET` asks for one, so that a program can be tried as a lesser machine runs it.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from ..errors import MXLiteError

_V1 = ("64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2")
_V2 = (*_V1, "cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")


class Level(NamedTuple):
    """`features`: LLVM's names of its instruction sets. `onednn`: the largest dnnl_cpu_isa_t within it."""

    features: frozenset[str]
    onednn: int


LEVELS = {
    "x86-64": Level(frozenset(_V1), 0x1),  # oneDNN has nothing below SSE4.1
    "x86-64-v2": Level(frozenset(_V2), 0x1),
    "x86-64-v3": Level(frozenset(_V3), 0x7),
    "x86-64-v4": Level(frozenset(_V4), 0x27),
}


def checked(name: str, triple: str, present: Set[str]) -> Level:
    """The level `name`, if a machine of this triple and these features has all of it; else MXLiteError."""
    if not triple.startswith("x86_64"):
        raise MXLiteError(
            f"MXLITE_TARGET={name} is a level of x86-64, but this machine is {triple.partition('-')[0]}; "
            f"MXLITE_TARGET=native suits every machine."
        )
    level = LEVELS[name]
    if missing := sorted(level.features - present):
        most = max((n for n, x in LEVELS.items() if x.features <= present), default="native")
        raise MXLiteError(
            f"MXLITE_TARGET={name} asks for {', '.join(missing)}, which this processor lacks; the highest "
            f"level that it has is {most}."
        )
    return level
