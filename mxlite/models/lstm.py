"""Recurrent networks: an LSTM as one operator, and unrolled over time."""

from __future__ import annotations

import json

from .. import symbol as sym
from ..symbol import Symbol
from .layers import loss_of, require


def lstm(
    layers: int = 2,
    hidden: int = 650,
    vocabulary: int = 10000,
    *,
    dropout: float = 0.5,
    tied: bool = False,
    loss: str = "softmax",
) -> Symbol:
    """A language model of one fused RNN operator (W. Zaremba, I. Sutskever, O. Vinyals 2014, "Recurrent
    neural network regularization": the medium network, unless told otherwise).

    data: (T, N) token numbers, time first;  lstm_state, lstm_state_cell: (`layers`, N, `hidden`), the states
    to go on from;  softmax_label: (T * N,)  ->  softmax: (T * N, `vocabulary`). tied: the last layer uses the
    table of embeddings.

    loss: "softmax" gives probabilities; "cross_entropy" only the loss of all tokens, a number (1,) in their
    place, for which the scores never exist as a whole.
    """
    table = sym.Variable("embed_weight")
    data = sym.Embedding(sym.Variable("data"), table, input_dim=vocabulary, output_dim=hidden, name="embed")
    if dropout:
        data = sym.Dropout(data, p=dropout, name="embed_drop")
    sizes = dict(init=None, num_hidden=hidden, num_layers=layers, mode="lstm")
    weights = sym.Variable("lstm_parameters", init=json.dumps(["fusedrnn", sizes]))
    out = sym.RNN(data, weights, state_size=hidden, num_layers=layers, mode="lstm", p=dropout, name="lstm")
    if dropout:
        out = sym.Dropout(out, p=dropout, name="lstm_drop")
    out = sym.Reshape(out, shape=(-3, -2), name="rows")
    weight = {"weight": table} if tied else {}
    score = sym.FullyConnected(out, num_hidden=vocabulary, name="score", **weight)
    return loss_of(score, loss, "softmax")


def lstm_unrolled(
    steps: int = 64,
    layers: int = 4,
    hidden: int = 1024,
    classes: int = 5000,
    *,
    joined: bool = True,
    loss: str = "softmax",
) -> Symbol:
    """An LSTM with a node for every gate of every step, in the three forms whose memory plans have been
    published.

    t0_data, t1_data, ...: (N, features);  l0_init_c, l0_init_h, ...: (N, `hidden`)  ->  one softmax for all
    steps, (steps * N, `classes`), or, unless `joined`, one of (N, `classes`) for each step; then the last c
    and h of each layer, without gradient, so that a longer sequence can go on from them. Labels:
    softmax_label (steps * N,), or t0_softmax_label, ... (N,).

    loss: "softmax" gives probabilities; "cross_entropy" only the loss, a number (1,) in their place, whose
    softmax takes no bytes of its own.

    Each step maps its input to `hidden` numbers, then come `layers` cells (S. Hochreiter, J. Schmidhuber
    1997, "Long short-term memory", with forget gates, without peepholes).
    """
    require(steps >= 1 and layers >= 1, f"steps and layers must be at least 1, got {steps!r} and {layers!r}.")
    embed = sym.Variable("embed_weight")
    names = ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")
    weights = [[sym.Variable(f"l{k}_{n}") for n in names] for k in range(layers)]
    states = [[sym.Variable(f"l{k}_init_c"), sym.Variable(f"l{k}_init_h")] for k in range(layers)]
    tops = []
    for t in range(steps):
        data = sym.FullyConnected(
            sym.Variable(f"t{t}_data"), embed, num_hidden=hidden, no_bias=True, name=f"t{t}_embed"
        )
        for k in range(layers):
            states[k] = _cell(data, states[k], weights[k], hidden, f"t{t}_l{k}")
            data = states[k][1]
        tops.append(data)
    weight, bias = sym.Variable("cls_weight"), sym.Variable("cls_bias")
    losses = []
    if joined:
        top = sym.Concat(*tops, dim=0, name="tops")
        score = sym.FullyConnected(top, weight, bias, num_hidden=classes, name="cls")
        losses.append(loss_of(score, loss, "softmax"))
    else:
        for t, top in enumerate(tops):
            score = sym.FullyConnected(top, weight, bias, num_hidden=classes, name=f"t{t}_cls")
            losses.append(loss_of(score, loss, f"t{t}_softmax"))
    last = [
        sym.BlockGrad(state, name=f"l{k}_last_{n}")
        for k, pair in enumerate(states)
        for n, state in zip("ch", pair)
    ]
    return sym.Group([*losses, *last])


def _cell(data: Symbol, state: list[Symbol], weights: list[Symbol], hidden: int, name: str) -> list[Symbol]:
    """The next (c, h)."""
    c, h = state
    from_data = sym.FullyConnected(data, *weights[:2], num_hidden=4 * hidden, name=f"{name}_i2h")
    from_state = sym.FullyConnected(h, *weights[2:], num_hidden=4 * hidden, name=f"{name}_h2h")
    total = sym.elemwise_add(from_data, from_state, name=f"{name}_total")
    gates = sym.SliceChannel(total, num_outputs=4, name=f"{name}_gates")
    write = sym.Activation(gates[0], act_type="sigmoid", name=f"{name}_write")
    new = sym.Activation(gates[1], act_type="tanh", name=f"{name}_new")
    keep = sym.Activation(gates[2], act_type="sigmoid", name=f"{name}_keep")
    show = sym.Activation(gates[3], act_type="sigmoid", name=f"{name}_show")
    kept = sym.elemwise_mul(keep, c, name=f"{name}_kept")
    c = sym.elemwise_add(kept, sym.elemwise_mul(write, new, name=f"{name}_written"), name=f"{name}_c")
    h = sym.elemwise_mul(show, sym.Activation(c, act_type="tanh", name=f"{name}_tanh"), name=f"{name}_h")
    return [c, h]
