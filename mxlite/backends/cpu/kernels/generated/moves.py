"""Operators that only move elements, as generated code: rows of several arrays together, or boxes in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from .....ops.loss.loss import MakeLoss
from .....ops.nn.im2col import col2im, im2col, Im2colDataGradient
from .....ops.optim.reset import reset_arrays
from .....ops.shape.reshape import View
from .....te.moves import axes_of, Axis, Move
from ....base import ChosenKernel, connected, Request
from ....moves import moves_of, OPERATORS
from ...compiled import call, threads_for, usable
from ...compiled.boxes import MOST_AXES, moved
from ...compiled.matrix.transposition import code, form
from ...compiled.runs import copied, RunPart
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of

FEW = 8  # elements of an axis that is read or written with gaps without much loss


def _row(r: Request) -> ChosenKernel | None:
    if not usable() or any(0 in s for s in (*r.inputs, *r.outputs)):
        return None
    found = moves_of(r)
    if found is None or not found.all:
        return None
    boxes = [(m, axes_of(m.target, m.source)) for m in found.all]
    turned = _transposition(boxes[0]) if len(boxes) == 1 else None
    if any(len(axes) > MOST_AXES - 1 or (_is_turned(axes) and not turned) for _, axes in boxes):
        return None

    def connect(xp: Any, a: Any, *inputs: Any, **rest: Any) -> Run:
        moves, arrays = found.call(inputs, rest)
        wanted = boxes if moves == found.all else [(m, axes_of(m.target, m.source)) for m in moves]
        if turned and wanted:
            return _turned(wanted[0][0], turned, arrays)
        rows = _together(wanted, arrays) if len(wanted) > 1 else None
        return rows or in_turn([run for m, axes in wanted if (run := _box(m, axes, arrays))])

    name = "compiled transposition" if turned else "compiled copies"
    return connected(connect, 0, name, like=r.op.signature, mutates=bool(r.op.mutated(r.attrs)))


def _address(sheet: Any, arrays: Mapping[str, Any]) -> int:
    return int(address_of(arrays[sheet.of])) + sheet.offset * int(sheet.dtype.itemsize)


def _pattern(m: Move) -> int:
    """Eight bytes of a fill, as a whole number."""
    return int.from_bytes(m.value * (8 // m.target.dtype.itemsize), "little", signed=True)


def _box(m: Move, axes: Sequence[Axis], arrays: Mapping[str, Any]) -> Run | None:
    """The call of one move; None for a copy onto itself."""
    target, source = _address(m.target, arrays), _address(m.source, arrays) if m.source is not None else 0
    if target == source and all(t == s for _, t, s in axes):
        return None
    pattern = _pattern(m) if m.source is None else 0
    return moved(target, source, axes, m.target.dtype.itemsize, pattern, (arrays,))


def _together(boxes: Sequence[tuple[Move, list[Axis]]], arrays: Mapping[str, Any]) -> Run | None:
    """The call of moves whose contiguous rows lie side by side, row by row; None if they do not."""
    split = [axes if len(axes) > 1 else [(1, *axes[0][:1] * 2), *axes] for _, axes in boxes]
    rows = max(axes[0][0] for axes in split)
    steps = {axes[0][1] for axes in split if axes[0][0] == rows}
    table = []
    for (m, _), axes in zip(boxes, split):
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
        source, step = (_address(m.source, arrays), s * item) if copies else (0, _pattern(m))
        table.append(RunPart(source, step, _address(m.target, arrays), t * item, n * item))
    return copied(rows, table, (arrays,)) if rows > 1 else None


# -- transpositions --------------------------------------------------------------------------------


def _is_turned(axes: Sequence[Axis]) -> bool:
    """True if the source is contiguous along another axis than the target, and both are long."""
    n, _, s = axes[-1]
    return abs(s) > 1 and n >= FEW and any(abs(x) == 1 and k >= FEW for k, _, x in axes[:-1])


def _transposition(box: tuple[Move, list[Axis]]) -> Any:
    """(form, batch, rows, columns) of a move that transposes matrices; None if it does not."""
    m, axes = box
    if len(axes) not in (2, 3) or m.source is None:
        return None
    (columns, t, s), (rows, along, along_source) = axes[-2:]
    batch, far, far_source = axes[0] if len(axes) == 3 else (1, rows * columns, rows * columns)
    dense = (t, s, along, along_source) == (rows, 1, 1, columns) and far == far_source == rows * columns
    how = form(m.target.dtype.itemsize, rows, columns) if dense else None
    return None if how is None else (how, batch, rows, columns)


def _turned(m: Move, turned: Any, arrays: Mapping[str, Any]) -> Run:
    how, *lengths = turned
    args = [_address(m.source, arrays), _address(m.target, arrays), *lengths]
    return call(code(how), "transpose", args, threads_for(2 * prod(lengths) * how.nbytes), keep=(arrays,))


SERVES = (
    "ops.layout", "ops.shape.constant", "ops.shape.cut", "ops.shape.depth", "ops.shape.diagonal",
    "ops.shape.join", "ops.shape.like", "ops.shape.padding", "ops.shape.shape", "ops.shape.split",
    "ops.index.sequence", "ops.linalg.matrices", "ops.loss.loss", "ops.loss.sparse_reg", "ops.nn.im2col",
    "ops.optim.reset", "ops.rnn.rnn", "ops.vision.image",
)  # fmt: skip
# What declares a computation may be part of larger nests, and views cost nothing where they are in place.
_MOVING = [op for op in OPERATORS if op.compute is None and not issubclass(op, View)]
_MOVING += [im2col, col2im, Im2colDataGradient, MakeLoss, reset_arrays]  # GPUs have others for these
ROWS = kernel_rows(GENERATED, {x: _row for op in _MOVING for x in (op, op.grad_op) if x is not None})
