"""Permutations of axes on oneDNN: a reorder between two lists of strides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .....core.dtype import float32
from .....graph.ir import Shape
from .....ops import find_op
from .....te.moves import axes_of
from ....base import ChosenKernel, connected, Request
from ....moves import moves_of
from ...kernel_row import kernel_rows, LIBRARY
from ...onednn import bind, cached, in_turn, memory, Primitive, reorder, Run
from ...onednn.constants import DST, SRC

MOST_AXES = 12  # that oneDNN knows

# Types that oneDNN copies without interpreting the bits, by size, and how many of them an element is. Some of
# its reorders of bfloat16 go through float32 on CPUs with instructions for that: denormal numbers become 0.
_CARRIED = {1: (np.dtype("uint8"), 1), 2: (np.dtype("uint8"), 2), 4: (float32, 1), 8: (float32, 2)}


@cached
def _permutation(shape: Shape, strides: Shape, dtype: Any) -> Primitive | None:
    made = reorder(memory(shape, dtype, None, strides), memory(shape, dtype))
    # The implementation called simple is a hundred times slower than numpy.
    return made if made.implementation.startswith("jit") else None


def _row(r: Request) -> ChosenKernel | None:
    found = None if 0 in r.inputs[0] else moves_of(r)
    if found is None or len(found.all) != 1 or r.dtype.itemsize not in _CARRIED:
        return None
    (move,) = found.all
    axes = axes_of(move.target, move.source)
    dtype, count = _CARRIED[r.dtype.itemsize]
    parts = [(count, 1)] if count > 1 else []
    shape, strides = zip(*((n, s * count) for n, _, s in axes), *parts)
    if len(axes) == 1 or len(shape) > MOST_AXES:
        return None
    primitive = _permutation(shape, strides, dtype)
    if primitive is None:
        return None

    def connect(xp: Any, a: Any, *inputs: Any, work: Any, **rest: Any) -> Run:
        moves, arrays = found.call(inputs, rest)
        if not moves:
            return in_turn(())
        source, target = (arrays[x.of] for x in (move.source, move.target) if x is not None)
        views = {SRC: (memory(shape, dtype, None, strides), source), DST: (memory(shape, dtype), target)}
        return bind(primitive, views, work)

    name = f"onednn {primitive.implementation}"
    return connected(
        connect, primitive.scratch, name, like=replace(r.op.signature, services=frozenset({"work"}))
    )


MOVES = [find_op(name) for name in ("_channels_last", "_channels_first", "transpose", "SwapAxis")]
SERVES = ("ops.layout", "ops.shape.shape")
ROWS = kernel_rows(LIBRARY, {x: _row for op in MOVES for x in (op, op.grad_op) if x is not None})
