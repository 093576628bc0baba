"""Motifs of networks for rows of numbers and sequences: dense layers, norms, attention, recurrent layers."""

from __future__ import annotations

from math import prod

from .draft import Draft
from .motifs_images import batch_norm
from .network import Shape, Value


def is_rows(shape: Shape) -> bool:
    return len(shape) in (2, 3)


def is_sequence(shape: Shape) -> bool:
    return len(shape) == 3


def dense(d: Draft, x: Value, hidden: int | None = None, flatten: bool | None = None, **how: bool) -> Value:
    """A dense layer, its weight often one that others read as well."""
    shape = d.shape(x)
    flat = len(shape) == 2 if flatten is None else flatten
    width = prod(shape[1:]) if flat else shape[-1]
    hidden = hidden or d.width()
    d.require(width <= 1024)
    how = dict(no_bias=d.chance(0.4)) | how
    weight = d.variable((hidden, width), "weight")
    inputs = (x, weight) if how["no_bias"] else (x, weight, d.variable((hidden,), "small", "b"))
    return d.call("FullyConnected", *inputs, num_hidden=hidden, flatten=flat, **how)


def bend(d: Draft, x: Value) -> Value:
    """An activation of those that dense layers have behind them."""
    kind = d.one_of(("relu", "relu", "gelu", "gelu", "tanh", "silu", "leaky gelu", "sigmoid", "elu", "leaky"))
    if kind == "relu":
        return d.call("Activation", x, act_type="relu") if d.chance(0.5) else d.call("relu", x)
    if kind == "gelu":
        return d.call("gelu", x, **(dict(approximate="tanh") if d.chance(0.3) else {}))
    if kind.startswith("leaky") or kind == "elu":
        kind = kind.split()[-1]
        return d.call("LeakyReLU", x, act_type=kind, **({} if kind == "gelu" else dict(slope=0.2)))
    return d.call(kind, x)


def layer_norm(d: Draft, x: Value) -> Value:
    k = d.shape(x)[-1]
    if d.chance(0.2):
        return d.call("RMSNorm", x, d.variable((k,), "gamma"), eps=0.1)
    return d.call("LayerNorm", x, d.variable((k,), "gamma"), d.variable((k,), "small"), eps=0.1)


def dense_motif(d: Draft) -> Value:
    x = dense(d, d.pick(is_rows))
    return bend(d, x) if d.chance(0.7) else x


def multilayer(d: Draft) -> Value:
    """Dense, activation, dense: of a width that rows are no multiple of."""
    x = d.pick(is_rows)
    y = bend(d, dense(d, x, hidden=d.width() * d.one_of((1, 2, 4))))
    y = dense(d, y, hidden=d.shape(x)[-1])
    return d.call("elemwise_add", x, y) if d.shape(x) == d.shape(y) and d.chance(0.5) else y


def transformer_half(d: Draft) -> Value:
    """A layer norm, two dense layers with a function between them, and a sum around all."""
    x = d.pick(is_rows)
    before = d.chance(0.6)
    y = layer_norm(d, x) if before else x
    y = dense(d, bend(d, dense(d, y, flatten=False)), hidden=d.shape(x)[-1], flatten=False)
    if d.chance(0.2):
        y = d.call("Dropout", y, p=0.2)
    y = d.call("elemwise_add", x, y)
    return y if before else layer_norm(d, y)


def many_readers(d: Draft) -> Value:
    """Several dense layers read one value, so that its gradient is a sum of products."""
    x = d.pick(is_rows)
    hidden = d.width()
    made = [dense(d, x, hidden=hidden) for _ in range(d.one_of((2, 3)))]
    y = made[0]
    for z in made[1:]:
        y = d.call(d.one_of(("elemwise_add", "elemwise_mul")), y, bend(d, z))
    return y


def unrolled(d: Draft) -> Value:
    """A cell unrolled over a few steps: all read one weight."""
    x = d.pick(lambda s: len(s) == 2)
    _, k = d.shape(x)
    weight, inner = d.variable((k, k), "weight"), d.variable((k, k), "weight", share=0)
    h = x
    for _ in range(d.one_of((2, 3))):
        a = d.call("FullyConnected", h, weight, num_hidden=k, no_bias=True)
        b = d.call("FullyConnected", x, inner, num_hidden=k, no_bias=True)
        h = d.call("tanh", d.call("elemwise_add", a, b))
    return h


def lstm_cell(d: Draft) -> Value:
    """Gates of one product, cut apart, as rnn.LSTMCell unrolls them."""
    x = d.pick(lambda s: len(s) == 2)
    _, k = d.shape(x)
    weight, bias = d.variable((4 * k, k), "weight"), d.variable((4 * k,), "small", "b")
    h, c = x, None
    for _ in range(d.one_of((1, 2))):
        gates = d.call("FullyConnected", h, weight, bias, num_hidden=4 * k)
        i, f, g, o = d.outputs("SliceChannel", gates, num_outputs=4)
        new = d.call("elemwise_mul", d.call("sigmoid", i), d.call("tanh", g))
        c = new if c is None else d.call("elemwise_add", new, d.call("elemwise_mul", c, d.call("sigmoid", f)))
        h = d.call("elemwise_mul", d.call("sigmoid", o), d.call("tanh", c))
    return h


def norm_motif(d: Draft) -> Value:
    x = d.pick(lambda s: len(s) in (2, 3))
    if d.chance(0.3):
        return batch_norm(d, x)
    x = layer_norm(d, x)
    return dense(d, x, flatten=False) if d.chance(0.5) else x


def attention(d: Draft) -> Value:
    """Heads of a sequence (N, T, K) that look at each other."""
    x = d.pick(is_sequence)
    k = d.shape(x)[-1]
    heads = d.one_of([h for h in (1, 2, 4) if k % h == 0])
    kind = d.one_of(("fused", "spelled out", "interleaved"))
    if kind == "interleaved":
        y = dense(d, x, hidden=3 * k, flatten=False)
        scores = d.call("contrib.interleaved_matmul_selfatt_qk", y, heads=heads)
        shares = d.call("softmax", scores, axis=-1)
        return d.call("contrib.interleaved_matmul_selfatt_valatt", y, shares, heads=heads)
    q, k_, v = (_heads(d, dense(d, x, hidden=k, flatten=False), heads) for _ in range(3))
    if kind == "fused":
        made = d.call(
            "scaled_dot_product_attention", q, k_, v, **(dict(causal=True) if d.chance(0.4) else {})
        )
    else:
        q, k_, v = (d.call("reshape", a, shape=(-3, 0, 0)) for a in (q, k_, v))
        scores = (
            d.call("batch_dot", q, k_, transpose_b=True)
            if d.chance(0.5)
            else d.call("batch_dot", q, d.call("transpose", k_, axes=(0, 2, 1)))
        )
        shares = d.call("softmax", d.call("_mul_scalar", scores, scalar=0.5), axis=-1)
        made = d.call("reshape", d.call("batch_dot", shares, v), shape=(-4, -1, heads, 0, 0))
    y = d.call("reshape", d.call("transpose", made, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
    return d.call("elemwise_add", x, dense(d, y, hidden=k, flatten=False))


def _heads(d: Draft, x: Value, heads: int) -> Value:
    """(N, T, K) -> (N, heads, T, K / heads)."""
    y = d.call("reshape", x, shape=(0, 0, -4, heads, -1))
    return d.call("transpose", y, axes=(0, 2, 1, 3))


def recurrent(d: Draft) -> Value:
    """A recurrent layer, with its last states read too, or lengths, or two directions."""
    x = d.pick(is_sequence)
    t, n, k = d.shape(x)
    mode = d.one_of(("lstm", "lstm", "lstm", "gru", "gru", "rnn_tanh", "rnn_relu"))
    hidden, layers, both = d.width(), d.one_of((1, 1, 2)), d.chance(0.3)
    d.require(hidden <= 16 and k <= 64)
    gates = {"lstm": 4, "gru": 3}.get(mode, 1)
    directions = 2 if both else 1
    size = sum(
        directions * gates * hidden * ((k if layer == 0 else directions * hidden) + hidden + 2)
        for layer in range(layers)
    )
    state = (layers * directions, n, hidden)
    parameters = d.variable((size,), "small", "parameters")
    inputs = [x, parameters, d.variable(state, "small", "state")]
    if mode == "lstm":
        inputs.append(d.variable(state, "small", "cell"))
    more = dict(bidirectional=True) if both else {}
    if d.chance(0.15):
        more["p"] = 0.3
    if d.chance(0.2):
        more["use_sequence_length"] = True
        inputs.append(d.input((n,), f"length {t}", "length"))
    if d.chance(0.4):
        made = d.outputs(
            "RNN", *inputs, mode=mode, state_size=hidden, num_layers=layers, state_outputs=True, **more
        )
        d.there += made[1:]
        return made[0]
    return d.call("RNN", *inputs, mode=mode, state_size=hidden, num_layers=layers, **more)


def lookup(d: Draft) -> Value:
    """Rows of a table."""
    n, t, k, words = d.width(), d.width(), d.width(), d.width() + 3
    shape = d.one_of(((n,), (n, t)))
    ids = d.input(shape, f"index {words}", "ids")
    x = d.call("Embedding", ids, d.variable((words, k), "weight"), input_dim=words, output_dim=k)
    return layer_norm(d, x) if d.chance(0.4) else x


def sequence_layer(d: Draft) -> Value:
    """Parts of a sequence, by lengths of its own for each sample."""
    x = d.pick(is_sequence)
    t, n, _ = d.shape(x)
    op = d.one_of(("SequenceMask", "SequenceLast", "SequenceReverse"))
    if d.chance(0.4):
        return d.call(op, x)
    return d.call(op, x, d.input((n,), f"length {t}", "length"), use_sequence_length=True)


def controlled(d: Draft) -> Value:
    """A loop, a branch or an operator in Python."""
    kind = d.one_of(("scan", "repeat", "either", "custom"))
    if kind == "scan":
        x = d.pick(is_sequence)
        _, n, k = d.shape(x)
        made = d.outputs("scan", x, d.variable((n, k), "small", "state"), d.variable((k, k), "weight"))
        d.there.append(made[1])
        return made[0]
    x = d.pick(lambda s: len(s) <= 3)
    if kind == "repeat":
        made = d.outputs("repeat", x, times=d.one_of((1, 2, 3)))
        d.require(len(d.shape(made[1])) <= 4)
        return made[1]
    return d.call(kind, x, d.variable(d.shape(x), "small", "gate"))


MOTIFS = (
    (dense_motif, 4), (multilayer, 4), (transformer_half, 4), (many_readers, 4), (unrolled, 2),
    (lstm_cell, 2),
    (norm_motif, 3), (attention, 5), (recurrent, 4), (lookup, 1), (sequence_layer, 1), (controlled, 2),
)  # fmt: skip
