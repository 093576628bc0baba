"""The gradient of a table of rows, as generated code."""

from __future__ import annotations

import functools
from functools import partial
from math import prod
from typing import Any

import numpy as np

from .....core.dtype import float32
from .....core.machine_code import native
from .....ops.index.embedding import ContribSparseEmbedding, Embedding
from .....ops.index.places import bounded, whole
from ....base import ChosenKernel, connected, Request
from ...compiled import call, Module, threads_for, usable
from ...compiled.calls.team import load
from ...compiled.codegen.ir import I64, Value
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of

LEAST = 1 << 14  # elements of the table from which on machine code is faster


def _gradient(r: Request) -> ChosenKernel | None:
    rows, columns = r.attrs.input_dim, r.attrs.output_dim
    count = prod(r.inputs[0])
    if not usable() or r.dtypes[1] != float32 or not count or rows * columns < LEAST:
        return None
    threads = threads_for(4 * columns * (rows + 2 * count)) if columns >= 64 else 1
    nbytes = 8 * count

    def connect(xp: Any, a: Any, d_out: Any, data: Any, *, d_weight: Any, work: Any) -> Run:
        if d_weight is None:
            return in_turn(())
        places = work[:nbytes]
        args = [address_of(x) for x in (d_out, places, d_weight)]
        keep = (d_out, places, d_weight)
        return in_turn(
            [
                partial(_places, data, places, rows),
                call(_code(), "sum", [*args, count, rows, columns], threads, keep=keep),
            ]
        )

    return connected(connect, nbytes, "compiled sums into rows")


def _places(data: Any, work: Any, rows: int) -> None:
    """Row indices into the table as integers, written to `work`."""
    bounded(np, whole(np, data, work), rows, "clip", "Embedding")


@functools.cache
def _code() -> native.Code:
    """`sum`: target (rows, columns) = 0, then row place[i] += row i, in the order of i.

    Threads share columns, so that none waits for another.
    """
    module = Module()
    f = module.function("sum")
    given, places, target = (f.pointer(i) for i in range(3))
    count, rows, columns = (f.integer(i) for i in range(3, 6))
    first, last = f.share(columns, f.width)
    with f.loop(0, rows) as row:
        into = f.offset(target, f.times(row.index, columns), "float32")
        f.sweep(first, last, lambda i, mask: f.store(f.const(0.0), into, i, mask=mask))
    with f.loop(0, count) as each:
        place = f.load_at(I64, f.offset(places, each.index, 8), 8)
        onto = f.offset(target, f.times(place, columns), "float32")
        source = f.offset(given, f.times(each.index, columns), "float32")

        def add(i: Value, mask: Value | None) -> None:
            f.store(f.add(f.load(onto, i, mask=mask), f.load(source, i, mask=mask)), onto, i, mask=mask)

        f.sweep(first, last, add)
    f.done()
    return load(module)


SERVES = ("ops.index.embedding",)
ROWS = kernel_rows(GENERATED, {op.grad_op: _gradient for op in (Embedding, ContribSparseEmbedding)})
