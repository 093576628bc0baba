"""Forward of recurrent layers: block by block, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.dtype import float32
from ...graph.opdef import DType
from ..random.philox import RandomStream
from ..scratch import accumulator, carve, Piece
from .rnn_arrays import RnnInputs, RnnResults
from .rnn_cells import cell_of, Room
from .rnn_layout import Sizes, split

_STEP = 8192  # random numbers drawn at a time

Pieces = dict[str, Piece]


def forward_pieces(a: Any, s: Sizes, dtype: DType, weights: DType | None = None) -> Pieces:
    """Scratch of one forward call. weights: the type of the parameters, if not `dtype`.

    between: results of a layer for the next one, if they are not kept: a block of them, or with
    two directions all of them, twice if there are more than two layers.
    """
    kind = accumulator(dtype)
    pieces = step_pieces(a, s, dtype, weights)
    pieces["h"] = (s.passes, s.B, s.P), kind
    pieces["c"] = (s.passes if a.mode == "lstm" else 0, s.B, s.H), kind
    pieces["rounded"] = (s.B, s.P), dtype
    pieces["between"] = between(s), dtype
    return pieces


def step_pieces(a: Any, s: Sizes, dtype: DType, weights: DType | None = None) -> Pieces:
    """Scratch that forward and backward both need."""
    kind, byte = accumulator(dtype), np.dtype("uint8")
    draws = min(s.T * s.B * s.D * s.P, _STEP) if a.p and s.L > 1 else 0
    copied = s.widest if kind != dtype else s.D * s.P if draws else 0
    return {
        "weights": ((s.parameters if kind != (weights or dtype) else 0,), kind),
        "pre": ((s.K * s.B, s.G * s.H), kind),
        "x": ((s.K * s.B, copied), kind),
        "gates": ((s.B, s.G * s.H), kind),
        "a": ((s.B, s.H), kind),
        "b": ((s.B, s.H), kind),
        "full": ((s.B, s.H), kind),
        "hidden": ((s.B, s.P), kind),
        "off": ((s.B if a.use_sequence_length else 0, 1), np.dtype(bool)),
        "numbers": ((draws,), float32),
        "generator": ((RandomStream.work_bytes(draws) if draws else 0,), byte),
    }


def between(s: Sizes) -> tuple[int, ...]:
    """Shape of the buffers between layers: number of buffers, steps, samples, width."""
    if s.D == 1:
        return min(s.L - 1, 1), s.K, s.B, s.P
    return min(s.L - 1, 2), s.T, s.B, s.D * s.P


def scratch(work: Any, pieces: Pieces) -> dict[str, Any]:
    return dict(zip(pieces, carve(work, pieces.values())))


def room_of(have: dict[str, Any]) -> Room:
    return Room(have["gates"], have["a"], have["b"], have["full"], have["hidden"])


def in_kind(xp: Any, source: Any, room: Any) -> Any:
    """`source`, as a copy in `room` if that has another type."""
    if source.dtype == room.dtype:
        return source
    part = room.reshape(-1)[: source.size].reshape(source.shape)
    xp.copyto(part, source, casting="unsafe")
    return part


def drop(xp: Any, x: Any, start: int, p: float, rng: Any, have: dict[str, Any]) -> None:
    """Multiply `x` by the mask whose first number is `start`, and by 1 / (1 - p).

    A stream that can apply the mask itself, such as one on a device, has a method `drop`.
    """
    flat, numbers = x.reshape(-1), have["numbers"]
    scale = 1 / (1 - p) if p < 1 else 0.0
    if hasattr(rng, "drop"):
        rng.drop(flat, start, p, scale)
        return
    for i in range(0, flat.size, numbers.size):
        part = flat[i : i + numbers.size]
        some = numbers[: part.size]
        rng.fill_uniform(xp, some, have["generator"], start + i)
        xp.greater_equal(some, p, out=some)
        xp.multiply(part, some, out=part)
        xp.multiply(part, scale, out=part)


def layer_input(
    xp: Any, a: Any, s: Sizes, layer: int, begin: int, source: Any, rng: Any, have: dict[str, Any]
) -> Any:
    """The input of a layer in a block that starts at step `begin`, (k*B, width), with dropout applied.

    source: the steps of the block, in the type of the data.
    """
    rows = source.reshape(-1, source.shape[-1])
    dropped = layer > 0 and a.p > 0 and rng is not None
    room = have["x"]
    if rows.dtype == room.dtype and not dropped:
        return rows
    part = room.reshape(-1)[: rows.size].reshape(rows.shape)
    xp.copyto(part, rows, casting="unsafe")
    if dropped:
        drop(xp, part, drop_start(s, layer, begin), a.p, rng, have)
    return part


def drop_start(s: Sizes, layer: int, begin: int) -> int:
    """Number of the mask's element for the first input of `layer` at step `begin`."""
    return ((layer - 1) * s.T + begin) * s.B * s.D * s.P


def add_input(xp: Any, w: Any, x: Any, cell: Any, pre: Any, hidden: int) -> None:
    """pre = x @ weight.T + bias: the part of the gates' sums that needs no hidden state."""
    xp.matmul(x, w.x.T, out=pre)
    xp.add(pre, w.bx, out=pre)
    n = cell.gates_of_hidden * hidden
    xp.add(pre[:, :n], w.bh[:n], out=pre[:, :n])


def layer_arrays(
    s: Sizes, last: Any, kept: Any, buffers: Any, backward: bool = False
) -> Callable[[int, int, int], Any]:
    """A function of layer and steps [begin, end) to the layer's results, or their gradients if `backward`.

    The last layer's lie in `last` and are None if that is, others' in `kept`; if there is none, in `buffers`,
    which the layers take in turn.
    """

    def part(layer: int, begin: int, end: int) -> Any:
        if layer == s.L - 1:
            return None if last is None else last[begin:end]
        if kept is not None:
            return kept[layer, begin:end]
        if s.D == 1:
            return buffers[0, : end - begin]
        return buffers[(s.L - 2 - layer if backward else layer) % len(buffers), begin:end]

    return part


def run_forward(
    xp: Any, a: Any, given: RnnInputs, made: RnnResults, work: Any, rng: Any, gates: Any = None
) -> None:
    """Fill the wanted ones of `made` and `gates`. rng: None without dropout."""
    data, parameters, *states, lengths = given
    out, *last, layers, cells = made
    s = Sizes.of(a, data.shape)
    have = scratch(work, forward_pieces(a, s, data.dtype, parameters.dtype))
    room, cell = room_of(have), cell_of(xp, a)
    weights = split(in_kind(xp, parameters, have["weights"]), s)
    h, c, off = have["h"], have["c"], have["off"] if a.use_sequence_length else None
    rounded = have["rounded"] if data.dtype != h.dtype else None
    for source, target in zip(states, (h, c)):
        if source is not None:
            xp.copyto(target, source, casting="unsafe")
    results = layer_arrays(s, out, layers, have["between"])
    for layer, d, n in s.order():
        number = layer * s.D + d
        w, state = weights[number], h[number]
        own = c[number] if len(c) else None
        begin, end = s.span(d, n)
        if n and cells is not None:
            xp.copyto(cells[number, n - 1], own)
        source = results(layer - 1, begin, end) if layer else data[begin:end]
        x = layer_input(xp, a, s, layer, begin, source, rng, have)
        pre = have["pre"][: len(x)]
        add_input(xp, w, x, cell, pre, s.H)
        pre = pre.reshape(end - begin, s.B, -1)
        target = results(layer, begin, end)
        if target is not None:
            target = target[:, :, d * s.P : (d + 1) * s.P]
        for j in range(end - begin) if d == 0 else range(end - begin - 1, -1, -1):
            if off is not None:
                xp.less_equal(lengths, begin + j, out=off[:, 0])
            new = room.hidden
            if gates is not None:
                cell.keep_before(xp, w, state, gates[number, begin + j])
            cell.forward(xp, w, pre[j], state, own, off, room, new)
            if gates is not None:
                xp.copyto(gates[number, begin + j, :, : room.gates.shape[1]], room.gates)
            if rounded is not None:  # backward sees the rounded states only
                xp.copyto(rounded, new, casting="unsafe")
                xp.copyto(new, rounded)
            if target is not None:
                xp.copyto(target[j], new, casting="unsafe")
            if off is not None:
                xp.copyto(new, state, where=off)
                if target is not None:
                    xp.copyto(target[j], 0, where=off)
            xp.copyto(state, new)
    for source, target in zip((h, c), last):
        if target is not None:
            xp.copyto(target, source, casting="unsafe")
