"""Gradients of tables of which rows are picked, as generated code."""

from __future__ import annotations

import functools
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .....core.dtype import float32
from .....core.machine_code import native
from .....ops.index.embedding import ContribSparseEmbedding, Embedding
from .....ops.index.places import bounded, whole
from .....ops.index.take import take
from ....base import ChosenKernel, connected, Request
from ...compiled import call, Module, threads_for, usable
from ...compiled.calls.team import load
from ...compiled.codegen.ir import I64, Value
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of

LEAST = 1 << 12  # elements of the table from which on machine code is faster


class _Table(NamedTuple):
    """`outer` tables of `rows` rows of `columns` numbers, of which `picks` indices pick rows."""

    outer: int
    rows: int
    columns: int
    picks: int
    mode: str = "clip"


def _table(r: Request) -> _Table:
    a = r.attrs
    if r.op is take.grad_op:
        shape, axis = r.inputs[0], a.axis % len(r.inputs[0])
        sizes = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
        return _Table(*sizes, prod(r.inputs[1]), a.mode)
    return _Table(1, a.input_dim, a.output_dim, prod(r.inputs[0]))


def _gradient(r: Request) -> ChosenKernel | None:
    table, kind = _table(r), r.dtypes[0 if r.op is take.grad_op else 1]
    outer, rows, columns, count, mode = table
    if not usable() or kind != float32 or not count or outer * rows * columns < LEAST:
        return None
    threads = threads_for(4 * outer * columns * (rows + 2 * count)) if columns >= 64 else 1
    nbytes = 8 * count

    def connect(xp: Any, a: Any, d_out: Any, indices: Any, *, work: Any, **gradient: Any) -> Run:
        (target,) = gradient.values()
        if target is None:
            return in_turn(())
        places = work[:nbytes]
        args = [address_of(x) for x in (d_out, places, target)]
        keep = (d_out, places, target)
        slots = [*args, count, rows, columns, outer]
        return in_turn(
            [partial(_places, indices, places, rows, mode), call(_code(), "sum", slots, threads, keep=keep)]
        )

    return connected(connect, nbytes, "compiled sums into rows", like=r.op.forward)


def _places(indices: Any, work: Any, rows: int, mode: str) -> None:
    """Row indices into the table as integers, written to `work`."""
    bounded(np, whole(np, indices, work), rows, mode, "take")


@functools.cache
def _code() -> native.Code:
    """`sum`: target (outer, rows, columns) = 0, then row place[i] += row i of each outer one, in the order of
    i.

    Threads share columns, so that none waits for another.
    """
    module = Module()
    f = module.function("sum")
    given, places, target = (f.pointer(i) for i in range(3))
    count, rows, columns, outer = (f.integer(i) for i in range(3, 7))
    first, last = f.share(columns, f.width)
    with f.loop(0, outer) as table:
        own = f.offset(target, f.times(table.index, f.times(rows, columns)), "float32")
        sources = f.offset(given, f.times(table.index, f.times(count, columns)), "float32")
        with f.loop(0, rows) as row:
            into = f.offset(own, f.times(row.index, columns), "float32")
            f.sweep(first, last, lambda i, mask: f.store(f.const(0.0), into, i, mask=mask))
        with f.loop(0, count) as each:
            place = f.load_at(I64, f.offset(places, each.index, 8), 8)
            onto = f.offset(own, f.times(place, columns), "float32")
            source = f.offset(sources, f.times(each.index, columns), "float32")

            def add(i: Value, mask: Value | None) -> None:
                f.store(f.add(f.load(onto, i, mask=mask), f.load(source, i, mask=mask)), onto, i, mask=mask)

            f.sweep(first, last, add)
    f.done()
    return load(module)


SERVES = ("ops.index.embedding", "ops.index.take")
ROWS = kernel_rows(GENERATED, {op.grad_op: _gradient for op in (Embedding, ContribSparseEmbedding, take)})
