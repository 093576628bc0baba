"""Pooling with channels last, as generated code."""

from __future__ import annotations

from math import prod
from typing import Any

from .....ops.nn.pool_channels_last import (
    ChosenPoolingChannelsLast,
    ExtremePoolingChannelsLast,
    PoolingChannelsLast,
)
from .....ops.nn.pool_kernels import index_type, windows
from ....base import ChosenKernel, connected, Request
from ...compiled import call, storable, threads_for, usable
from ...compiled.pool import arguments, code, has_empty_window, MOST_ELEMENTS, PoolForm, sizes, tables
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of


def _row(r: Request) -> ChosenKernel | None:
    if not usable() or r.dtype.name not in storable() or 0 in r.inputs[0] or 0 in r.outputs[0]:
        return None
    a, backward = r.attrs, r.op.forward_op is not None
    w = windows(a, r.inputs[0], last=True)
    if a.pool_type == "lp" or prod(w.kernel) >= MOST_ELEMENTS:
        return None
    t = tables(a, w)
    if a.pool_type == "max" and has_empty_window(w, t):
        return None
    chooses, signed = r.op is ChosenPoolingChannelsLast, r.op is ExtremePoolingChannelsLast
    kind = "chosen" if chooses else "max" if a.pool_type == "max" else "sum"
    numbers = index_type(a).name
    table = t.backward if backward else t.forward
    threads = threads_for(r.dtype.itemsize * (prod(r.inputs[0]) + prod(r.outputs[0])))

    signature = r.op.signature

    def connect(xp: Any, a: Any, *given: Any, **made: Any) -> Run:
        if all(made[n] is None for n in signature.makes):
            return in_turn(())
        have = dict(zip(signature.needs, given)) | made
        data, out = (have["d_data"], have["d_out"]) if backward else (have["data"], have["out"])
        index, weights = have.get("index"), have.get("gamma", t.weights)
        numbered = numbers if index is not None else ""
        form = PoolForm(kind, backward, r.dtype.name, numbered, out is not None, signed)
        addresses = [address_of(x) for x in (data, out, index, table, weights)]
        return call(code(form), "pool", [*addresses, *arguments(sizes(w))], threads, keep=t)

    # Compile now, while plans are made.
    code(PoolForm(kind, backward, r.dtype.name, numbers if kind != "sum" else "", signed=signed))
    what = f"{'chosen' if chooses else 'extreme' if signed else a.pool_type} pooling"
    name = f"compiled {what}" + (", backward" if backward else "")
    return connected(connect, 0, name, like=r.op.forward)


SERVES = ("ops.nn.pool_channels_last",)
ROWS = kernel_rows(
    GENERATED,
    {
        PoolingChannelsLast: _row,
        PoolingChannelsLast.grad_op: _row,
        ChosenPoolingChannelsLast: _row,
        ExtremePoolingChannelsLast: _row,
    },
)
