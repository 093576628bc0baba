"""Local response normalization, as generated code, in both layouts."""

from __future__ import annotations

from math import prod
from typing import Any

from .....ops.norm.lrn import LRN
from .....ops.norm.lrn_channels_last import LrnChannelsLast
from ....base import ChosenKernel, connected, Request
from ...compiled import call, storable, threads_for, usable
from ...compiled.norm.lrn import code, LrnForm, scratch_floats
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of


def _row(r: Request) -> ChosenKernel | None:
    shape, a = r.inputs[0], r.attrs
    if not usable() or r.dtype.name not in storable() or r.dtype.kind in "bui" or 0 in shape:
        return None
    last = (r.op.forward_op or r.op) is LrnChannelsLast
    n, c, p = (prod(shape[:-1]), shape[-1], 1) if last else (shape[0], shape[1], prod(shape[2:]))
    reach = min((a.nsize - 1) // 2, c - 1)
    scale = a.alpha / a.nsize
    form = LrnForm(r.dtype.name, reach, scale, a.beta, a.knorm, last or p == 1, r.op.forward_op is not None)
    module, floats = code(form), scratch_floats(form, c)
    threads = threads_for((3 if form.backward else 2) * prod(shape) * r.dtype.itemsize)

    each = floats // 3 if form.backward else floats

    def connect(xp: Any, a: Any, *given: Any, work: Any, **made: Any) -> Run:
        (result,) = made.values()
        if result is None:
            return in_turn(())
        arrays = (given[-1], result, given[0] if form.backward else None, work)
        addresses = [address_of(x) for x in arrays]
        return call(module, "lrn", [*addresses, each, n, c, p], threads, keep=arrays)

    return connected(connect, 4 * floats * threads, "compiled LRN", like=r.op.forward)


SERVES = ("ops.norm.lrn", "ops.norm.lrn_channels_last")
ROWS = kernel_rows(
    GENERATED, dict.fromkeys((LRN, LrnChannelsLast, LRN.grad_op, LrnChannelsLast.grad_op), _row)
)
