"""An LSTM unrolled over time, in the two forms whose memory plans have been published."""

from __future__ import annotations

from typing import Any

Shapes = dict[str, tuple[int, ...]]

FORMS = ("loss per step", "one softmax over concat")


def unrolled(
    mx: Any,
    form: str,
    steps: int,
    *,
    layers: int = 4,
    hidden: int = 1024,
    batch: int = 64,
    features: int = 50,
    classes: int = 5000,
) -> tuple[Any, Shapes]:
    """The network and the shapes of its inputs; `form` is one of `FORMS`.

    Each step embeds its (batch, features) input in `hidden` numbers by a product, then `layers` cells
    (Hochreiter and Schmidhuber 1997, with forget gates, no peepholes). "loss per step" has a softmax at each
    step; the other joins the top layer of all steps along the batch and has one softmax.
    The last states are outputs too, without gradient, so that a longer sequence can go on from them.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {FORMS}, got {form!r}.")
    var = mx.sym.Variable
    shapes: Shapes = {}
    embed = var("embed_weight")
    weights = [
        [var(f"l{k}_{n}") for n in ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")]
        for k in range(layers)
    ]
    states = []
    for k in range(layers):
        states.append([var(f"l{k}_init_c"), var(f"l{k}_init_h")])
        shapes[f"l{k}_init_c"] = shapes[f"l{k}_init_h"] = (batch, hidden)

    tops = []
    for t in range(steps):
        shapes[f"t{t}_data"] = (batch, features)
        data = mx.sym.FullyConnected(
            var(f"t{t}_data"), embed, num_hidden=hidden, no_bias=True, name=f"t{t}_embed"
        )
        for k in range(layers):
            states[k] = _cell(mx, data, states[k], weights[k], hidden, f"t{t}_l{k}")
            data = states[k][1]
        tops.append(data)

    weight, bias = var("cls_weight"), var("cls_bias")
    losses = []
    if form == "loss per step":
        for t, top in enumerate(tops):
            shapes[f"t{t}_label"] = (batch,)
            score = mx.sym.FullyConnected(top, weight, bias, num_hidden=classes, name=f"t{t}_cls")
            losses.append(mx.sym.SoftmaxOutput(score, var(f"t{t}_label"), name=f"t{t}_softmax"))
    else:
        shapes["label"] = (batch * steps,)
        joined = mx.sym.Concat(*tops, dim=0)
        score = mx.sym.FullyConnected(joined, weight, bias, num_hidden=classes, name="cls")
        losses.append(mx.sym.SoftmaxOutput(score, var("label"), name="softmax"))
    last = [mx.sym.BlockGrad(s) for pair in states for s in pair]
    return mx.sym.Group([*losses, *last]), shapes


def _cell(mx: Any, data: Any, state: list[Any], weights: list[Any], hidden: int, name: str) -> list[Any]:
    """The next (c, h)."""
    c, h = state
    from_data = mx.sym.FullyConnected(data, *weights[:2], num_hidden=4 * hidden, name=f"{name}_i2h")
    from_state = mx.sym.FullyConnected(h, *weights[2:], num_hidden=4 * hidden, name=f"{name}_h2h")
    gates = mx.sym.SliceChannel(from_data + from_state, num_outputs=4, name=f"{name}_gates")
    write = mx.sym.Activation(gates[0], act_type="sigmoid")
    new = mx.sym.Activation(gates[1], act_type="tanh")
    keep = mx.sym.Activation(gates[2], act_type="sigmoid")
    show = mx.sym.Activation(gates[3], act_type="sigmoid")
    c = keep * c + write * new
    return [c, show * mx.sym.Activation(c, act_type="tanh")]
