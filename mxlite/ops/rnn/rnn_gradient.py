"""Backward of recurrent layers: blocks of steps in reverse, each recomputed, then walked backwards.

The gradients at the top and at the bottom of a layer lie, as in forward, in a block of steps (one
direction) or in two buffers of T steps that change roles (two directions). No array of all gates ever exists.
"""

from __future__ import annotations

from typing import Any

from ...graph.opdef import DType
from ..scratch import accumulator
from .rnn_arrays import RnnGradients, RnnHeads, RnnInputs, RnnKept
from .rnn_cells import cell_of, Stretch
from .rnn_layout import Sizes, split, Weights
from .rnn_run import (
    add_input,
    between,
    drop,
    drop_start,
    in_kind,
    layer_arrays,
    layer_input,
    Pieces,
    room_of,
    scratch,
    step_pieces,
)


def backward_pieces(a: Any, s: Sizes, dtype: DType, weights: DType | None = None) -> Pieces:
    """Scratch of one backward call: blocks of steps, and a weight's gradient of one if there are several.

    weights: the type of the parameters and of their gradient, if not `dtype`.
    """
    kind = accumulator(dtype)
    pieces = step_pieces(a, s, dtype, weights)
    gates, rows = s.G * s.H, s.K * s.B
    plain, lstm, projected = s.G == 1, a.mode == "lstm", s.projected
    largest = max(gates * max(s.widest, s.P), s.P * s.H * projected)
    pieces["d_weights"] = (s.parameters if kind != (weights or dtype) else 0,), kind
    pieces["product"] = (largest if s.stretches > 1 else 0,), kind
    pieces["spare"] = (0 if plain else rows, gates), kind
    pieces["before"] = (s.K, s.B, s.P), kind
    pieces["own"] = (0 if plain else s.K, s.B, s.H), kind
    pieces["start"] = (s.B if lstm else 0, s.H), kind
    pieces["fulls"] = (s.K if projected else 0, s.B, s.H), kind
    pieces["d_hidden"] = (s.K if projected else 0, s.B, s.P), kind
    pieces["d_x"] = (rows if kind != dtype or s.D == 2 else 0, s.widest), kind
    pieces["dh"] = (s.passes, s.B, s.P), kind
    pieces["dc"] = (s.passes if lstm else 0, s.B, s.H), kind
    pieces["between"] = between(s), kind
    return pieces


def run_backward(
    xp: Any,
    a: Any,
    s: Sizes,
    given: RnnInputs,
    kept: RnnKept,
    heads: RnnHeads,
    wanted: RnnGradients,
    work: Any,
    rng: Any,
    gates: Any = None,
    d_gates: Any = None,
) -> None:
    """Fill the wanted ones of `wanted` and `d_gates`, for layers of sizes `s`. rng: None without dropout.

    gates: (L*D, T, B, 4*H), LSTM and GRU: the gates if forward kept them; data is then not read unless the
    parameters' gradient is wanted. d_gates: alike, the gradients of the gates' sums, if these are wanted;
    they may alias the gates.
    """
    data, parameters, *states, lengths = given
    out, layers, cells = kept
    have = scratch(work, backward_pieces(a, s, out.dtype, parameters.dtype))
    room, cell = room_of(have), cell_of(xp, a)
    d_out, *d_last = heads
    d_data, d_parameters, *d_first = wanted
    weights = split(in_kind(xp, parameters, have["weights"]), s)
    gradients: list[Weights | None] = [None] * s.passes
    if d_parameters is not None:
        total = d_parameters if d_parameters.dtype == have["pre"].dtype else have["d_weights"]
        gradients = list(split(total, s))
        if not s.stretches:
            xp.copyto(total, 0)
    for head, state in zip(d_last, (have["dh"], have["dc"])):
        xp.copyto(state, 0 if head is None else head, casting="unsafe")
    off = have["off"] if a.use_sequence_length else None

    def ended(t: int) -> Any:
        """The mask of samples whose sequence has ended before step t."""
        if off is not None:
            xp.less_equal(lengths, t, out=off[:, 0])
        return off

    def results(layer: int) -> Any:
        return out if layer == s.L - 1 else layers[layer]

    gradient = layer_arrays(s, d_out, None, have["between"], backward=True)
    for layer, d, n in reversed(list(s.order())):
        number = layer * s.D + d
        w, dw = weights[number], gradients[number]
        dh, dc = have["dh"][number], have["dc"][number] if len(have["dc"]) else None
        begin, end = s.span(d, n)
        k = end - begin
        x = None
        if gates is None or dw is not None:
            source = results(layer - 1)[begin:end] if layer else data[begin:end]
            x = layer_input(xp, a, s, layer, begin, source, rng, have)
        stretch = _stretch(xp, s, d, n, number, begin, end, results(layer), states, cells, have, ended)
        order = range(k) if d == 0 else range(k - 1, -1, -1)
        if s.G == 1:
            xp.copyto(stretch.pre, results(layer)[begin:end, :, d * s.P : (d + 1) * s.P], casting="unsafe")
        else:

            def off_at(j: int, begin: int = begin) -> Any:
                return ended(begin + j)

            if gates is not None:
                cell.read(xp, stretch, gates[number, begin:end], have["spare"], order, off_at)
            else:
                assert x is not None
                add_input(xp, w, x, cell, have["pre"][: len(x)], s.H)
                cell.recall(xp, w, stretch, have["spare"], order, off_at)
        head = gradient(layer, begin, end)
        if head is not None:
            head = head[:, :, d * s.P : (d + 1) * s.P]
        backwards = list(reversed(order))
        for j, last in zip(backwards, [*backwards[1:], None]):
            mask = ended(begin + j)
            if head is not None:
                if mask is None:
                    xp.add(dh, head[j], out=dh)
                else:
                    xp.logical_not(mask, out=mask)
                    xp.add(dh, head[j], out=dh, where=mask)
                    xp.logical_not(mask, out=mask)
            if s.projected:
                xp.copyto(have["d_hidden"][j], dh)
                if mask is not None:
                    xp.copyto(have["d_hidden"][j], 0, where=mask)
            cell.backward(xp, w, stretch, j, last, dh, dc, mask, room)
        if d_gates is not None:
            target = d_gates[number, begin:end]
            xp.copyto(target[..., : s.G * s.H], stretch.pre)
            if a.mode == "gru":
                xp.copyto(target[..., s.G * s.H :], stretch.own)
        if dw is not None:
            _weight_gradients(xp, s, cell, dw, stretch, x, have, n == s.stretches - 1)
        if layer or d_data is not None:
            below = gradient(layer - 1, begin, end) if layer else d_data[begin:end]
            _data_gradient(xp, a, s, layer, d, begin, w, stretch.pre, below, rng, have)

    if d_parameters is not None and total is not d_parameters:
        xp.copyto(d_parameters, total, casting="unsafe")
    for source, target in zip((have["dh"], have["dc"]), d_first):
        if target is not None:
            xp.copyto(target, source, casting="unsafe")


def _stretch(
    xp: Any, s: Sizes, d: int, n: int, number: int, begin: int, end: int, results: Any, states: Any,
    cells: Any, have: dict[str, Any], ended: Any,
) -> Stretch:  # fmt: skip
    """The block's arrays, with the states before each step filled in."""
    k = end - begin
    before = have["before"][:k]
    mine = results[:, :, d * s.P : (d + 1) * s.P]
    if d == 0:
        xp.copyto(before[1:], mine[begin : end - 1], casting="unsafe")
        xp.copyto(before[0], mine[begin - 1] if begin else states[0][number], casting="unsafe")
    else:
        xp.copyto(before[:-1], mine[begin + 1 : end], casting="unsafe")
        xp.copyto(before[-1], mine[end] if end < s.T else states[0][number], casting="unsafe")
        for j in range(k):  # the backward pass of a sequence that ends within T begins at the first state
            mask = ended(begin + j + 1)
            if mask is not None:
                xp.copyto(before[j], states[0][number], where=mask, casting="unsafe")
    start = have["start"]
    if len(have["dc"]):
        xp.copyto(start, cells[number, n - 1] if n else states[1][number], casting="unsafe")
    own, full = have["own"][:k], have["fulls"][:k] if s.projected else None
    return Stretch(before, have["pre"][: k * s.B].reshape(k, s.B, -1), own, start, full)


def _weight_gradients(
    xp: Any, s: Sizes, cell: Any, dw: Weights, stretch: Stretch, x: Any, have: dict[str, Any], first: bool
) -> None:
    """Add a block's share to the gradients of a pass's weights and biases; write it if it is the first."""
    room = have["product"]

    def add(fill: Any, target: Any) -> None:
        if first:
            fill(target)
        else:
            part = room[: target.size].reshape(target.shape)
            fill(part)
            xp.add(target, part, out=target)

    def add_product(d: Any, factor: Any, target: Any) -> None:
        add(lambda out: xp.matmul(d.T, factor, out=out), target)

    def add_rows(d: Any, target: Any) -> None:
        add(lambda out: xp.add.reduce(d, axis=0, out=out), target)

    pre = stretch.pre.reshape(len(x), -1)
    before = stretch.before.reshape(len(x), -1)
    add_product(pre, x, dw.x)
    add_rows(pre, dw.bx)
    n = cell.gates_of_hidden * s.H
    add_product(pre[:, :n], before, dw.h[:n])
    add_rows(pre[:, :n], dw.bh[:n])
    if n < pre.shape[1]:  # GRU's candidate has a gradient of its own for the hidden part
        own = stretch.own.reshape(len(x), -1)
        add_product(own, before, dw.h[n:])
        add_rows(own, dw.bh[n:])
    if dw.r is not None:
        d_hidden = have["d_hidden"][: len(stretch.pre)].reshape(len(x), -1)
        add_product(d_hidden, stretch.full.reshape(len(x), -1), dw.r)


def _data_gradient(
    xp: Any, a: Any, s: Sizes, layer: int, d: int, begin: int, w: Weights, pre: Any, below: Any, rng: Any,
    have: dict[str, Any],
) -> None:  # fmt: skip
    """below = pre @ weight, plus the other direction's gradient; dropout undone."""
    rows = pre.reshape(-1, pre.shape[-1])
    adds = s.D == 2 and d == 0  # the other direction came first
    # `below` is whole steps, so its rows are adjacent.
    target = below.reshape(len(rows), -1)
    direct = not adds and target.dtype == rows.dtype
    product = target if direct else have["d_x"].reshape(-1)[: target.size].reshape(target.shape)
    xp.matmul(rows, w.x, out=product)
    if layer and a.p and rng is not None:
        drop(xp, product, drop_start(s, layer, begin), a.p, rng, have)
    if adds:
        xp.add(target, product, out=target, casting="unsafe")
    elif not direct:
        xp.copyto(target, product, casting="unsafe")
