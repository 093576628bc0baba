"""Copies of many runs of bytes between arrays, as generated code: the basis of concatenation and splitting.

A table lists parts: (source, source step, target, target step, bytes). Row r is copied as

    for each part: target + r * target step  <-  bytes at source + r * source step      (source 0: zeros)

so that a row of a joined array is written from one end to the other, and one of an array that is split is
read so. Threads take rows. The C library copies long runs: it can bypass the caches.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....core import native
from .emitter import Function, Module
from .team import call, load, Run, threads_for

UNROLL = 4  # vectors that are copied in one round
LONG = 8192  # bytes of a run for the C library


class Part(NamedTuple):
    """Addresses and steps, and the bytes of a run. source 0: zeros are written."""

    source: int
    source_step: int
    target: int
    target_step: int
    nbytes: int


def copied(rows: int, parts: Sequence[Part], keep: object) -> Run:
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
    with f.loop(begin, end) as row, f.loop("0", parts) as part:
        entry = f.offset(table, part.index, 40)
        first, source_step, to, target_step, nbytes = (
            f.emit(f"load i64, ptr {f.offset(entry, str(k), 8)}, align 8") for k in range(5)
        )
        target = _moved(f, to, row.index, target_step)
        there = f.emit(f"icmp ne i64 {first}, 0")
        with f.when(there):
            _run(f, _moved(f, first, row.index, source_step), target, nbytes)
        with f.when(f.emit(f"xor i1 {there}, true")):
            _run(f, None, target, nbytes)
    f.done()
    return load(module)


def _moved(f: Function, address: str, row: str, step: str) -> str:
    far = f.emit(f"mul i64 {row}, {step}")
    return f.emit(f"inttoptr i64 {f.emit(f'add i64 {address}, {far}')} to ptr")


def _run(f: Function, source: str | None, target: str, nbytes: str) -> None:
    """Copy one run, or write zeros."""
    v = f.width * 4

    def move(at: str, size: int) -> None:
        kind = f"<{size // 4} x i32>" if size >= 16 else f"i{8 * size}"
        value = "zeroinitializer" if size >= 16 else "0"
        if source is not None:
            value = f.emit(f"load {kind}, ptr {f.offset(source, at)}, align 1")
        f.do(f"store {kind} {value}, ptr {f.offset(target, at)}, align 1")

    whole = f.emit(f"icmp sge i64 {nbytes}, {v}")
    long = f.emit(f"icmp sge i64 {nbytes}, {LONG}")
    with f.when(long):
        if source is None:
            f.module.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
            f.do(f"call void @llvm.memset.p0.i64(ptr {target}, i8 0, i64 {nbytes}, i1 false)")
        else:
            f.module.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
            f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {nbytes}, i1 false)")
    with f.when(f.emit(f"xor i1 {whole}, {long}")):
        done = "0"
        for count in (UNROLL, 1):
            until = f.emit(f"and i64 {nbytes}, {-count * v}")
            with f.loop(done, until, count * v) as loop:
                for k in range(count):
                    move(f.emit(f"add i64 {loop.index}, {k * v}"), v)
            done = until
        # The rest, overlapping some of what is copied already.
        move(f.emit(f"sub i64 {nbytes}, {v}"), v)
    with f.when(f.emit(f"xor i1 {whole}, true")):
        size = v // 2
        while size:
            # The higher bits count what has been copied.
            with f.when(f.emit(f"icmp ne i64 {f.emit(f'and i64 {nbytes}, {size}')}, 0")):
                move(f.emit(f"and i64 {nbytes}, {-2 * size}"), size)
            size //= 2
