"""Copies and fills between strided views: vector copies of contiguous rows, tiles for transpositions.

A copy is reduced to the fewest axes, ordered as in the target, and becomes one launch. Then

    rows    both views are contiguous along the last axis: units of up to 16 bytes, read and written once
    tiles   the source is contiguous along another axis: 32 x 32 elements at a time go through shared
            memory, so that both sides are read and written in rows of 32
    single  else, or where a tile would be almost empty: a thread for each element, in the target's order

Only sizes of elements count, never types.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from ....te.moves import axes_of, Axis, Move, Sheet
from ..compiler.source import assembled, kernel, KernelSource, typedefs
from ..runtime.device import Device, nothing, pointer, Run
from .each import launch, THREADS
from .layout import divisor

ROUNDS = 4  # units of a thread, where there are enough for all
TILE = 32
FEW = 8  # elements of an axis below which a tile is mostly empty
MOST = 2**31 - 1  # of divisors by multiplication

UNITS = {1: "uint8", 2: "unsigned short", 4: "uint32", 8: "uint64", 16: "Pack<uint64, 2>"}
"""The type as which bytes of one unit are copied."""


def of_units(name: str, parameters: Sequence[str], sizes: Iterable[int] = (1, 2, 4, 8)) -> str:
    """Kernels `NAME_SIZE` that call the function template `name` for units of these sizes in bytes.

    `parameters` are declarations, in which `U` is the unit's type.
    """
    text, names = "", ", ".join(p.split()[-1].lstrip("*") for p in parameters)
    for size in sizes:
        own = [re.sub(r"\bU\b", UNITS[size], p) for p in parameters]
        text += kernel(f"{name}_{size}", own, [f"{name}<{UNITS[size]}>({names});"], THREADS)
    return text


@functools.lru_cache(maxsize=256)
def single_source(unit: int, outer: int, wide: bool, fill: bool) -> KernelSource:
    """The kernel "single" for units of bytes, `outer` axes before the last; `wide`: more than MOST units."""
    number = "int64" if wide else "uint32"
    parameters = [f"{UNITS[unit]} *out"]
    parameters.append("uint64 value" if fill else f"const {UNITS[unit]} *in")
    parameters += ["int64 units", "int64 out_last", "int64 in_last"]
    for axis in range(1, outer + 1):
        parameters += [f"{number} n{axis}"] + ([] if wide else [f"uint32 n{axis}_m", f"uint32 n{axis}_s"])
    parameters += [f"int64 out_{axis}, int64 in_{axis}" for axis in range(outer)]
    body = ["MX_EACH(at, units) {", f"    {number} rest = ({number})at;"]
    for axis in range(outer, 0, -1):
        quotient = f"rest / n{axis}" if wide else f"divided(rest, n{axis}_m, n{axis}_s)"
        body += [
            f"    {number} left{axis} = {quotient};",
            f"    int64 x{axis} = (int64)(rest - left{axis} * n{axis});",
            f"    rest = left{axis};",
        ]
    body.append("    int64 x0 = (int64)rest;")
    terms = {
        side: " + ".join([*(f"x{i} * {side}_{i}" for i in range(outer)), f"x{outer} * {side}_last"])
        for side in ("out", "in")
    }
    if fill and unit == 16:
        body.append(f"    {UNITS[16]} v = {{{{value, value}}}};")
        body.append(f"    out[{terms['out']}] = v;")
    elif fill:
        body.append(f"    out[{terms['out']}] = ({UNITS[unit]})value;")
    else:
        body.append(f"    out[{terms['out']}] = in[{terms['in']}];")
    body.append("}")
    return assembled("types", "index", kernel("single", parameters, body, THREADS))


def tiles_source(unit: int) -> KernelSource:
    """The kernel "tiles" for elements of `unit` bytes; see cuda/tiles.cuh."""
    return assembled("types", typedefs(T=UNITS[unit]), "tiles")


def moved(device: Device, move: Move, arrays: Any) -> Run:
    """The call that performs `move`; `arrays[sheet.of]` is the base array of a sheet, in C order."""
    target, source = move.target, move.source
    if target.size == 0:
        return nothing
    item = target.dtype.itemsize
    out = device.address(arrays[target.of]) + target.offset * item
    axes = axes_of(target, source)
    if source is None:
        return _filled(device, out, axes, move.value, item)
    given = device.address(arrays[source.of]) + source.offset * item
    if out == given and all(t == s for _, t, s in axes):
        return nothing  # in place
    turned = next((i for i, (n, _, s) in enumerate(axes[:-1]) if abs(s) == 1 and n >= FEW), None)
    n, t, s = axes[-1]
    if turned is not None and abs(t) == 1 and s not in (0, 1, -1) and n >= FEW and len(axes) <= 6:
        return _in_tiles(device, out, given, axes, turned, item)
    return _one_by_one(device, out, given, axes, item)


def copied(device: Device, source: Any, target: Any) -> Run:
    """The call that copies an array in C order to another of its size and type; a no-op for itself."""
    arrays = {"source": source, "target": target}
    given, made = (Sheet.whole(n, (x.size,), x.dtype, []) for n, x in arrays.items())
    return moved(device, Move(made, given), arrays)


def _one_by_one(device: Device, out: int, given: int, axes: Sequence[Axis], item: int) -> Run:
    unit, axes = _units(out, given, axes, item)
    return _launch(device, out, pointer(given), axes, unit, fill=False)


def _filled(device: Device, out: int, axes: Sequence[Axis], value: bytes, item: int) -> Run:
    pattern = ctypes.c_uint64(int.from_bytes(value * (8 // item), "little"))
    unit, axes = _units(out, out, [(n, t, t) for n, t, _ in axes], item)
    return _launch(device, out, pattern, axes, unit, fill=True)


def _units(out: int, given: int, axes: Sequence[Axis], item: int) -> tuple[int, list[Axis]]:
    """The largest unit in which rows can be copied, and the axes counted in it."""
    n, t, s = axes[-1]
    unit = item
    while t == s == 1 and unit < 16:
        larger = 2 * unit
        step = larger // item
        outer = [x for _, a, b in axes[:-1] for x in (a, b)]
        if n % step or out % larger or given % larger or any(x % step for x in outer):
            break
        unit = larger
    step = unit // item
    if step == 1:
        return unit, list(axes)
    return unit, [*((m, a // step, b // step) for m, a, b in axes[:-1]), (n // step, 1, 1)]


def _launch(device: Device, out: int, given: Any, axes: Sequence[Axis], unit: int, fill: bool) -> Run:
    units, outer = prod(n for n, _, _ in axes), len(axes) - 1
    wide = units > MOST
    values: list[Any] = [pointer(out), given]
    values += [ctypes.c_int64(x) for x in (units, *axes[-1][1:])]
    for n, _, _ in axes[1:]:
        if wide:
            values.append(ctypes.c_int64(n))
        else:
            values += [ctypes.c_uint32(x) for x in (n, *divisor(n))]
    values += [ctypes.c_int64(x) for _, t, s in axes[:-1] for x in (t, s)]
    text = single_source(unit, outer, wide, fill)
    return launch(device, text, "single", min(blocks_of(device, units), MOST), THREADS, *values)


def blocks_of(device: Device, units: int) -> int:
    """Number of blocks with ROUNDS units for a thread, but enough to keep the device busy."""
    return min(-(-units // THREADS), max(-(-units // (THREADS * ROUNDS)), 16 * device.multiprocessors))


def _in_tiles(device: Device, out: int, given: int, axes: Sequence[Axis], turned: int, item: int) -> Run:
    rows, columns = axes[turned], axes[-1]
    rest = [a for i, a in enumerate(axes[:-1]) if i != turned]
    tiles = [-(-n // TILE) for n, _, _ in (rows, columns)]
    axes_of_tiles = ([(1, 0, 0)] * 4 + rest)[-4:]
    count = prod(tiles) * prod(n for n, _, _ in rest)
    numbers = [*rows, *columns, *tiles, *(x for axis in axes_of_tiles for x in axis), count]
    values = pointer(out), pointer(given), *map(ctypes.c_int64, numbers)
    return launch(device, tiles_source(item), "tiles", min(count, MOST), (TILE, 8), *values)
