"""Random imperative programs: gradients as PyTorch's, wrong writes found, engines and checkpoint alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mxlite import autograd, nd
from mxlite.core import StateError
from mxlite.engine import use_engine
from mxlite.ops import TABLE

torch = pytest.importorskip("torch")

ROWS, COLUMNS = 3, 4

# name -> (in mxlite, in PyTorch); every operation keeps the shape (ROWS, COLUMNS) and values moderate.
UNARY = {
    "tanh": (nd.tanh, torch.tanh),
    "relu": (nd.relu, torch.relu),
    "sigmoid": (nd.sigmoid, torch.sigmoid),
    "square": (lambda x: nd.square(nd.tanh(x)), lambda x: torch.tanh(x) ** 2),
    "scale": (lambda x: 0.5 - x * 0.7, lambda x: 0.5 - x * 0.7),
    "mean": (lambda x: x - x.mean(axis=1, keepdims=True), lambda x: x - x.mean(1, keepdim=True)),
    "softmax": (lambda x: nd.softmax(x, axis=0), lambda x: torch.softmax(x, 0)),
    "transpose": (lambda x: (x.T * 2).T, lambda x: (x.T * 2).T),
    "reshape": (
        lambda x: nd.sin(x.reshape((4, 3))).reshape((3, 4)),
        lambda x: torch.sin(x.reshape(4, 3)).reshape(3, 4),
    ),
    "row": (lambda x: x + x[1], lambda x: x + x[1]),
    "part": (lambda x: nd.concat(x[1:], x[0:1] * 2, dim=0), lambda x: torch.cat([x[1:], x[0:1] * 2])),
    "column": (lambda x: x * x[:, 2:3], lambda x: x * x[:, 2:3]),
    "look up": (lambda x: x[[2, 0, 0]], lambda x: x[[2, 0, 0]]),
    "detach": (lambda x: x * nd.tanh(x).detach(), lambda x: x * torch.tanh(x).detach()),
    "sine": (nd.sin, torch.sin),
    "bell": (lambda x: nd.exp(-x * x), lambda x: torch.exp(-x * x)),
    "dot": (lambda x: nd.tanh(nd.dot(nd.dot(x, x.T), x)), lambda x: torch.tanh(x @ x.T @ x)),
}
BINARY = {
    "add": (lambda x, y: x + y, lambda x, y: x + y),
    "sub": (lambda x, y: x - y, lambda x, y: x - y),
    "mul": (lambda x, y: nd.tanh(x) * y, lambda x, y: torch.tanh(x) * y),
    "product": (lambda x, y: nd.sin(x) * y, lambda x, y: torch.sin(x) * y),
    "quotient": (lambda x, y: nd.sin(x) / (y * y + 1), lambda x, y: torch.sin(x) / (y * y + 1)),
    # At a tie PyTorch halves the gradient, and MXNet does not: so none.
    "max": (
        lambda x, y: nd.maximum(x * 0.9, nd.sin(y) + 0.317),
        lambda x, y: torch.maximum(x * 0.9, torch.sin(y) + 0.317),
    ),
    "where": (lambda x, y: nd.where(x > 0, x, y), lambda x, y: torch.where(x > 0, x, y)),
    # Whose gradients are the very array that arrives.
    "sum": (nd.elemwise_add, lambda x, y: x + y),
    "sums": (lambda x, y: nd.add_n(x, y, x), lambda x, y: x + y + x),
}
NEEDS = {
    "reshape": "Reshape", "row": "slice", "part": "slice", "column": "slice",
    "transpose": "transpose", "dot": "transpose", "look up": "take",
}  # fmt: skip
TWICE = [n for n in (*UNARY, *BINARY) if n not in NEEDS or TABLE[NEEDS[n]].derivative is not None]
"""Operations whose gradients can be differentiated."""

# A program: each line is an operation on earlier values, of which the first two are the leaves.
lines = st.lists(
    st.tuples(st.sampled_from([*UNARY, *BINARY]), st.integers(0, 30), st.integers(0, 30), st.integers(0, 9)),
    min_size=1,
    max_size=12,
)


def play(program, values, side, wrap=lambda f, *x: f(*x), pause=None):
    """All values of a program; `side` is 0 for mxlite and 1 for PyTorch."""
    values = list(values)
    for name, i, j, chance in program:
        x, y = values[i % len(values)], values[j % len(values)]
        operands = (x,) if name in UNARY else (x, y)
        function = (UNARY | BINARY)[name][side]
        if pause is not None and chance == 0:
            with pause():
                values.append(function(*operands))
        else:
            values.append(wrap(function, *operands) if chance % 3 == 1 else function(*operands))
    return values


def on_tape(head, x):
    """A head that depends on a leaf in any case, and no more on it than the program says."""
    return head if head.origin is not None else head + x * 0


def start():
    rng = np.random.default_rng(3)
    return rng.standard_normal((2, ROWS, COLUMNS))


def gradients(program, engine, wrap=lambda f, *x: f(*x)):
    with use_engine(engine):
        leaves = [nd.array(a, dtype="float64") for a in start()]
        for x in leaves:
            x.attach_grad()
        with autograd.record():
            head = on_tape(play(program, leaves, 0, wrap, autograd.pause)[-1], leaves[0])
        head.backward()
        return [x.grad.asnumpy() for x in leaves]


@settings(max_examples=60, deadline=None)
@given(lines)
def test_gradients_are_those_of_pytorch(program):
    leaves = [torch.tensor(a, requires_grad=True) for a in start()]
    head = play(program, leaves, 1, pause=torch.no_grad)[-1] + leaves[0] * 0
    head.sum().backward()
    want = [np.zeros((ROWS, COLUMNS)) if t.grad is None else t.grad.numpy() for t in leaves]
    for got, expected in zip(gradients(program, "threaded"), want):
        np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(lines)
def test_engines_and_checkpoint_agree(program):
    want = gradients(program, "naive")
    np.testing.assert_array_equal(gradients(program, "threaded"), want)
    # With checkpoint the gradients of an array that is read twice inside are added in another order.
    again = gradients(program, "threaded", autograd.checkpoint)
    np.testing.assert_allclose(again, want, rtol=1e-12, atol=1e-13)


@settings(max_examples=40, deadline=None)
@given(lines, st.integers(0, 30))
def test_a_write_is_harmless_or_found(program, victim):
    """A value is overwritten before backward: the gradient is as if it were not, or StateError says so."""
    want = gradients(program, "naive")
    leaves = [nd.array(a, dtype="float64") for a in start()]
    for x in leaves:
        x.attach_grad()
    with autograd.record():
        values = play(program, leaves, 0, pause=autograd.pause)
        head = on_tape(values[-1], leaves[0])
        target = values[victim % len(values)]
        if target.origin is not None:
            with pytest.raises(StateError):
                target += 1
    target[:] = 1e6
    try:
        head.backward()
    except StateError:
        return
    for x, expected in zip(leaves, want):
        np.testing.assert_array_equal(x.grad.asnumpy(), expected)


@settings(max_examples=30, deadline=None)
@given(lines)
def test_second_derivatives_are_those_of_pytorch(program):
    program = [(TWICE[sum(map(ord, name)) % len(TWICE)], i, j, 1) for name, i, j, _ in program]
    mine = [nd.array(a, dtype="float64") for a in start()]
    for x in mine:
        x.attach_grad()
    with autograd.record():
        y = play(program, mine, 0)[-1] + mine[0] * mine[0]
        (g,) = autograd.grad(y, mine[0], create_graph=True)
        head = g * g + y
    head.backward()
    theirs = [torch.tensor(a, requires_grad=True) for a in start()]
    ty = play(program, theirs, 1)[-1] + theirs[0] * theirs[0]
    (tg,) = torch.autograd.grad(ty.sum(), theirs[0], create_graph=True)
    (tg * tg + ty).sum().backward()
    for x, t in zip(mine, theirs):
        expected = np.zeros((ROWS, COLUMNS)) if t.grad is None else t.grad.numpy()
        np.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-7, atol=1e-9)
