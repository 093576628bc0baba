"""Concatenation along an axis, and splitting along one, as generated code."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from .....graph.ir import Shape
from .....ops.shape.cut import slice_axis
from .....ops.shape.join import Concat, stack
from .....ops.shape.split import places_of, SliceChannel, SplitV2, Unconcat
from ....base import ChosenKernel, connected, Request
from ...compiled import usable
from ...compiled.runs import copied, RunPart
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of


class Cut(NamedTuple):
    """Split of an array into parts: `rows` rows of `length` elements, of which part i has [begin, end)."""

    rows: int
    length: int
    parts: tuple[tuple[int, int], ...]


def _along(shape: Shape, axis: int, limits: Sequence[int]) -> Cut:
    """The cut of an array of `shape` at `limits` of one axis."""
    inner = prod(shape[axis + 1 :])
    pairs = tuple((i * inner, j * inner) for i, j in pairwise(limits))
    return Cut(prod(shape[:axis]), shape[axis] * inner, pairs)


def _of_lengths(whole: Shape, axis: int, parts: Sequence[Shape]) -> Cut:
    limits = [0]
    for s in parts:
        limits.append(limits[-1] + s[axis])
    return _along(whole, axis, limits)


def cut_of(r: Request) -> Cut:
    """The cut of a request that joins or splits."""
    op, a = r.op.forward_op or r.op, r.attrs
    if op is Concat:
        return _of_lengths(r.outputs[0], a.dim % len(r.outputs[0]), r.inputs)
    if op is stack:
        axis = a.axis % len(r.outputs[0])
        return _along(r.outputs[0], axis, range(len(r.inputs) + 1))
    whole = r.inputs[0]
    if op is Unconcat:
        return _of_lengths(whole, a.dim % len(whole), r.inputs[1:])
    axis = a.axis % len(whole)
    if op is SliceChannel:
        step = whole[axis] // a.num_outputs
        return _along(whole, axis, range(0, whole[axis] + 1, step))
    if op is SplitV2:
        return _along(whole, axis, places_of(a, whole[axis]))
    begin = a.begin % whole[axis] if a.begin < 0 else a.begin
    return _along(whole, axis, (begin, begin + r.outputs[0][axis]))


def joined(cut: Cut, whole: Any, parts: Sequence[Any]) -> Run:
    """The call that writes all of `whole`: its parts, and zeros where one is None and between them."""
    n, at = whole.itemsize, 0
    table: list[RunPart] = []

    def put(part: Any, begin: int, end: int) -> None:
        if end > begin:
            run = (end - begin) * n
            source = 0 if part is None else address_of(part)
            table.append(RunPart(source, run, address_of(whole) + begin * n, cut.length * n, run))

    for part, (begin, end) in zip(parts, cut.parts):
        put(None, at, begin)
        put(part, begin, end)
        at = end
    put(None, at, cut.length)
    return copied(cut.rows, table, (whole, parts))


def apart(cut: Cut, whole: Any, parts: Sequence[Any]) -> Run:
    """The call that writes those parts of `whole` that are not None."""
    n = whole.itemsize
    table = []
    for part, (begin, end) in zip(parts, cut.parts):
        if part is not None and end > begin:
            run = (end - begin) * n
            table.append(RunPart(address_of(whole) + begin * n, cut.length * n, address_of(part), run, run))
    return copied(cut.rows, table, (whole, parts)) if table else in_turn(())


def _cut(r: Request) -> Cut | None:
    """The cut, if there are several rows: a single row is copied best as it is."""
    if not usable() or len(set(r.dtypes)) != 1 or any(0 in s for s in (*r.inputs, *r.outputs)):
        return None
    cut = cut_of(r)
    return cut if cut.rows > 1 else None


_JOINS, _SPLITS = (Concat, stack), (SliceChannel, SplitV2, slice_axis)


def _row(r: Request) -> ChosenKernel | None:
    """Kernel of an operator that joins or splits, and of its gradient, which does the reverse."""
    cut = _cut(r)
    if cut is None:
        return None
    joins = r.op in _JOINS or r.op.forward_op in _SPLITS
    (result,) = r.op.signature.makes

    def connect(xp: Any, a: Any, *given: Any, **made: Any) -> Run:
        target = made[result]
        if not joins:
            return apart(cut, given[0], target if isinstance(target, tuple) else (target,))
        parts = given[0] if isinstance(given[0], tuple) else given
        return in_turn(()) if target is None else joined(cut, target, parts)

    return connected(connect, 0, "compiled copies", like=r.op.forward)


SERVES = ("ops.shape.cut", "ops.shape.join", "ops.shape.split")
ROWS = kernel_rows(
    GENERATED, {op: _row for of in (*_JOINS, *_SPLITS) for op in (of, of.grad_op)} | {Unconcat: _row}
)
