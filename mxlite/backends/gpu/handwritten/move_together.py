"""Several copies of rows in one launch: the parts of a Concat, of a split, of their gradients.

A part is a block of rows of bytes, each row contiguous on both sides:

    part 0   out |====    |====    |        in |====|====|
    part 1   out |    ====|    ====|        in |====|====|

Each part has blocks of its own (`blockIdx.y`), which copy it in the largest units that all its rows allow;
parts with the same unit are one launch, up to MOST_PARTS. Parts that could touch each other's bytes are not
merged, and keep their order.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from ....te.moves import axes_of, Move
from ..compiler.source import kernel, KernelSource, shared
from ..runtime.device import Device, InOrder, nothing, Run
from .each import launch, THREADS
from .layout import Divisor
from .move import blocks_of, MOST, moved, UNITS

MOST_PARTS = 32  # in the parameters of a launch: 48 bytes each


class MovePart(NamedTuple):
    """`rows` rows of `nbytes`; addresses of the first ones, and row strides in bytes."""

    out: int
    given: int
    rows: int
    nbytes: int
    out_step: int
    given_step: int

    @property
    def unit(self) -> int:
        """The largest unit in which it can be copied."""
        return next(u for u in (16, 8, 4, 2, 1) if not any(x % u for x in (*self[:2], *self[3:])))

    def extents(self) -> tuple[range, range]:
        """The byte extents of the rows, in the target and in the source."""
        return tuple(  # type: ignore[return-value]
            range(a, a + (self.rows - 1) * step + self.nbytes)
            for a, step in ((self.out, self.out_step), (self.given, self.given_step))
        )


class _Part(ctypes.Structure):
    """A part as passed to the kernel, counted in units."""

    _fields_ = (
        *((n, ctypes.c_void_p) for n in ("out", "given")),
        ("units", ctypes.c_int64),
        *((n, ctypes.c_int64) for n in ("out_step", "given_step")),
        ("width", Divisor),
    )


class _Parts(ctypes.Structure):
    _fields_ = (("part", _Part * MOST_PARTS),)


@functools.lru_cache(maxsize=8)
def parts_source(unit: int) -> KernelSource:
    """The kernel "parts" for units of so many bytes."""
    text = shared("types", "index") + f"typedef {UNITS[unit]} T;\n"
    text += "struct Part { T *out; const T *given; int64 units, out_step, given_step; Divisor width; };\n"
    text += f"struct Parts {{ Part part[{MOST_PARTS}]; }};\n"
    body = [
        "const Part &p = parts.part[blockIdx.y];",
        "MX_EACH(at, p.units) {",
        "    uint32 row = (uint32)at / p.width, k = (uint32)at - row * p.width.n;",
        "    p.out[row * p.out_step + k] = p.given[row * p.given_step + k];",
        "}",
    ]
    return KernelSource(text + kernel("parts", ["Parts parts"], body, THREADS))


def all_moved(device: Device, moves: Sequence[Move], arrays: Any) -> Run:
    """The call that performs `moves`, in their order where that matters."""
    runs: list[Run] = []
    parts: list[MovePart] = []
    alone: list[Move] = []  # the same moves, one by one

    def close() -> None:
        runs.extend(_launches(device, parts) if len(parts) > 1 else [moved(device, m, arrays) for m in alone])
        parts.clear()
        alone.clear()

    for move in moves:
        if move.target.size == 0:
            continue
        part = _part(device, move, arrays)
        if part is None:
            close()
            runs.append(moved(device, move, arrays))
        elif part.out != part.given or part.out_step != part.given_step:  # otherwise it is in place
            if not all(_are_apart(part, p) for p in parts):
                close()
            parts.append(part)
            alone.append(move)
    close()
    return InOrder([run for run in runs if run is not nothing])


def _part(device: Device, move: Move, arrays: Any) -> MovePart | None:
    """A copy as a part of rows; None if it is none."""
    if move.source is None:
        return None
    item = move.target.dtype.itemsize
    out, given = (device.address(arrays[s.of]) + s.offset * item for s in (move.target, move.source))
    axes = axes_of(move.target, move.source)
    if axes[-1][1:] != (1, 1):
        axes.append((1, 1, 1))  # rows of one element
    if len(axes) > 2:
        return None
    n = axes[-1][0]
    rows, out_step, given_step = axes[0] if len(axes) == 2 else (1, n, n)
    if out_step < n or given_step < 0 or move.target.size * item > MOST:
        return None
    return MovePart(out, given, rows, n * item, out_step * item, given_step * item)


def _are_apart(a: MovePart, b: MovePart) -> bool:
    """True if neither reads or writes a byte that the other writes."""
    (out, given), (other_out, other_given) = a.extents(), b.extents()
    if _meet(out, other_given) or _meet(other_out, given):
        return False
    if not _meet(out, other_out):
        return True
    step, shift = a.out_step, b.out - a.out
    if a.rows != b.rows or b.out_step != step:
        return False
    return a.nbytes <= shift <= step - b.nbytes or b.nbytes <= -shift <= step - a.nbytes


def _meet(a: range, b: range) -> bool:
    return a.start < b.stop and b.start < a.stop


def _launches(device: Device, parts: Sequence[MovePart]) -> list[Run]:
    by_unit: dict[int, list[MovePart]] = {}
    for part in parts:
        by_unit.setdefault(part.unit, []).append(part)
    runs = []
    for unit, listed in by_unit.items():
        for i in range(0, len(listed), MOST_PARTS):
            runs.append(_launch(device, unit, listed[i : i + MOST_PARTS]))
    return runs


def _launch(device: Device, unit: int, parts: Sequence[MovePart]) -> Run:
    table = _Parts()
    for made, p in zip(table.part, parts):
        made.out, made.given, made.units = p.out, p.given, p.rows * p.nbytes // unit
        made.out_step, made.given_step = p.out_step // unit, p.given_step // unit
        made.width = Divisor(p.nbytes // unit)
    most = max(p.rows * p.nbytes // unit for p in parts)
    grid = blocks_of(device, most), len(parts)
    return launch(device, parts_source(unit), "parts", grid, THREADS, table)
