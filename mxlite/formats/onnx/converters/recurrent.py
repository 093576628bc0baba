"""RNN, LSTM and GRU: mxlite's RNN operator if it computes the same, else step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....core import FormatError
from ...building.errors import NotSupportedError
from ...building.value import GraphValue
from ..node import OnnxNode

_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_ORDER = {
    "RNN": (0,),
    "GRU": (1, 0, 2),
    "LSTM": (0, 2, 3, 1),
}  # ONNX's z r h and i o f c, as r z h and i f c o
_PLAIN = {
    "sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu", "softsign": "softsign", "softplus": "softrelu",
}  # fmt: skip
_MOST_STEPS = 2000


@dataclass
class _Cell:
    """One direction's weights and functions."""

    kind: str
    size: int
    functions: list[Callable[[GraphValue], GraphValue]]
    x_weight: GraphValue  # (G*H, I)
    h_weight: GraphValue  # (G*H, H)
    x_bias: GraphValue | None  # (G*H,)
    h_bias: GraphValue | None
    peephole: list[GraphValue] | None  # i, o, f: (H,)
    after_reset: bool
    forget_is_rest: bool
    limit: float | None


def recurrent(n: OnnxNode) -> tuple[GraphValue, ...]:
    n.ignore("hidden_size")
    b, x, kind = n.builder, n[0], n.op
    batch_first = n.flag("layout")
    if batch_first:
        x = b.transpose(x, (1, 0, 2))
    direction = n.choice("direction", "forward", "reverse", "bidirectional")
    count = 2 if direction == "bidirectional" else 1
    if n[1].shape[0] != count or n[2].rank != 3:
        raise FormatError(f"W and R must have {count} directions, got {n[1].shape} and {n[2].shape}.")
    size = n[2].shape[-1]
    states = []
    for place in (5, 6)[: 2 if kind == "LSTM" else 1]:
        state = n.get(place)
        if state is None:
            state = b.full((count, x.shape[1], size), 0, x.dtype)
        elif batch_first:
            state = b.transpose(state, (1, 0, 2))
        states.append(state)
    names = n.texts("activations", None) or _DEFAULTS[kind] * count
    cells = [
        _cell(n, d, size, names[d * len(names) // count : (d + 1) * len(names) // count])
        for d in range(count)
    ]
    lengths = n.known_ints(4, "sequence_lens")
    if lengths is not None and any(length != x.shape[0] for length in lengths):
        raise NotSupportedError("sequences of different lengths")
    if _fits(n, names, count, direction):
        out, *last = _whole(n, x, cells, states, direction)
    else:
        out, *last = _unrolled(x, cells, states, direction)
    if batch_first:
        out = b.transpose(out, (2, 0, 1, 3))
        last = [b.transpose(v, (1, 0, 2)) for v in last]
    return out, *last


def _cell(n: OnnxNode, d: int, size: int, names: list[str]) -> _Cell:
    b, kind = n.builder, n.op

    def part(value: GraphValue | None) -> GraphValue | None:
        return None if value is None else b.reshape(b.slice(value, 0, d, d + 1), value.shape[1:])

    bias, peephole = part(n.get(3)), part(n.get(7)) if kind == "LSTM" else None
    wide = _GATES[kind] * size
    x_weight, h_weight = part(n[1]), part(n[2])
    assert x_weight is not None and h_weight is not None
    return _Cell(
        kind,
        size,
        [_function(name) for name in names],
        x_weight,
        h_weight,
        None if bias is None else b.slice(bias, 0, 0, wide),
        None if bias is None else b.slice(bias, 0, wide, 2 * wide),
        None if peephole is None else [b.slice(peephole, 0, i * size, (i + 1) * size) for i in range(3)],
        bool(n.whole("linear_before_reset", 0)) if kind == "GRU" else False,
        bool(n.whole("input_forget", 0)) if kind == "LSTM" else False,
        n.real("clip", None),
    )


def _function(name: str) -> Callable[[GraphValue], GraphValue]:
    act = _PLAIN.get(name.lower())
    if act is None:
        raise NotSupportedError(f"the activation {name!r}")
    return lambda v: v.builder.op("Activation", v, act_type=act)


def _fits(n: OnnxNode, names: list[str], count: int, direction: str) -> bool:
    """True if mxlite's RNN computes this cell."""
    kind = n.op
    usual = [name.lower() for name in names] == [name.lower() for name in _DEFAULTS[kind] * count]
    if kind == "RNN":
        usual = len({name.lower() for name in names}) == 1 and names[0].lower() in ("tanh", "relu")
    plain = n.get(7) is None and n.real("clip", None) is None and not n.whole("input_forget", 0)
    if kind == "GRU":
        plain = plain and bool(n.whole("linear_before_reset", 0))
    return usual and plain


def _whole(
    n: OnnxNode, x: GraphValue, cells: list[_Cell], states: list[GraphValue], direction: str
) -> tuple[GraphValue, ...]:
    """All steps in one operator."""
    b, size = n.builder, cells[0].size
    back = direction == "reverse"
    steps, batch = x.shape[:2]
    order = _ORDER[n.op]

    def gates(value: GraphValue | None, shape: tuple[int, ...]) -> GraphValue:
        if value is None:
            return b.full((len(order) * size,), 0, x.dtype)
        parts = [b.slice(value, 0, g * size, (g + 1) * size) for g in order] if len(order) > 1 else [value]
        return b.reshape(b.concat(parts, 0), shape)

    vector = []
    for c in cells:
        vector += [gates(c.x_weight, (c.x_weight.size,)), gates(c.h_weight, (c.h_weight.size,))]
    for c in cells:
        vector += [gates(c.x_bias, (len(order) * size,)), gates(c.h_bias, (len(order) * size,))]
    names = n.texts("activations", None) or ["tanh"]
    mode = {"LSTM": "lstm", "GRU": "gru"}.get(n.op, f"rnn_{names[0].lower()}")
    out, *last = b.ops(
        "RNN",
        b.op("reverse", x, axis=(0,)) if back else x,
        b.concat(vector, 0),
        *states,
        state_size=size,
        num_layers=1,
        mode=mode,
        bidirectional=direction == "bidirectional",
        state_outputs=True,
    )
    if back:
        out = b.op("reverse", out, axis=(0,))
    out = b.transpose(b.reshape(out, (steps, batch, len(cells), size)), (0, 2, 1, 3))
    return out, *last


def _unrolled(
    x: GraphValue, cells: list[_Cell], states: list[GraphValue], direction: str
) -> tuple[GraphValue, ...]:
    b, steps = x.builder, x.shape[0]
    if steps > _MOST_STEPS:
        raise NotSupportedError(f"{steps} steps with a cell that mxlite's RNN does not have")
    outs: list[GraphValue] = []
    finals: list[list[GraphValue]] = [[] for _ in states]
    for d, cell in enumerate(cells):
        backwards = direction == "reverse" or d == 1
        own = [b.reshape(b.slice(s, 0, d, d + 1), s.shape[1:]) for s in states]
        outputs: list[GraphValue] = [own[0]] * steps
        for t in range(steps)[::-1] if backwards else range(steps):
            own = _step(cell, b.reshape(b.slice(x, 0, t, t + 1), x.shape[1:]), own)
            outputs[t] = own[0]
        shape = (1, 1, *outputs[0].shape)
        outs.append(b.concat([b.reshape(h, shape) for h in outputs], 0))
        for final, state in zip(finals, own):
            final.append(b.reshape(state, (1, *state.shape)))
    return b.concat(outs, 1), *(b.concat(f, 0) for f in finals)


def _step(c: _Cell, x: GraphValue, states: list[GraphValue]) -> list[GraphValue]:
    """One step: the new states, the hidden one first."""
    b, h = x.builder, states[0]

    def affine(value: GraphValue, weight: GraphValue, bias: GraphValue | None) -> list[GraphValue]:
        count = weight.shape[0]
        inputs = [value, weight] if bias is None else [value, weight, bias]
        out = b.op("FullyConnected", *inputs, num_hidden=count, no_bias=bias is None)
        return [b.slice(out, 1, i, i + c.size) for i in range(0, count, c.size)]

    def plus(left: GraphValue, right: GraphValue) -> GraphValue:
        return b.binary("add", left, right)

    def bounded(value: GraphValue) -> GraphValue:
        return value if c.limit is None else b.op("clip", value, a_min=-c.limit, a_max=c.limit)

    f = c.functions
    from_x = affine(x, c.x_weight, c.x_bias)
    if c.kind == "GRU" and not c.after_reset:
        wide = 2 * c.size
        top, rest = b.slice(c.h_weight, 0, 0, wide), b.slice(c.h_weight, 0, wide, wide + c.size)
        tops = None if c.h_bias is None else b.slice(c.h_bias, 0, 0, wide)
        last = None if c.h_bias is None else b.slice(c.h_bias, 0, wide, wide + c.size)
        z, r = (f[0](bounded(plus(p, q))) for p, q in zip(from_x, affine(h, top, tops)))
        new = f[1](bounded(plus(from_x[2], affine(b.binary("mul", r, h), rest, last)[0])))
        return [plus(new, b.binary("mul", z, b.binary("sub", h, new)))]
    from_h = affine(h, c.h_weight, c.h_bias)
    if c.kind == "RNN":
        return [f[0](bounded(plus(from_x[0], from_h[0])))]
    if c.kind == "GRU":
        z, r = (f[0](bounded(plus(from_x[i], from_h[i]))) for i in (0, 1))
        new = f[1](bounded(plus(from_x[2], b.binary("mul", r, from_h[2]))))
        return [plus(new, b.binary("mul", z, b.binary("sub", h, new)))]
    i, o, forget, new = (plus(p, q) for p, q in zip(from_x, from_h))
    cell = states[1]
    if c.peephole is not None:
        i, forget = (
            plus(i, b.binary("mul", c.peephole[0], cell)),
            plus(forget, b.binary("mul", c.peephole[2], cell)),
        )
    i = f[0](bounded(i))
    keep = i * -1.0 + 1.0 if c.forget_is_rest else f[0](bounded(forget))
    cell = plus(b.binary("mul", keep, cell), b.binary("mul", i, f[1](bounded(new))))
    if c.peephole is not None:
        o = plus(o, b.binary("mul", c.peephole[1], cell))
    return [b.binary("mul", f[0](bounded(o)), f[2](cell)), cell]


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {"GRU": recurrent, "LSTM": recurrent, "RNN": recurrent}
