"""The cross-entropy of rows of scores, summed up, as generated code."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .....core.dtype import float32
from .....ops.loss.cross_entropy import softmax_cross_entropy
from .....ops.loss.wide_losses import WideSoftmaxCrossEntropy
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import ChosenKernel, connected, Request
from ...compiled import call, storable, threads_for, usable
from ...compiled.cross_entropy import code, CrossEntropyForm
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of

LABELS = ("float32", "int32", "uint8")


def add_up(losses: Any, out: Any) -> None:
    """out (1,) = the sum of losses, accumulated in float64."""
    out[0] = np.add.reduce(losses, dtype=np.float64)


def _fits(r: Request) -> bool:
    if not usable() or 0 in r.inputs[0]:
        return False
    return r.dtype.name in storable() and r.dtypes[1].name in LABELS


def _forward(r: Request) -> ChosenKernel | None:
    if not _fits(r):
        return None
    rows, columns = r.inputs[0]
    made = code(CrossEntropyForm(r.dtype.name, r.dtypes[1].name, True), columns)
    threads = threads_for(16 * rows * columns)
    pieces: list[Piece] = [((rows,), float32)]

    def connect(xp: Any, a: Any, data: Any, label: Any, *, out: Any, work: Any) -> Run:
        if out is None:
            return in_turn(())
        (losses,) = carve(work, pieces)
        slots = [*(address_of(x) for x in (data, label, losses)), 0, 0, rows, columns]
        run = call(made, "cross_entropy", slots, threads, keep=(data, label, work))
        return in_turn([run, partial(add_up, losses, out)])

    return connected(connect, scratch_bytes(pieces), "compiled cross entropy")


def _backward(r: Request) -> ChosenKernel | None:
    head = r.dtype if r.op is softmax_cross_entropy.grad_op else float32
    if not _fits(r) or not r.is_used("d_out"):
        return None
    rows, columns = r.inputs[0]
    made = code(CrossEntropyForm(r.dtype.name, r.dtypes[1].name, False, head.name), columns)
    threads = threads_for(16 * rows * columns)

    def connect(xp: Any, a: Any, d_out: Any, data: Any, label: Any, *, d_data: Any) -> Run:
        if d_data is None:
            return in_turn(())
        at = [address_of(x) for x in (data, label, d_out, d_data)]
        slots = [at[0], at[1], 0, at[2], at[3], rows, columns]
        return call(made, "cross_entropy", slots, threads, keep=(d_out, data, label, d_data))

    return connected(connect, 0, "compiled cross entropy, backward")


SERVES = ("ops.loss.cross_entropy", "ops.loss.wide_losses")
ROWS = kernel_rows(
    GENERATED,
    {
        softmax_cross_entropy: _forward,
        softmax_cross_entropy.grad_op: _backward,
        WideSoftmaxCrossEntropy: _forward,
        WideSoftmaxCrossEntropy.grad_op: _backward,
    },
)
