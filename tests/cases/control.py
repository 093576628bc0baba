"""Rows of loops and branches. Their subgraphs are traced as a user's are, and then given as the operators'
parameters."""

import numpy as np

from mxlite import symbol as sym
from tests.conformance.case import Case, positive, unit


def _case(symbols, shapes, **more):
    """The row of the node that made `symbols`; `shapes` by the names of its inputs."""
    group = sym.Group(symbols)
    node = group.entries[0].node
    attrs = {**node.given, **{f: getattr(node.attrs, f) for f in node.op.subgraphs}}
    attrs = {k: v for k, v in attrs.items() if not k.startswith("__")}
    return Case(
        node.op, attrs, [shapes[e.node.name] for e in node.inputs], mxnet="see test_control_flow.py", **more
    )


def _flat(*nested):
    found = []
    for x in nested:
        found += _flat(*x) if isinstance(x, (list, tuple)) else [x]
    return found


def _cell():
    data, state, w, r = (sym.var(n) for n in ("data", "state", "w", "r"))

    def step(x, h):
        h = sym.sin(sym.FullyConnected(x, w, no_bias=True, num_hidden=3) + sym.dot(h, r))
        return h * h, h

    return _flat(sym.contrib.foreach(step, data, state))


def _cell_torch(a, data, state, w, r):
    rows = []
    for x in data:
        state = (x @ w.T + state @ r).sin()
        rows.append(state * state)
    import torch

    return torch.stack(rows), state


def _sums():
    return _flat(sym.contrib.foreach(lambda x, s: ([], s + x), sym.var("data"), sym.var("state")))


def _swap():
    a, b = sym.var("a"), sym.var("b")
    return _flat(sym.contrib.foreach(lambda x, s: (x * s[0], [s[1], s[0]]), sym.var("data"), [a, b]))


def _rows():
    return _flat(
        sym.contrib.foreach(lambda x, s: ([x[0] * x[1], x[0] + x[1]], []), [sym.var("x"), sym.var("y")], [])
    )


def _nested():
    def outer(matrix, s):
        rows, last = sym.contrib.foreach(lambda x, t: (x * t, sym.sin(t + x)), matrix, s)
        return sym.sum(rows, axis=0), last

    return _flat(sym.contrib.foreach(outer, sym.var("data"), sym.var("state")))


def _power():
    x, n, w = sym.var("x"), sym.var("n"), sym.var("w")
    return _flat(
        sym.contrib.while_loop(
            lambda x, n: n < 3, lambda x, n: (x * x, [sym.sin(x * w), n + 1]), [x, n], max_iterations=5
        )
    )


def _branch():
    x, w, v = sym.var("x"), sym.var("w"), sym.var("v")
    then, other = lambda: [x * w, sym.sin(x)], lambda: [x * v, sym.cos(w * x)]
    return _flat(sym.contrib.cond(sym.var("p"), then, other))


def _torch_power(a, n, x, w):
    import torch

    rows = []
    for _ in range(3):
        rows.append(x * x)
        x = (x * w).sin()
    return torch.cat([torch.stack(rows), torch.zeros(2, *x.shape, dtype=x.dtype)]), x, n.detach() + 3


_ZERO = {"arg0": lambda rng, shape: np.zeros(shape)}


def _rows_of(name, symbols, shapes, **more):
    return {name: _case(symbols, shapes, **more)}


_BRANCH = dict(x=(2, 3), w=(2, 3), v=(2, 3), p=(1,))
_BRANCH_ROW = dict(
    empty=False, grad_inputs=("arg1", "arg2", "arg3"), large=[(1,), (1, 300_000), (1, 300_000), (1, 300_000)]
)

ROWS = {
    **_rows_of(
        "foreach",
        _cell(),
        dict(data=(4, 2, 5), state=(2, 3), w=(3, 5), r=(3, 3)),
        torch=_cell_torch,
        empty=False,
        large=[(4, 8000, 5), (8000, 3), (3, 5), (3, 3)],
    ),
    **_rows_of(
        "foreach-long",
        _cell(),
        dict(data=(9, 1, 2), state=(1, 3), w=(3, 2), r=(3, 3)),
        torch=_cell_torch,
        empty=False,
        large=[(2000, 1, 110), (1, 3), (3, 110), (3, 3)],
    ),
    **_rows_of("foreach-sums", _sums(), dict(data=(4, 3), state=(3,)), large=[(4, 60_000), (60_000,)]),
    **_rows_of(
        "foreach-vector", _sums(), dict(data=(4,), state=(1,)), empty=False, large=[(4, 60_000), (60_000,)]
    ),
    **_rows_of(
        "foreach-one", _sums(), dict(data=(1, 2, 3), state=(2, 3)), large=[(1, 2, 110_000), (2, 110_000)]
    ),
    **_rows_of(
        "foreach-swap", _swap(), dict(data=(3, 4), a=(4,), b=(4,)), large=[(3, 80_000), (80_000,), (80_000,)]
    ),
    **_rows_of("foreach-rows", _rows(), dict(x=(3, 4), y=(3, 4)), large=[(3, 80_000), (3, 80_000)]),
    **_rows_of(
        "foreach-nested",
        _nested(),
        dict(data=(3, 2, 4), state=(4,)),
        empty=False,
        large=[(3, 2, 40_000), (40_000,)],
    ),
    **_rows_of(
        "while_loop",
        _power(),
        dict(x=(2, 3), n=(1,), w=(2, 3)),
        make={**_ZERO, "arg1": unit, "arg2": unit},
        grad_inputs=("arg1", "arg2"),
        torch=_torch_power,
        empty=False,
        large=[(1,), (2, 60_000), (2, 60_000)],
    ),
    **_rows_of("cond", _branch(), _BRANCH, make={"arg0": positive}, **_BRANCH_ROW),
    **_rows_of("cond-else", _branch(), _BRANCH, make=_ZERO, **_BRANCH_ROW),
}
