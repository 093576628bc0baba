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

    def run(data: Any, out: Any, index: Any, weights: Any = t.weights) -> Run:
        numbered = numbers if index is not None else ""
        form = PoolForm(kind, backward, r.dtype.name, numbered, out is not None, signed)
        addresses = [0 if x is None else address_of(x) for x in (data, out, index, table, weights)]
        return call(code(form), "pool", [*addresses, *arguments(sizes(w))], threads, keep=t)

    def forward(xp: Any, a: Any, data: Any, *, out: Any, index: Any) -> Run:
        return in_turn(()) if out is None and index is None else run(data, out, index)

    def chosen(xp: Any, a: Any, data: Any, index: Any, *, out: Any) -> Run:
        return run(data, out, index)

    def extreme(xp: Any, a: Any, data: Any, gamma: Any, *, out: Any, index: Any) -> Run:
        return in_turn(()) if out is None and index is None else run(data, out, index, gamma)

    def gradient(xp: Any, a: Any, d_out: Any, index: Any, *, d_data: Any) -> Run:
        return in_turn(()) if d_data is None else run(d_data, d_out, index)

    # Compile now, while plans are made.
    code(PoolForm(kind, backward, r.dtype.name, numbers if kind != "sum" else "", signed=signed))
    way = gradient if backward else chosen if chooses else extreme if signed else forward
    what = f"{'chosen' if chooses else 'extreme' if signed else a.pool_type} pooling"
    return connected(way, 0, f"compiled {what}" + (", backward" if backward else ""))


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
