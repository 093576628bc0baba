"""Copies of many runs of bytes between arrays, as generated code: the basis of concatenation and splitting.

A table lists parts: (source, source step, target, target step, bytes). Row r is copied as

    for each part: target + r * target step  <-  bytes at source + r * source step

so that a row of a joined array is written from one end to the other, and one of an array that is split is
read so. Where the source is 0 its step is a pattern of 8 bytes, which is written. Threads take rows. The C
library copies long runs: it can bypass the caches.

Copied box by box instead (`boxes.py`), joins and splits of three or four arrays with channels last take up to
1.6 times as long (2026-11-28).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....core.machine_code import native
from .calls.team import call, load, Run, threads_for
from .codegen.emitter import Function, Module
from .codegen.ir import I1, I64, number, Operand as Int, PTR, type_of, Value

UNROLL = 4  # vectors that are copied in one round
LONG = 2048  # bytes of a run for the C library


class RunPart(NamedTuple):
    """Addresses and steps, and the bytes of a run. source 0: its step is a pattern that is written."""

    source: int
    source_step: int
    target: int
    target_step: int
    nbytes: int


def copied(rows: int, parts: Sequence[RunPart], keep: object) -> Run:
    """The call that copies `rows` rows; `keep` are the arrays."""
    table = np.array(parts, np.int64)
    threads = threads_for(2 * rows * sum(p.nbytes for p in parts))
    where = int(table.__array_interface__["data"][0])
    return call(code(), "copy", [rows, len(parts), where], min(threads, max(1, rows)), keep=(table, keep))


@functools.cache
def code() -> native.Code:
    """The code with one function, `copy`: its arguments are rows, parts and the table."""
    module = Module()
    f = module.function("copy")
    rows, parts, table = f.integer(0), f.integer(1), f.pointer(2)
    begin, end = f.share(rows)
    with f.loop(begin, end) as row, f.loop(0, parts) as part:
        entry = f.offset(table, part.index, 40)
        first, source_step, to, target_step, nbytes = (
            f.load_at(I64, f.offset(entry, k, 8), 8) for k in range(5)
        )
        target = _moved(f, to, row.index, target_step)
        there = f.is_("ne", first, 0)
        with f.when(there):
            copy_run(f, _moved(f, first, row.index, source_step), target, nbytes, source_step)
        with f.when(f.negated(there)):
            copy_run(f, None, target, nbytes, source_step)
    f.done()
    return load(module)


def _moved(f: Function, address: Value, row: Value, step: Value) -> Value:
    far = f.times(row, step)
    return f.cast("inttoptr", f.plus(address, far), PTR)


def copy_run(f: Function, source: Value | None, target: Value, nbytes: Value, pattern: Value) -> None:
    """Copy one run, or write a pattern."""
    v = f.width * 4
    every = f.cast("bitcast", f.spread(pattern, v // 8), type_of("i32", v // 4)) if source is None else None

    def move(at: Int, size: int) -> None:
        if source is not None:
            kind = type_of("i32", size // 4) if size >= 16 else type_of(f"i{8 * size}")
            value = f.load_at(kind, f.offset(source, at), 1)
        elif every is not None and size >= 16:
            value = every if size == v else f.shuffle(every, every, range(size // 4))
        else:
            value = pattern if size == 8 else f.cast("trunc", pattern, type_of(f"i{8 * size}"))
        f.store_at(value, f.offset(target, at), 1)

    whole = f.is_("sge", nbytes, v)
    long = f.is_("sge", nbytes, LONG if source is not None else 1 << 62)
    with f.when(long):
        if source is not None:
            f.do_call("llvm.memcpy.p0.p0.i64", target, source, nbytes, number(I1, False))
    with f.when(f.binary("xor", whole, long)):
        done: Int = 0
        for count in (UNROLL, 1):
            until = f.binary("and", nbytes, -count * v)
            with f.loop(done, until, count * v) as loop:
                for k in range(count):
                    move(f.binary("add", loop.index, k * v), v)
            done = until
        # The rest, overlapping some of what is copied already.
        move(f.minus(nbytes, v), v)
    with f.when(f.negated(whole)):
        size = v // 2
        while size:
            # The higher bits count what has been copied.
            with f.when(f.is_("ne", f.binary("and", nbytes, size), 0)):
                move(f.binary("and", nbytes, -2 * size), size)
            size //= 2
