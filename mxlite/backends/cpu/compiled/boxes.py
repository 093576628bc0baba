"""Copies and fills of boxes, between strided views of arrays, as generated code: whatever the elements are.

A box has up to MOST_AXES axes, in the order of the target. Its last axis is a row; rows that are contiguous
are copied as bytes (see `runs.py`), others element by element. Threads share blocks of rows.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from math import gcd, prod
from typing import Any

from ....core.machine_code import native
from ....te.moves import Axis
from .calls.team import caller, load, Run, threads_for
from .codegen.emitter import Function, Module
from .codegen.ir import Operand as Int, type_of, Value
from .runs import copy_run

MOST_AXES = 6
BLOCK = 2048  # elements of a block of rows
UNROLL = 8  # elements that are copied in one round


def box(axes: Sequence[Axis], nbytes: int, pattern: int | None) -> Callable[[int, int, object], Run]:
    """What makes calls that copy a box of elements of `nbytes`, from a target, a source, and what they keep;
    `pattern`: eight bytes with which a box is filled instead.
    """
    threads = threads_for(2 * nbytes * prod(n for n, _, _ in axes))
    if len(axes) == 1:  # rows that threads can share
        ((n, t, s),) = axes
        row = gcd(n, BLOCK)
        axes = [(n // row, row * t, row * s), (row, t, s)]
    *outer, (rows, down, down_source), (n, along, along_source) = axes
    block = max(1, BLOCK // n)
    blocks = -(-rows // block)
    is_run = along == 1 and (pattern is not None or along_source == 1)
    units = blocks * prod(k for k, _, _ in outer)
    numbers = [pattern or 0, units, block, blocks, rows, n * nbytes if is_run else n]
    numbers += [nbytes * x for x in (down, down_source, along, along_source)]
    numbers += [x for k, t, s in outer for x in (k, nbytes * t, nbytes * s)]
    make = caller(code(0 if is_run else nbytes, pattern is None, len(outer)), "move", threads)
    slots_of: Any = ctypes.c_int64 * (2 + len(numbers))
    all_slots = slots_of(0, 0, *numbers)

    def moved(target: int, source: int, keep: object) -> Run:
        slots = slots_of.from_buffer_copy(all_slots)
        slots[0], slots[1], slots.keep = target, source, keep
        return make(slots)

    return moved


@functools.cache
def code(nbytes: int, copies: bool, count: int) -> native.Code:
    """The code with one function, `move`, for elements of `nbytes`, 0 for rows that are runs of bytes, and so
    many axes before the last two.
    """
    module = Module()
    f = module.function("move")
    to, source, pattern = f.pointer(0), f.pointer(1), f.integer(2)
    units, block, blocks, rows, n, down, down_source, along, along_source = (
        f.integer(k) for k in range(3, 12)
    )
    outer = [tuple(f.integer(12 + 3 * k + j) for j in range(3)) for k in range(count)]
    begin, end = f.share(units)

    def moved(where: tuple[Value, Value], index: Int, steps: tuple[Value, Value]) -> tuple[Value, Value]:
        there, given = (f.at(at, f.times(index, step)) for at, step in zip(where, steps))
        return there, given if copies else where[1]

    with f.loop(begin, end) as unit:
        rest = f.over(unit.index, blocks)
        first = f.times(f.minus(unit.index, f.times(rest, blocks)), block)
        where = moved((to, source), first, (down, down_source))
        for length, step, step_source in reversed(outer):
            above = f.over(rest, length)
            where = moved(where, f.minus(rest, f.times(above, length)), (step, step_source))
            rest = above
        with f.loop(0, f.least(block, f.minus(rows, first))) as row:
            here = moved(where, row.index, (down, down_source))
            if nbytes:
                _elements(f, *here, n, along, along_source, nbytes, None if copies else pattern)
            else:
                copy_run(f, here[1] if copies else None, here[0], n, pattern)
    f.done()
    return load(module)


def _elements(
    f: Function,
    to: Value,
    source: Value,
    n: Value,
    along: Value,
    step: Value,
    nbytes: int,
    pattern: Value | None,
) -> None:
    """Copy the elements of a row, or write those of a pattern."""
    kind = type_of(f"i{8 * nbytes}")
    one = None if pattern is None else pattern if nbytes == 8 else f.cast("trunc", pattern, kind)
    done: Int = 0
    for count in (UNROLL, 1):
        until = f.binary("and", n, -count)
        with f.loop(done, until, count) as loop:
            at, given = f.at(to, f.times(loop.index, along)), f.at(source, f.times(loop.index, step))
            for _ in range(count):
                f.store_at(f.load_at(kind, given, 1) if one is None else one, at, 1)
                at, given = f.at(at, along), f.at(given, step)
        done = until
