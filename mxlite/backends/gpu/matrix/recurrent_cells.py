"""One step of an LSTM or a GRU as a launch after each product, forward and backward.

The work between two products is elementwise: a thread has one hidden unit of one sample and reads and writes
its gates and states once. The formulas, their order and their roundings are those of `ops/rnn/rnn_cells.py`;
bounds of the cell state are left to the single calls there.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from ....ops.rnn.rnn_cells import CELLS, Gru, Lstm, Room
from ....ops.rnn.rnn_layout import Weights
from ..compiler.source import kernel, KernelSource, NAMES, shared
from ..runtime.device import pointer

THREADS = 256

_HEAD = """
__device__ __forceinline__ C half_tanh(C x) { return mx_tanh(x * C(0.5)) * C(0.5) + C(0.5); }
__device__ __forceinline__ C slope(C d, C y) { return d * ((C(1) - y) * y); }
"""

_KERNELS = {
    # gates: h Wh, pre: x Wx + b -> c, out
    "lstm_step": (
        ("const C *gates", "const C *pre", "C *c", "const bool *off", "C *out"),
        """
        int64 at = row * 4 * H + column;
        C i = half_tanh(gates[at] + pre[at]), f = half_tanh(gates[at + H] + pre[at + H]);
        C g = mx_tanh(gates[at + 2 * H] + pre[at + 2 * H]);
        C o = half_tanh(gates[at + 3 * H] + pre[at + 3 * H]);
        C next = off && off[row] ? c[e] : f * c[e] + i * g;
        c[e] = next;
        out[e] = o * mx_tanh(next);
        """,
    ),
    # gates, cell state before -> cell state after
    "lstm_next": (
        ("const C *gates", "const C *before", "const bool *off", "C *out"),
        """
        int64 at = row * 4 * H + column;
        out[e] = off && off[row] ? before[e] : gates[at + H] * before[e] + gates[at] * gates[at + 2 * H];
        """,
    ),
    # gates, cell states after and before, dh, dc -> gradients of the gates' sums, dc
    "lstm_gradient": (
        ("C *gates", "const C *after", "const C *before", "const C *dh", "C *dc", "const bool *off"),
        """
        int64 at = row * 4 * H + column;
        if (off && off[row]) {
            gates[at] = gates[at + H] = gates[at + 2 * H] = gates[at + 3 * H] = 0;
            continue;
        }
        C i = gates[at], f = gates[at + H], g = gates[at + 2 * H], o = gates[at + 3 * H];
        C x = mx_tanh(after[e]), d = dc[e] + (C(1) - x * x) * o * dh[e];
        gates[at] = slope(d * g, i);
        gates[at + H] = slope(d * before[e], f);
        gates[at + 2 * H] = (C(1) - g * g) * i * d;
        gates[at + 3 * H] = slope(x * dh[e], o);
        dc[e] = d * f;
        """,
    ),
    # gates: h Wh, pre: x Wx + b, bias of the candidate's hidden part, h -> out
    "gru_step": (
        ("const C *gates", "const C *pre", "const C *bias", "const C *h", "C *out"),
        """
        int64 at = row * 3 * H + column;
        C r = half_tanh(gates[at] + pre[at]), z = half_tanh(gates[at + H] + pre[at + H]);
        C n = mx_tanh((gates[at + 2 * H] + bias[column]) * r + pre[at + 2 * H]);
        out[e] = (h[e] - n) * z + n;
        """,
    ),
    # gates, hidden part of the candidate's sum, h before, dh -> gradients of the sums: gates, own, both; past
    "gru_gradient": (
        ("C *gates", "C *own", "const C *before", "const C *dh", "C *both", "C *past", "const bool *off"),
        """
        int64 at = row * 3 * H + column;
        C r = gates[at], z = gates[at + H], n = gates[at + 2 * H], hidden = own[e];
        C rest = C(1) - z, dn = (C(1) - n * n) * dh[e] * rest, dz = (before[e] - n) * dh[e] * z * rest;
        C dr = slope(dn * hidden, r), dh_part = dn * r;
        past[e] = dh[e] * z;
        if (off && off[row]) dn = dz = dr = dh_part = 0;
        gates[at] = both[at] = dr;
        gates[at + H] = both[at + H] = dz;
        gates[at + 2 * H] = dn;
        own[e] = both[at + 2 * H] = dh_part;
        """,
    ),
}


@functools.lru_cache(maxsize=4)
def source(dtype: str) -> KernelSource:
    """All kernels, for arrays of float32 or float64."""
    parts = [shared("types", "math", "index"), f"typedef {NAMES[dtype]} C;\n", _HEAD]
    for name, (parameters, text) in _KERNELS.items():
        lines = [line.strip() for line in text.strip().splitlines()]
        body = ["MX_EACH(e, size) {", "int64 row = e / H, column = e - row * H;", *lines, "}"]
        parts.append(kernel(name, [*parameters, "int64 size", "int64 H"], body, THREADS))
    return KernelSource("".join(parts))


def _launch(xp: Any, name: str, like: Any, *arrays: Any) -> None:
    """Record the kernel for every element of `like`, (B, H)."""
    assert all(x is None or x.flags.c_contiguous for x in arrays)
    values: list[Any] = [pointer(0 if x is None else x.ctypes.data) for x in arrays]
    values += [ctypes.c_int64(like.size), ctypes.c_int64(like.shape[1])]
    xp.launch(source(like.dtype.name), name, like.size, values)


class FusedLstm(Lstm):
    """LSTM cell with fused steps; see Lstm."""

    def _next(self, xp: Any, gates: Any, c: Any, off: Any, room: Any, out: Any) -> None:
        _launch(xp, "lstm_next", c, gates, c, off, out)

    def _step(self, xp: Any, gates: Any, pre: Any, c: Any, off: Any, full: Any, room: Room) -> None:
        _launch(xp, "lstm_step", c, gates, pre, c, off, full)

    def _slopes(
        self, xp: Any, pre: Any, c: Any, before: Any, full: Any, dc: Any, off: Any, room: Room
    ) -> None:
        _launch(xp, "lstm_gradient", dc, pre, c, before, full, dc, off)


class FusedGru(Gru):
    """GRU cell with fused steps; see Gru."""

    def _step(self, xp: Any, w: Weights, gates: Any, pre: Any, h: Any, new: Any) -> None:
        _launch(xp, "gru_step", h, gates, pre, w.bh[2 * h.shape[1] :], h, new)

    def _slopes(self, xp: Any, pre: Any, own: Any, before: Any, dh: Any, off: Any, room: Room) -> None:
        _launch(xp, "gru_gradient", dh, pre, own, before, dh, room.gates, room.full, off)


def _lstm(a: Any) -> Lstm:
    """The fused cell, unless cell states have bounds."""
    return FusedLstm(a) if a.lstm_state_clip_min is None else Lstm(a)


FUSED_CELLS: dict[str, Any] = {**CELLS, "lstm": _lstm, "gru": FusedGru}
