"""Networks whose nodes are in groups, for programs on several devices."""

from contextlib import nullcontext

import mxlite as mx


def group(name):
    """A scope of nodes in that group; None: in no group."""
    return nullcontext() if name is None else mx.AttrScope(ctx_group=name)


def there_and_back():
    """From `a` to `b` and back, twice, with a value that both read: the devices are in a cycle."""
    x = mx.sym.Variable("data")
    with group("a"):
        x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=16, name="f1"), act_type="tanh", name="t1")
        x = mx.sym.Dropout(x, p=0.3, name="d1")
    with group("b"):
        y = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=16, name="f2"), act_type="relu", name="t2")
        y = mx.sym.Dropout(mx.sym.BatchNorm(y, fix_gamma=False, name="bn"), p=0.5, name="d2")
    with group("a"):
        z = mx.sym.FullyConnected(mx.sym.elemwise_add(x, y, name="sum"), num_hidden=8, name="f3")
    with group("b"):
        return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(z, num_hidden=4, name="f4"), name="softmax")


def lstm(length=4, layers=2, hidden=8, words=11):
    """An unrolled LSTM whose layers are groups, in the manner of MXNet's model-parallel example."""
    with group("embed"):
        words_in = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=words, output_dim=hidden, name="embed")
        inputs = mx.sym.SliceChannel(words_in, num_outputs=length, axis=1, squeeze_axis=True, name="words")
    cells = []
    for n in range(layers):
        with group(f"layer{n}"):
            kinds = ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")
            cells.append([mx.sym.Variable(f"l{n}_{kind}") for kind in kinds])
    states, outputs = [None] * layers, []
    for t in range(length):
        x = inputs[t]
        for n, (w, b, u, c) in enumerate(cells):
            with group(f"layer{n}"):
                x, states[n] = _cell(x, states[n], w, b, u, c, hidden)
        outputs.append(mx.sym.expand_dims(x, axis=1))
    with group("decode"):
        x = mx.sym.reshape(mx.sym.Concat(*outputs, dim=1), shape=(-1, hidden))
        label = mx.sym.reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
        return mx.sym.SoftmaxOutput(
            mx.sym.FullyConnected(x, num_hidden=words, name="pred"), label, name="softmax"
        )


def _cell(x, state, w, b, u, c, hidden):
    gates = mx.sym.FullyConnected(x, w, b, num_hidden=4 * hidden)
    if state is not None:
        gates = gates + mx.sym.FullyConnected(state[1], u, c, num_hidden=4 * hidden)
    i, f, o, new = mx.sym.SliceChannel(gates, num_outputs=4)
    cell = mx.sym.sigmoid(i) * mx.sym.tanh(new)
    if state is not None:
        cell = mx.sym.sigmoid(f) * state[0] + cell
    out = mx.sym.sigmoid(o) * mx.sym.tanh(cell)
    return out, (cell, out)
