"""Networks with loops and branches, as MXNet's users write them; they get the framework as `mx`.

Under MXNet 1.9.1, `python tests/networks/control_programs.py FOLDER` writes each network's symbol and what it
gives: that is how `golden/mxnet/control-*` were made.
"""

import sys
from pathlib import Path

import numpy as np


def recurrent(mx):
    """An Elman cell: weights made inside the body, a symbol from outside used by it, states of two kinds."""
    data, state = mx.sym.var("data"), mx.sym.var("state")
    gain = mx.sym.sigmoid(mx.sym.var("gain"))

    def step(x, states):
        h = mx.sym.FullyConnected(x, num_hidden=3, name="i2h") + mx.sym.FullyConnected(
            states[0], num_hidden=3, no_bias=True, name="h2h"
        )
        h = mx.sym.Activation(mx.sym.broadcast_mul(h, gain), act_type="tanh")
        return h * 2, [h, states[1] * 0.5 + h * h]

    out, states = mx.sym.contrib.foreach(step, data, [state, mx.sym.var("total")])
    return mx.sym.Group([out, *states])


def scan_of_lists(mx):
    """Two data, no state in the output of one iteration, lists of one; rows of a vector."""
    a, b = mx.sym.var("a"), mx.sym.var("b")
    (x, y), [s] = mx.sym.contrib.foreach(
        lambda rows, s: ([rows[0] * rows[1], rows[0]], [s[0] + rows[1] * rows[1]]), [a, b], [mx.sym.var("s")]
    )
    return mx.sym.Group([x, y, s])


def nested(mx):
    """A loop over rows inside a loop over matrices."""
    data, state, scale = mx.sym.var("data"), mx.sym.var("state"), mx.sym.var("scale")

    def outer(matrix, s):
        sums, last = mx.sym.contrib.foreach(lambda row, t: (row * t, t * scale + row), matrix, s)
        return mx.sym.sum(sums, axis=0), last * 0.5

    out, last = mx.sym.contrib.foreach(outer, data, state)
    return mx.sym.Group([out, last])


def newton(mx):
    """Square roots by a while_loop that stops by itself."""
    x, of, steps = mx.sym.var("x"), mx.sym.var("of"), mx.sym.var("steps")
    outs, states = mx.sym.contrib.while_loop(
        lambda x, n: n < 4,
        lambda x, n: (x * 1, [(x + mx.sym.broadcast_div(of, x)) * 0.5, n + 1]),
        [x, steps],
        max_iterations=4,
    )
    return mx.sym.Group([outs, *states])


def branch(mx):
    """Both branches use a weight; one of them alone uses another."""
    x, w, v = mx.sym.var("x"), mx.sym.var("w"), mx.sym.var("v")
    out = mx.sym.contrib.cond(
        mx.sym.sum(x) < 3, lambda: [x * w, mx.sym.tanh(x)], lambda: [x * v, mx.sym.exp(w) * x]
    )
    return mx.sym.Group(list(out))


PROGRAMS = {
    "recurrent": (recurrent, dict(data=(4, 2, 5), state=(2, 3), total=(2, 3), gain=(1, 1))),
    "scan_of_lists": (scan_of_lists, dict(a=(4,), b=(4,), s=(1,))),
    "nested": (nested, dict(data=(3, 2, 4), state=(4,), scale=(4,))),
    "newton": (newton, dict(x=(3,), of=(3,), steps=(1,))),
    "branch": (branch, dict(x=(2, 3), w=(2, 3), v=(2, 3))),
}

HIDDEN = {"i2h_weight": (3, 5), "i2h_bias": (3,), "h2h_weight": (3, 3)}


def numbers(name, arguments, shapes):
    """Arguments of a program: positive numbers, 0 for a counter."""
    draw = np.random.RandomState(len(name))
    return {
        n: np.zeros((1,), "float32")
        if n == "steps"
        else (draw.rand(*{**HIDDEN, **shapes}[n]) + 0.25).astype("float32")
        for n in arguments
    }


def run(mx, net, values):
    """Outputs, and gradients for head gradients 1, 2, 3, ..., by name."""
    arrays = {n: mx.nd.array(v) for n, v in values.items()}
    grads = {n: mx.nd.zeros(v.shape) for n, v in values.items()}
    executor = net.bind(mx.cpu(), arrays, grads)
    outs = executor.forward(is_train=True)
    heads = [mx.nd.array(np.arange(o.size).reshape(o.shape) + 1.0) for o in outs]
    executor.backward(heads)
    found = {f"out{i}": o.asnumpy() for i, o in enumerate(outs)}
    return {**found, **{f"d_{n}": g.asnumpy() for n, g in grads.items()}}


if __name__ == "__main__":
    import mxnet

    stored = {}
    for program, (make, shapes) in PROGRAMS.items():
        network = make(mxnet)
        network.save(str(Path(sys.argv[1]) / f"control-{program}.json"))
        given = numbers(program, network.list_arguments(), shapes)
        stored |= {f"{program}|{k}": v for k, v in run(mxnet, network, given).items()}
        stored[f"{program}|arguments"] = np.array(network.list_arguments())
        stored[f"{program}|outputs"] = np.array(network.list_outputs())
    np.savez_compressed(Path(sys.argv[1]) / "control.npz", **stored)
