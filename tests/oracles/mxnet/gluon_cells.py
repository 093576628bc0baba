"""Cells of mx.gluon.contrib.rnn, run under mxlite and under MXNet itself.

`python tests/oracles/mxnet/gluon_cells.py mxnet FILE` writes what MXNet gives:
tests/golden/mxnet/gluon-cells.json.
"""

import importlib
import json
import sys
import warnings

import numpy as np

STEPS, BATCH = 3, 2
LENGTHS = (3, 2)


def convolutional(rnn, axes, kind, **options):
    """A cell over samples of two channels, with kernels of different sizes along each axis."""
    sample = (2, *(5, 4, 3)[:axes])
    options = {"i2h_pad": (0, 1, 1)[:axes], "i2h_kernel": (2, 3, 3)[:axes]} | options
    return getattr(rnn, f"Conv{axes}D{kind}Cell")(sample, 3, h2h_kernel=(3, 1, 3)[:axes], **options), sample


def cases(mx):
    """Name -> a cell, and the shape of a sample at one place."""
    rnn = mx.gluon.contrib.rnn
    found = {
        f"{axes} {kind}": convolutional(rnn, axes, kind)
        for axes in (1, 2, 3)
        for kind in ("RNN", "LSTM", "GRU")
    }
    found["dilated"] = convolutional(
        rnn, 2, "LSTM", i2h_pad=2, i2h_kernel=3, i2h_dilate=2, h2h_dilate=(2, 1), activation="relu"
    )
    found["projected"] = rnn.LSTMPCell(4, 3), (5,)
    found["variational"] = rnn.VariationalDropoutCell(rnn.LSTMPCell(4, 3), 0.3, 0.3, 0.3), (5,)
    found["variational outside"] = rnn.VariationalDropoutCell(mx.gluon.rnn.GRUCell(4), 0.3, 0, 0.3), (5,)
    return found


def filled(net):
    """The parameters of a network with values from numpy, in their order."""
    draw = np.random.RandomState(3)
    parameters = list(net.collect_params().values())
    for p in parameters:
        p.set_data(draw.uniform(-0.5, 0.5, p.shape))
    return parameters


def digest(array):
    """The shape, a sum that depends on places, and that of squares."""
    values = array.asnumpy().astype("float64")
    sums = (values.ravel() * np.linspace(1, 2, values.size)).sum(), (values**2).sum()
    return [*values.shape, *(round(float(v), 4) for v in sums)]


def numbers(mx, cell, sample):
    """Outputs, last states and gradients of unrolling, of whole sequences and of some that end earlier."""
    cell.initialize()
    x = mx.nd.array(np.random.RandomState(5).uniform(-1, 1, (BATCH, STEPS, *sample)))
    cell.unroll(STEPS, x)  # tells the shapes
    parameters = filled(cell)
    found = []
    for lengths in (None, mx.nd.array(LENGTHS)):
        with mx.autograd.record(train_mode=False):
            outputs, states = cell.unroll(STEPS, x, merge_outputs=True, valid_length=lengths)
            loss = (outputs**2).sum() + sum((s**2).sum() for s in states)
        loss.backward()
        found += [digest(a) for a in (outputs, *states, *(p.grad() for p in parameters))]
    return found


def loops(mx, layout, lengths):
    """The outputs and states of `dynamic_unroll`."""
    cell = mx.gluon.contrib.rnn.LSTMPCell(4, 3, input_size=5)
    cell.initialize()
    filled(cell)
    shape = (STEPS, BATCH, 5) if layout == "TNC" else (BATCH, STEPS, 5)
    x = mx.nd.array(np.random.RandomState(5).uniform(-1, 1, shape))
    states = [mx.nd.ones((BATCH, 3)), mx.nd.ones((BATCH, 4))]
    valid = mx.nd.array(LENGTHS) if lengths else None
    outputs, last = mx.gluon.contrib.rnn.rnn_cell.dynamic_unroll(
        cell, x, states, layout=layout, valid_length=valid
    )
    return [digest(a) for a in (outputs, *last)]


def everything(mx):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with mx.name.NameManager():
            cells = cases(mx)
            return {
                "numbers": {name: numbers(mx, *case) for name, case in cells.items()},
                "states": {n: [list(s["shape"]) for s in c.state_info(2)] for n, (c, _) in cells.items()},
                "parameters": {n: list(c.collect_params()) for n, (c, _) in cells.items()},
                "loops": {
                    f"{layout} {lengths}": loops(mx, layout, lengths)
                    for layout in ("TNC", "NTC")
                    for lengths in (False, True)
                },
            }


if __name__ == "__main__":
    with open(sys.argv[2], "w") as file:
        json.dump(everything(importlib.import_module(sys.argv[1])), file, separators=(",", ":"))
