"""Recurrent layers: one ONNX node a layer, its weights taken out of the vector of all parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..exported_node import ExportedNode

_GATES = {
    "lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,),
}  # fmt: skip
"""ONNX's gates, i o f c and z r h, in the order i f c o and r z h of MXNet."""


def recurrent(n: ExportedNode) -> list[str]:
    w, a = n.writer, n.attrs
    n.require(a.projection_size is None and a.lstm_state_clip_min is None, "a projection, or clipping,")
    n.require(not a.use_sequence_length, "sequences of different lengths")
    steps, batch = n.shape()[:2]
    sides, size = 2 if a.bidirectional else 1, a.state_size
    weights = _weights(n.array(1, "the parameters"), a.mode, a.num_layers, sides, n.number(2), size)
    states = n.inputs[2:4] if a.mode == "lstm" else n.inputs[2:3]
    data, lasts = n[0], []
    for layer, (x_weight, h_weight, bias) in enumerate(weights):
        part = w.ints([layer * sides]), w.ints([(layer + 1) * sides]), w.ints([0])
        own = [w.add("Slice", state, *part) for state in states]
        arrays = [w.constant(v) for v in (x_weight, h_weight, bias)]
        out, *last = w.several(
            {"lstm": "LSTM", "gru": "GRU"}.get(a.mode, "RNN"), [data, *arrays, "", *own], 1 + len(states),
            hidden_size=size, direction="bidirectional" if sides == 2 else "forward",
            linear_before_reset=1 if a.mode == "gru" else None,
            activations=["Relu"] * sides if a.mode == "rnn_relu" else None,
        )  # fmt: skip
        joined = w.add("Transpose", out, perm=[0, 2, 1, 3])
        data = n.reshaped(joined, (steps, batch, sides, size), (steps, batch, sides * size))
        lasts.append(last)
    ends = [w.add("Concat", *parts, axis=0) for parts in zip(*lasts)]
    return [data, *ends] if a.state_outputs else [data]


def _weights(
    vector: np.ndarray, mode: str, layers: int, sides: int, width: int, size: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of each layer the weights of data and state and the biases, with ONNX's order of gates.

    vector: all weights by layer and direction, then all biases  ->  (D, G*H, I), (D, G*H, H), (D, 2*G*H).
    """
    order, at = _GATES[mode], 0

    def taken(columns: int) -> np.ndarray:
        nonlocal at
        part = vector[at : at + len(order) * size * columns].reshape(len(order), size, columns)
        at += part.size
        return part[list(order)].reshape(len(order) * size, columns)

    widths = [width, *[sides * size] * (layers - 1)]
    matrices = [[(taken(columns), taken(size)) for _ in range(sides)] for columns in widths]
    biases = [[np.concatenate([taken(1), taken(1)])[:, 0] for _ in range(sides)] for _ in range(layers)]
    return [
        (np.stack([x for x, _ in own]), np.stack([h for _, h in own]), np.stack(bias))
        for own, bias in zip(matrices, biases)
    ]


WRITERS: dict[str, Callable[[ExportedNode], Any]] = {"RNN": recurrent}
