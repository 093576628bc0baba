"""Recurrent networks made of cells, run under mxlite and under MXNet itself.

`python tests/oracles/mxnet/rnn_cells.py mxnet FILE` writes what MXNet gives:
tests/golden/mxnet/rnn-cells.json.
"""

import importlib
import json
import sys
import warnings

import numpy as np

STEPS, BATCH, INPUTS, HIDDEN = 2, 2, 3, 4


def unrolled(mx, cell, **options):
    """Outputs and last states of a cell over (BATCH, STEPS, INPUTS)."""
    with mx.name.NameManager():
        outputs, states = cell.unroll(STEPS, inputs=mx.sym.Variable("data"), **options)
        flat = [s for state in states for s in (state if isinstance(state, list) else [state])]
        shown = outputs if isinstance(outputs, list) else [outputs]
        names = {s.name for s in shown}
        return mx.sym.Group([*shown, *(s for s in flat if s.name not in names)])


def stack(mx, *cells):
    result = mx.rnn.SequentialRNNCell()
    for cell in cells:
        result.add(cell)
    return result


def bidirectional(mx):
    return mx.rnn.BidirectionalCell(
        mx.rnn.LSTMCell(HIDDEN, prefix="l_"), mx.rnn.GRUCell(HIDDEN, prefix="r_"), output_prefix="both_"
    )


def shared(mx):
    params = mx.rnn.RNNParams("one_")
    return stack(
        mx,
        mx.rnn.RNNCell(INPUTS, prefix="a_", params=params),
        mx.rnn.RNNCell(INPUTS, activation="relu", prefix="b_", params=params),
    )


def fused(mx, mode, **options):
    return mx.rnn.FusedRNNCell(HIDDEN, mode=mode, prefix=f"{mode}_", **options)


def cases(mx):
    """Name -> a symbol."""
    rnn = mx.rnn
    conv = dict(input_shape=(BATCH, 1, 4, 4), num_hidden=2)
    image = dict(inputs=[mx.sym.Variable(f"data{i}") for i in range(STEPS)])

    def images(cell):
        with mx.name.NameManager():
            return mx.sym.Group(cell.unroll(STEPS, **image)[0])

    return {
        "rnn": unrolled(mx, rnn.RNNCell(HIDDEN)),
        "rnn merged": unrolled(mx, rnn.RNNCell(HIDDEN, activation="relu", prefix="r_"), merge_outputs=True),
        "lstm": unrolled(mx, rnn.LSTMCell(HIDDEN, forget_bias=2.0)),
        "lstm time first": unrolled(mx, rnn.LSTMCell(HIDDEN), layout="TNC", merge_outputs=True),
        "gru": unrolled(mx, rnn.GRUCell(HIDDEN), merge_outputs=False),
        "shared": unrolled(mx, shared(mx)),
        "stack": unrolled(
            mx,
            stack(
                mx, rnn.LSTMCell(HIDDEN, prefix="a_"), rnn.DropoutCell(0.5), rnn.GRUCell(HIDDEN, prefix="b_")
            ),
        ),
        "bidirectional": unrolled(mx, bidirectional(mx)),
        "bidirectional merged": unrolled(mx, bidirectional(mx), merge_outputs=True),
        "zoneout": unrolled(mx, rnn.ZoneoutCell(rnn.RNNCell(HIDDEN), 0.3, 0.2)),
        "residual": unrolled(mx, rnn.ResidualCell(rnn.GRUCell(INPUTS)), merge_outputs=True),
        "residual list": unrolled(mx, rnn.ResidualCell(rnn.RNNCell(INPUTS))),
        "fused lstm": unrolled(mx, fused(mx, "lstm", num_layers=2, get_next_state=True), layout="TNC"),
        "fused gru": unrolled(mx, fused(mx, "gru", bidirectional=True, dropout=0.5), merge_outputs=False),
        "fused relu": unrolled(mx, fused(mx, "rnn_relu", get_next_state=True), merge_outputs=True),
        "unfused": unrolled(mx, fused(mx, "lstm", num_layers=2, bidirectional=True, dropout=0.2).unfuse()),
        "unfused relu": unrolled(mx, fused(mx, "rnn_relu", num_layers=2).unfuse()),
        "states given": unrolled(
            mx,
            rnn.LSTMCell(HIDDEN),
            begin_state=rnn.LSTMCell(HIDDEN, prefix="x_").begin_state(mx.sym.Variable),
        ),
        "conv rnn": images(rnn.ConvRNNCell(**conv)),
        "conv lstm": images(rnn.ConvLSTMCell(activation="tanh", **conv)),
        "conv gru": images(rnn.ConvGRUCell(**conv)),
    }


def numbers(mx, net, time_first):
    """What a network gives for weights and data from numpy, with sums of the gradients of its weights."""
    shapes = {"data": (BATCH, STEPS, INPUTS)} if "data" in net.list_arguments() else {}
    shapes |= {f"data{i}": (BATCH, 1, 4, 4) for i in range(STEPS) if f"data{i}" in net.list_arguments()}
    if time_first:
        shapes["data"] = (STEPS, BATCH, INPUTS)
    shapes |= {n: (BATCH, HIDDEN) for n in net.list_arguments() if "begin_state" in n}
    exe = net.simple_bind(mx.cpu(), **shapes)
    draw = np.random.RandomState(5)
    for array in exe.arg_dict.values():
        array[:] = draw.rand(*array.shape) - 0.5
    outputs = exe.forward(is_train=True)
    exe.backward([mx.nd.ones(o.shape) for o in outputs])
    found = [*outputs, *(exe.grad_dict[n] for n in net.list_arguments())]
    return [[round(float(v), 5) for v in (a.asnumpy().sum(), (a.asnumpy() ** 2).sum())] for a in found]


TIME_FIRST = ("lstm time first", "fused lstm")
RANDOM = ("stack", "zoneout", "fused gru", "unfused")


def weights(mx):
    """Sums of the pieces of a vector 0, 1, 2, ... unpacked, and the vector packed again."""
    cell = fused(mx, "lstm", num_layers=2, bidirectional=True)
    count = 4 * HIDDEN * 2 * (INPUTS + HIDDEN + 2) + 4 * HIDDEN * 2 * (2 * HIDDEN + HIDDEN + 2)
    vector = mx.nd.array(np.arange(count))
    pieces = cell.unpack_weights({"lstm_parameters": vector, "other": mx.nd.ones((1,))})
    again = cell.pack_weights(pieces)
    assert (again["lstm_parameters"].asnumpy() == np.arange(count)).all()
    steps = cell.unfuse()
    packed = steps.pack_weights(pieces)
    return [
        {n: [list(a.shape), float(a.asnumpy().sum())] for n, a in sorted(found.items())}
        for found in (pieces, packed, steps.unpack_weights(packed))
    ]


def first_values(mx):
    """What the initializers of cells make of their parameters."""
    result = {}
    for name, cell in (
        ("lstm", mx.rnn.LSTMCell(HIDDEN, forget_bias=3.0)),
        ("fused", fused(mx, "lstm", num_layers=2, forget_bias=3.0)),
    ):
        net = unrolled(mx, cell)
        shapes, _, _ = net.infer_shape(data=(BATCH, STEPS, INPUTS))
        for key, shape in zip(net.list_arguments(), shapes):
            if key != "data":
                array = mx.nd.zeros(shape)
                mx.init.One()(mx.init.InitDesc(key, net.attr_dict().get(key, {})), array)
                result[f"{name} {key}"] = float(array.asnumpy().sum())
    return result


def everything(mx):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nets = cases(mx)
        return {
            "json": {name: net.tojson() for name, net in nets.items()},
            "numbers": {n: numbers(mx, net, n in TIME_FIRST) for n, net in nets.items() if n not in RANDOM},
            "weights": weights(mx),
            "first values": first_values(mx),
        }


if __name__ == "__main__":
    with open(sys.argv[2], "w") as file:
        json.dump(everything(importlib.import_module(sys.argv[1])), file, separators=(",", ":"))
