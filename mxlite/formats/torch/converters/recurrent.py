"""LSTM, GRU and plain recurrent layers: mxlite's RNN operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...building import GraphValue, NotSupportedError
from ..node import TorchNode

_KINDS = {"lstm": "lstm", "gru": "gru", "rnn_tanh": "rnn_tanh", "rnn_relu": "rnn_relu"}


def recurrent(n: TorchNode) -> tuple[GraphValue, ...]:
    """PyTorch's order of gates is ours; its weights become one vector, all matrices before all biases."""
    b, x = n.builder, n["input"]
    n.ignore("train")  # dropout between layers asks at run time
    mode = _KINDS[n.target.split(".")[1]]
    if n.plain("batch_sizes") is not None:
        raise NotSupportedError("packed sequences")
    first = bool(n.plain("batch_first", False))
    x = b.transpose(x, (1, 0, 2)) if first else x
    states = n.values("hx") if mode == "lstm" else [n["hx"]]
    sides, biased = 2 if n.plain("bidirectional") else 1, bool(n.plain("has_biases", True))
    layers = int(n.plain("num_layers", 1))
    weights = n.values("params")
    size = weights[1].shape[0] // {"lstm": 4, "gru": 3}.get(mode, 1)
    projected = states[0].shape[-1] if mode == "lstm" and states[0].shape[-1] != size else None
    each = 2 + 2 * biased + (projected is not None)
    cells = [weights[i * each : (i + 1) * each] for i in range(layers * sides)]
    if len(weights) != each * layers * sides or projected is not None:
        raise NotSupportedError(f"a {mode} with a projection")
    matrices = [b.reshape(w, (w.size,)) for cell in cells for w in cell[:2]]
    if biased:
        vectors = [v for cell in cells for v in cell[2:4]]
    else:
        vectors = [b.full((2 * w.shape[0],), 0, x.dtype) for w, *_ in cells]
    results = b.ops(
        "RNN",
        x,
        b.concat([*matrices, *vectors], 0),
        *states,
        state_size=size,
        num_layers=layers,
        mode=mode,
        bidirectional=sides == 2,
        p=float(n.plain("dropout", 0.0)),
        state_outputs=True,
    )
    out = b.transpose(results[0], (1, 0, 2)) if first else results[0]
    return out, *results[1:]


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = dict.fromkeys(_KINDS, recurrent)
