"""Norms folded into weights: a reorder of oneDNN that keeps the layout but scales, on all threads."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from .....core.dtype import float32
from .....graph.grouped import grouped
from .....ops.norm.fold_norm import FoldNorm, pieces, scale_of, shift_of
from .....ops.norm.norm_arrays import NormVectors
from .....ops.scratch import carve
from ....base import ChosenKernel, connected, Request
from ...kernel_row import kernel_rows, LIBRARY
from ...onednn import Attr, bind, cached, in_turn, memory, Primitive, reorder, Run
from ...onednn.constants import DST, SCALES, SRC


@cached
def _scaled(rows: int, columns: int) -> Primitive | None:
    """A reorder of (rows, columns) that scales each row by a number of its own."""
    both = memory((rows, columns), float32)
    made = reorder(both, both, Attr().scales(SRC, 1))
    return None if made.scratch else made


def _fold(r: Request) -> ChosenKernel | None:
    shape = r.inputs[0]
    if set(r.dtypes) != {float32} or 0 in shape:
        return None
    rows, columns = shape[0], prod(shape[1:])
    primitive = _scaled(rows, columns)
    if primitive is None:
        return None

    @grouped
    def connect(
        xp: Any, a: Any, weight: Any, norm: NormVectors, bias: Any = None, *, out: Any, shift: Any, work: Any
    ) -> Run:
        scale, offset = carve(work, pieces(shape, float32))
        calls: list[Run] = [partial(scale_of, xp, a, norm, scale)]
        if shift is not None:
            calls.append(partial(shift_of, xp, scale, norm, bias, offset, shift))
        if out is not None:
            both, vector = memory((rows, columns), float32), memory((rows,), float32)
            arrays = {SRC: (both, weight), DST: (both, out), SCALES | SRC: (vector, scale)}
            calls.append(bind(primitive, arrays))
        return in_turn(calls)

    nbytes = FoldNorm.workspace(r.attrs, r.inputs, r.outputs, r.dtype)
    return connected(connect, nbytes, f"onednn {primitive.implementation}")


SERVES = ("ops.norm.fold_norm",)
ROWS = kernel_rows(LIBRARY, {FoldNorm: _fold})
