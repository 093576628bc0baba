"""Permutations of axes as generated code, for those that reduce to transposed matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from .....graph.ir import Shape
from .....graph.opdef import Op
from .....ops.layout import ChannelsFirst, ChannelsLast
from .....ops.shape.permutation import simplest
from .....ops.shape.shape import SwapAxis, transpose
from ....base import ChosenKernel, connected, Request, Row
from ...compiled import call, threads_for, usable
from ...compiled.matrix.transposition import code, form
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of

Axes = tuple[int, ...]


def order_of(r: Request) -> tuple[Shape, Axes]:
    """The shape of a request's input, and for each axis of the result its axis in the input."""
    op = r.op.forward_op or r.op
    rank = len(r.inputs[0])
    axes = list(range(rank))
    if op is ChannelsLast:
        axes = [0, *range(2, rank), 1]
    elif op is ChannelsFirst:
        axes = [0, rank - 1, *range(1, rank - 1)]
    elif op is SwapAxis:
        i, j = r.attrs.dim1 % rank, r.attrs.dim2 % rank
        axes[i], axes[j] = j, i
    else:
        axes = [i % rank for i in r.attrs.axes] if r.attrs.axes else axes[::-1]
    if r.op.forward_op is None:
        return r.inputs[0], tuple(axes)
    return r.outputs[0], tuple(axes.index(i) for i in range(rank))


def mover(r: Request, connect: Any, nbytes: int, name: str) -> ChosenKernel:
    """A kernel that copies its input to its output: `connect(source, target, work)` makes the call."""

    (result,) = r.op.signature.makes

    def linked(xp: Any, a: Any, source: Any, **made: Any) -> Run:
        target = made[result]
        return in_turn(()) if target is None else connect(source, target, made["work"])

    signature = replace(r.op.signature, services=frozenset(("work",)))
    return connected(linked, nbytes, name, like=signature)


def _row(r: Request) -> ChosenKernel | None:
    if not usable() or 0 in r.inputs[0]:
        return None
    shape, axes = simplest(*order_of(r))
    if axes not in ((1, 0), (0, 2, 1)):
        return None
    batch, rows, columns = (1, *shape) if len(shape) == 2 else shape
    how = form(r.dtype.itemsize, rows, columns)
    if how is None:
        return None
    module = code(how)
    threads = threads_for(2 * prod(shape) * r.dtype.itemsize)

    def connect(source: Any, target: Any, work: Any) -> Run:
        args = [address_of(source), address_of(target), batch, rows, columns]
        return call(module, "transpose", args, threads, keep=(source, target))

    return mover(r, connect, 0, "compiled transposition")


MOVES = (ChannelsLast, ChannelsFirst, transpose, SwapAxis)


def of_moves(row: Row) -> Mapping[type[Op], Row]:
    """`row` for all operators that permute axes, and for their gradients."""
    found: dict[type[Op], Row] = {}
    for op in MOVES:
        assert op.grad_op is not None
        found[op] = found[op.grad_op] = row
    return found


SERVES = ("ops.layout", "ops.shape.shape")
ROWS = kernel_rows(GENERATED, of_moves(_row))
