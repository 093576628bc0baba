"""Permutations of axes on oneDNN: a reorder between two lists of strides."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....core.dtype import float32
from .....graph.ir import Shape
from .....ops.shape.permutation import simplest
from ....base import ChosenKernel, Request
from ...kernel_row import kernel_rows, LIBRARY
from ...onednn import bind, cached, memory, Primitive, reorder, Run
from ...onednn.constants import DST, SRC
from ...onednn.memory import dense_strides
from ..generated.compiled_move import mover, of_moves, order_of

MOST_AXES = 12  # that oneDNN knows

# Types that oneDNN copies without interpreting the bits, by size, and how many of them an element is. Some of
# its reorders of bfloat16 go through float32 on CPUs with instructions for that: denormal numbers become 0.
_CARRIED = {1: (np.dtype("uint8"), 1), 2: (np.dtype("uint8"), 2), 4: (float32, 1), 8: (float32, 2)}


def carried(nbytes: int, shape: Shape, axes: tuple[int, ...]) -> tuple[Any, Shape, tuple[int, ...]] | None:
    """(dtype, shape, axes) of a reorder that moves elements of so many bytes; None if oneDNN cannot."""
    if nbytes not in _CARRIED:
        return None
    dtype, count = _CARRIED[nbytes]
    if count > 1:
        shape, axes = (*shape, count), (*axes, len(shape))
    return (dtype, shape, axes) if len(shape) <= MOST_AXES else None


@cached
def _permutation(shape: Shape, axes: tuple[int, ...], dtype: Any) -> Primitive | None:
    strides = dense_strides(shape, tuple(range(len(shape))))
    out = tuple(shape[i] for i in axes)
    made = reorder(memory(out, dtype, None, tuple(strides[i] for i in axes)), memory(out, dtype))
    # The implementation called simple is a hundred times slower than numpy.
    return made if made.implementation.startswith("jit") else None


def _row(r: Request) -> ChosenKernel | None:
    if 0 in r.inputs[0]:
        return None
    shape, axes = simplest(*order_of(r))
    if axes == tuple(range(len(axes))) or (found := carried(r.dtype.itemsize, shape, axes)) is None:
        return None
    dtype, shape, axes = found
    primitive = _permutation(shape, axes, dtype)
    if primitive is None:
        return None
    strides = dense_strides(shape, tuple(range(len(shape))))
    out = tuple(shape[i] for i in axes)
    source_memory = memory(out, dtype, None, tuple(strides[i] for i in axes))

    def connect(source: Any, target: Any, work: Any) -> Run:
        return bind(primitive, {SRC: (source_memory, source), DST: (memory(out, dtype), target)}, work)

    return mover(r, connect, primitive.scratch, f"onednn {primitive.implementation}")


SERVES = ("ops.layout", "ops.shape.shape")
ROWS = kernel_rows(LIBRARY, of_moves(_row))
