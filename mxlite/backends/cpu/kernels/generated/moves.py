"""Operators that only move elements, as generated code: rows of several arrays together, or boxes in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .....ops import find_op
from .....ops.loss.loss import MakeLoss
from .....ops.nn.im2col import col2im, im2col, Im2colDataGradient
from .....ops.optim.reset import reset_arrays
from .....ops.shape.reshape import View
from .....te.moves import axes_of, Axis, Move, Sheet
from ....base import ChosenKernel, connected, Request
from ....moves import moves_of, OPERATORS
from ...compiled import call, threads_for, usable
from ...compiled.boxes import box, MOST_AXES
from ...compiled.matrix.transposition import code, form
from ...compiled.runs import copied, RunPart
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of

FEW = 8  # elements of an axis that is read or written with gaps without much loss

Plan = Callable[[Mapping[str, int], object], Run]
"""What makes a call from the addresses of its arrays and what it keeps."""


def _row(r: Request) -> ChosenKernel | None:
    if not usable() or any(0 in s for s in (*r.inputs, *r.outputs)):
        return None
    found = moves_of(r)
    if found is None:
        return None
    turned = _transposition(found.all)
    plan = turned or _in_boxes(found.all)
    if plan is None:
        return None

    def connect(xp: Any, a: Any, *inputs: Any, **rest: Any) -> Run:
        moves, arrays = found.call(inputs, rest)
        some = plan if moves == found.all else _transposition(moves) or _in_boxes(moves)
        return some({n: address_of(x) for n, x in arrays.items()}, arrays) if some else in_turn(())

    name = "compiled copies" if turned is None else "compiled transposition"
    return connected(connect, 0, name, like=r.op.signature, mutates=bool(r.op.mutated(r.attrs)))


def _in_boxes(moves: Sequence[Move]) -> Plan | None:
    """What makes the call of moves as boxes; None if there are none, or if other kernels are better."""
    boxes = [axes_of(m.target, m.source) for m in moves]
    if not moves or any(len(axes) > MOST_AXES or _is_turned(axes) for axes in boxes):
        return None
    together = _together(moves, boxes) if len(moves) > 1 else None
    if together is not None:
        return together
    parts = [
        (*_from(m), m.target.of, _offset(m.target), box(axes, m.target.dtype.itemsize, _pattern(m)))
        for m, axes in zip(moves, boxes)
    ]
    still = [m.source is not None and all(t == s for _, t, s in axes) for m, axes in zip(moves, boxes)]

    def plan(at: Mapping[str, int], keep: object) -> Run:
        calls = []
        for (of, offset, to, begin, make), is_still in zip(parts, still):
            source, target = at[of] + offset if of else 0, at[to] + begin
            if not is_still or source != target:  # else it is a copy onto itself
                calls.append(make(target, source, keep))
        return in_turn(calls)

    return plan


def _offset(sheet: Sheet) -> int:
    return sheet.offset * int(sheet.dtype.itemsize)


def _from(m: Move) -> tuple[str, int]:
    """The array that a move reads and where in it; "" for a fill."""
    return ("", 0) if m.source is None else (m.source.of, _offset(m.source))


def _pattern(m: Move) -> int | None:
    """Eight bytes of a fill, as a whole number; None for a copy."""
    if m.source is not None:
        return None
    return int.from_bytes(m.value * (8 // m.target.dtype.itemsize), "little", signed=True)


def _together(moves: Sequence[Move], boxes: Sequence[list[Axis]]) -> Plan | None:
    """What makes the call of moves whose contiguous rows lie side by side, row by row; else None."""
    split = [axes if len(axes) > 1 else [(1, *axes[0][:1] * 2), *axes] for axes in boxes]
    rows = max(axes[0][0] for axes in split)
    steps = {axes[0][1] for axes in split if axes[0][0] == rows}
    parts = []
    for m, axes in zip(moves, split):
        (count, t, s), (n, along, along_source) = axes[0], axes[-1]
        item, copies = m.target.dtype.itemsize, m.source is not None
        if len(axes) > 2 or along != 1 or (copies and along_source != 1):
            return None
        if count == 1 and rows > 1:  # all of an array, in as many rows
            if copies or n % rows or steps != {n // rows}:
                return None
            n = t = n // rows
        elif count != rows:
            return None
        step = s * item if copies else _pattern(m) or 0
        parts.append((*_from(m), step, m.target.of, _offset(m.target), t * item, n * item))

    def plan(at: Mapping[str, int], keep: object) -> Run:
        table = [
            RunPart(at[of] + offset if of else 0, step, at[to] + begin, *row)
            for of, offset, step, to, begin, *row in parts
        ]
        return copied(rows, table, keep)

    return plan if rows > 1 else None


# -- transpositions --------------------------------------------------------------------------------


def _is_turned(axes: Sequence[Axis]) -> bool:
    """True if the source is contiguous along another axis than the target, and both are long."""
    n, _, s = axes[-1]
    return abs(s) > 1 and n >= FEW and any(abs(x) == 1 and k >= FEW for k, _, x in axes[:-1])


def _transposition(moves: Sequence[Move]) -> Plan | None:
    """What makes the call of a move that transposes matrices; None if it does not."""
    if len(moves) != 1 or moves[0].source is None:
        return None
    m = moves[0]
    axes, (source, offset) = axes_of(m.target, m.source), _from(m)
    if len(axes) not in (2, 3):
        return None
    (columns, t, s), (rows, along, along_source) = axes[-2:]
    batch, far, far_source = axes[0] if len(axes) == 3 else (1, rows * columns, rows * columns)
    dense = (t, s, along, along_source) == (rows, 1, 1, columns) and far == far_source == rows * columns
    how = form(m.target.dtype.itemsize, rows, columns) if dense else None
    if how is None:
        return None
    module, threads = code(how), threads_for(2 * batch * rows * columns * how.nbytes)

    def plan(at: Mapping[str, int], keep: object) -> Run:
        args = [at[source] + offset, at[m.target.of] + _offset(m.target), batch, rows, columns]
        return call(module, "transpose", args, threads, keep)

    return plan


SERVES = (
    "ops.layout", "ops.shape.constant", "ops.shape.cut", "ops.shape.depth", "ops.shape.diagonal",
    "ops.shape.join", "ops.shape.like", "ops.shape.padding", "ops.shape.shape", "ops.shape.split",
    "ops.linalg.matrices", "ops.loss.loss", "ops.loss.sparse_reg", "ops.nn.im2col",
    "ops.optim.reset", "ops.rnn.rnn", "ops.vision.image",
)  # fmt: skip
# What declares a computation may be part of larger nests, and views cost nothing where they are in place.
_MOVING = [op for op in OPERATORS if op.compute is None and not issubclass(op, View)]
# GPUs have others for these.
_MOVING += [find_op(f"_linalg_{name}") for name in ("extracttrian", "maketrian")]
_MOVING += [im2col, col2im, Im2colDataGradient, MakeLoss, reset_arrays]
ROWS = kernel_rows(GENERATED, {x: _row for op in _MOVING for x in (op, op.grad_op) if x is not None})
