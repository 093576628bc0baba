"""Casts of contiguous arrays: one pass over memory, one launch for several of the same types.

Mixed precision rounds every weight once a step, and most are so small that the launch dominates. So the
kernel takes a table of arrays by value: it needs no memory on the device and no copy, and a captured graph
holds it. Each array has blocks of its own, each of CHUNK packs.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from ....core.dtype import as_dtype
from ..compiler.kinds import FLOATS
from ..compiler.source import kernel, KernelSource, NAMES, shared
from ..runtime.device import Device, one_after_other, Run
from .each import launch, THREADS

CHUNK = 2 * THREADS  # packs of a block: two loads are under way
CAPACITY = 64  # arrays of a launch: 32 bytes each in its arguments
MOST_BLOCKS = 2**31 - 1


class _Part(ctypes.Structure):
    """Elements from `given` to `out`, by blocks from `first` on; packed: both are aligned to whole packs."""

    _fields_ = (
        ("out", ctypes.c_void_p),
        ("given", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("first", ctypes.c_uint32),
        ("packed", ctypes.c_uint32),
    )


def is_dense(target: Any, source: Any) -> bool:
    """True if both are in C order and of one shape."""
    both = target.flags.c_contiguous and source.flags.c_contiguous
    return bool(both) and tuple(target.shape) == tuple(source.shape)


def cast_all(device: Device, pairs: Sequence[tuple[Any, Any]]) -> Run:
    """The call that casts the elements of each source into its target: contiguous pairs that share no
    memory with other pairs. Each element is read and written once.

    Floats are converted to integers as in C, by truncation; values out of range are as the device converts
    them.
    """
    kinds: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
    for target, source in pairs:
        if target.size:
            kinds.setdefault((str(source.dtype), str(target.dtype)), []).append((target, source))
    runs: list[Run] = []
    for (given, made), listed in kinds.items():
        most = 1 if len(listed) == 1 else CAPACITY
        while listed:
            table, blocks, count = _table(device, listed, most)
            text = source_of(given, made, most)
            runs.append(launch(device, text, "casts", blocks, THREADS, table, count))
            listed = listed[count:]
    return one_after_other(runs)


def _table(device: Device, pairs: Sequence[tuple[Any, Any]], most: int) -> tuple[Any, int, int]:
    """(table, blocks, arrays) of one launch: as many of the pairs as it takes."""
    table = (_Part * most)()
    blocks = count = 0
    for part, (target, source) in zip(table, pairs):
        pack = pack_of(str(source.dtype), str(target.dtype))
        own = -(-target.size // (CHUNK * pack))
        if count and blocks + own > MOST_BLOCKS:
            break
        part.out, part.given = device.address(target), device.address(source)
        part.size, part.first = target.size, blocks
        whole = part.out % (pack * target.dtype.itemsize) == part.given % (pack * source.dtype.itemsize) == 0
        part.packed = whole
        blocks += own
        count += 1
    return table, blocks, count


def pack_of(given: str, made: str) -> int:
    """Elements that a thread processes at once: 16 bytes of the wider type."""
    return 16 // max(as_dtype(given).itemsize, as_dtype(made).itemsize)


@functools.lru_cache(maxsize=256)
def source_of(given: str, made: str, capacity: int) -> KernelSource:
    """The kernel "casts" from one dtype to another, for at most `capacity` arrays, 1 or a power of two."""
    pack, kinds = pack_of(given, made), (NAMES[given], NAMES[made])
    text = shared("types", "index") + (
        f"struct Part {{ {kinds[1]} *out; const {kinds[0]} *given; int64 size; uint32 first, packed; }};\n"
        f"struct Parts {{ Part part[{capacity}]; }};\n"
    )
    body = [
        "int own = 0;",
        "#pragma unroll",
        f"for (int step = {capacity} / 2; step; step /= 2)",
        "    if (own + step < count && parts.part[own + step].first <= blockIdx.x) own += step;",
        "const Part &p = parts.part[own];",
        f"int64 begin = (int64)(blockIdx.x - p.first) * {CHUNK * pack};",
        f"int64 end = p.size - begin < {CHUNK * pack} ? p.size : begin + {CHUNK * pack};",
        f"int64 packs = p.packed ? end / {pack} : 0;",
        "#pragma unroll 2",
        f"for (int64 at = begin / {pack} + threadIdx.x; at < packs; at += {THREADS}) {{",
        f"    Pack<{kinds[0]}, {pack}> x = ((const Pack<{kinds[0]}, {pack}> *)p.given)[at];",
        f"    Pack<{kinds[1]}, {pack}> y;",
        "    #pragma unroll",
        f"    for (int e = 0; e < {pack}; ++e) y.at[e] = {conversion(given, made, 'x.at[e]')};",
        f"    ((Pack<{kinds[1]}, {pack}> *)p.out)[at] = y;",
        "}",
        f"int64 rest = p.packed ? packs * {pack} : begin;",
        f"for (int64 at = rest + threadIdx.x; at < end; at += {THREADS})",
        f"    p.out[at] = {conversion(given, made, 'p.given[at]')};",
    ]
    parameters = ["const __grid_constant__ Parts parts", "int count"]
    return KernelSource(text + kernel("casts", parameters, body, THREADS))


def conversion(given: str, made: str, x: str) -> str:
    """C++ expression that casts the element `x` to another type."""
    if given == made:
        return x
    wide = "double" if given in ("float64", "int32", "int64") or made == "float64" else "float"
    if given in FLOATS:
        number = f"to<{wide}>({x})"
        if made in FLOATS:
            return f"from<{NAMES[made]}>({number})"
        return f"{number} != 0" if made == "bool" else f"({NAMES[made]})(int64){number}"
    if made in FLOATS:
        return f"from<{NAMES[made]}>(({wide}){x})"
    return f"{x} != 0" if made == "bool" else f"({NAMES[made]}){x}"
