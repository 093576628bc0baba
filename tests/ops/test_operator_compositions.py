"""Random small graphs of many families, bound under random budgets, against the same in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import mxlite as mx
from mxlite import sym
from mxlite.engine import use_engine
from tests.conformance.conformance import same_bits

torch = pytest.importorskip("torch")
F = torch.nn.functional

LARGEST = 240  # elements of one value


class Pair:
    """A value of a graph in mxlite and in PyTorch."""

    def __init__(self, net: Any, tensor: Any) -> None:
        self.net = net
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)


class Composition:
    """A graph under construction: its variables, and what has been made of them so far."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.rng = np.random.default_rng(5)
        self.arrays: dict[str, Any] = {}
        self.leaves: dict[str, Any] = {}
        self.fixed: set[str] = set()
        self.values = [self.variable(shape), self.variable(shape)]

    def variable(self, shape: tuple[int, ...], numbers: Any = None) -> Pair:
        """A variable with a gradient; without one if its `numbers` are given."""
        name = f"v{len(self.arrays)}"
        self.arrays[name] = self.rng.standard_normal(shape) * 0.5 if numbers is None else numbers
        self.leaves[name] = torch.tensor(self.arrays[name], requires_grad=numbers is None)
        if numbers is not None:
            self.fixed.add(name)
        return Pair(sym.Variable(name, shape=shape, dtype="float64"), self.leaves[name])

    def step(self, name: str, i: int, j: int, k: int) -> None:
        x, y = self.values[-1 - i % len(self.values)], self.values[-1 - j % len(self.values)]
        made = STEPS[name](self, x, y, k)
        if made is not None and 0 < made.tensor.numel() <= LARGEST:
            self.values.append(made)


def _elementwise(g, x, y, k):
    name = ["tanh", "sigmoid", "sin", "softsign"][k % 4]
    function = [torch.tanh, torch.sigmoid, torch.sin, F.softsign][k % 4]
    return Pair(getattr(sym, name)(x.net), function(x.tensor))


def _bell(g, x, y, k):
    return Pair(sym.exp(-sym.square(x.net)), torch.exp(-(x.tensor**2)))


def _broadcast(g, x, y, k):
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return None
    if len(x.shape) != len(y.shape):
        return None
    name = ["broadcast_add", "broadcast_mul", "broadcast_sub", "broadcast_hypot"][k % 4]
    function = [torch.add, torch.mul, torch.sub, torch.hypot][k % 4]
    return Pair(sym.tanh(getattr(sym, name)(x.net, y.net)), torch.tanh(function(x.tensor, y.tensor)))


def _reduce(g, x, y, k):
    axis = k % len(x.shape)
    if k % 2:
        return Pair(sym.mean(x.net, axis=axis, keepdims=True), x.tensor.mean(axis, keepdim=True))
    return Pair(sym.logsumexp(x.net, axis=axis, keepdims=True), x.tensor.logsumexp(axis, keepdim=True))


def _reshape(g, x, y, k):
    shape = [(x.shape[0], -1), (-1, x.shape[-1]), (1, *x.shape), (-1,)][k % 4]
    return None if len(shape) > 4 else Pair(sym.reshape(x.net, shape=shape), x.tensor.reshape(shape))


def _transpose(g, x, y, k):
    axes = tuple(np.random.default_rng(k).permutation(len(x.shape)).tolist())
    return Pair(sym.transpose(x.net, axes=axes), x.tensor.permute(axes))


def _slice(g, x, y, k):
    axis = k % len(x.shape)
    n = x.shape[axis]
    begin, end = k % n, n
    return Pair(
        sym.slice_axis(x.net, axis=axis, begin=begin, end=end), x.tensor.narrow(axis, begin, end - begin)
    )


def _concat(g, x, y, k):
    axis = k % len(x.shape)
    other = y if y.shape == x.shape else x
    return Pair(sym.concat(x.net, other.net, dim=axis), torch.cat([x.tensor, other.tensor], axis))


def _stack(g, x, y, k):
    if y.shape != x.shape or len(x.shape) > 3:
        return None
    return Pair(sym.stack(x.net, y.net, axis=0), torch.stack([x.tensor, y.tensor]))


def _dot(g, x, y, k):
    if len(x.shape) == 2 and len(y.shape) == 2 and x.shape[1] == y.shape[0]:
        return Pair(sym.tanh(sym.dot(x.net, y.net)), torch.tanh(x.tensor @ y.tensor))
    if len(x.shape) == 3:
        net = sym.batch_dot(x.net, x.net, transpose_b=True)
        return Pair(sym.tanh(net), torch.tanh(x.tensor @ x.tensor.mT))
    return None


def _dense(g, x, y, k):
    if len(x.shape) < 2:
        return None
    n = 1 + k % 4
    weight, bias = g.variable((n, int(np.prod(x.shape[1:])))), g.variable((n,))
    net = sym.FullyConnected(x.net, weight.net, bias.net, num_hidden=n)
    return Pair(net, F.linear(x.tensor.flatten(1), weight.tensor, bias.tensor))


def _softmax(g, x, y, k):
    axis = k % len(x.shape)
    if k % 2:
        return Pair(sym.log_softmax(x.net, axis=axis), F.log_softmax(x.tensor, axis))
    return Pair(sym.softmax(x.net, axis=axis), F.softmax(x.tensor, axis))


def _layer_norm(g, x, y, k):
    n = x.shape[-1]
    gamma, beta = g.variable((n,)), g.variable((n,))
    net = sym.LayerNorm(x.net, gamma.net, beta.net, eps=0.1)
    return Pair(net, F.layer_norm(x.tensor, (n,), gamma.tensor, beta.tensor, eps=0.1))


def _image(x):
    """Any value as (N, C, H, W)."""
    shape = (1, 1, 1, *x.shape)[-4:] if len(x.shape) < 4 else x.shape
    return Pair(sym.reshape(x.net, shape=shape), x.tensor.reshape(shape))


def _convolution(g, x, y, k):
    x = _image(x)
    f = 1 + k % 2
    weight, bias = g.variable((f, x.shape[1], 2, 3)), g.variable((f,))
    net = sym.Convolution(x.net, weight.net, bias.net, num_filter=f, kernel=(2, 3), pad=(1, 1), stride=(1, 2))
    return Pair(sym.tanh(net), torch.tanh(F.conv2d(x.tensor, weight.tensor, bias.tensor, (1, 2), 1)))


def _pooling(g, x, y, k):
    x = _image(x)
    net = sym.Pooling(x.net, kernel=(2, 2), pad=(1, 1), pool_type="avg", stride=(1 + k % 2, 1))
    return Pair(net, F.avg_pool2d(x.tensor, 2, (1 + k % 2, 1), 1))


def _where(g, x, y, k):
    if y.shape != x.shape:
        return None
    return Pair(sym.where(x.net > 0.1, x.net, y.net), torch.where(x.tensor > 0.1, x.tensor, y.tensor))


def _take(g, x, y, k):
    axis = k % len(x.shape)
    places = np.array([0, x.shape[axis] - 1, 0, k % x.shape[axis]], float)
    index = g.variable((4,), places)
    net = sym.take(x.net, index.net, axis=axis)
    return Pair(net, x.tensor.index_select(axis, index.tensor.detach().long()))


STEPS = {
    f.__name__[1:]: f
    for f in (
        _elementwise, _bell, _broadcast, _reduce, _reshape, _transpose, _slice, _concat, _stack, _dot, _dense,
        _softmax, _layer_norm, _convolution, _pooling, _where, _take,
    )
}  # fmt: skip

steps = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 15), st.integers(0, 15), st.integers(0, 7)),
    min_size=3,
    max_size=12,
)
first_shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


def train(graph: Composition, net: Any, budget: int | None) -> tuple[Any, list[Any]]:
    """The executor after a step, and all it gave: outputs, then gradients in the order of arguments."""
    names = net.list_arguments()
    exe = net.simple_bind(
        grad_req={n: "null" if n in graph.fixed else "write" for n in names}, memory_budget=budget
    )
    for name in names:
        exe.arg_dict[name][:] = mx.nd.array(graph.arrays[name], dtype="float64")
    outs = exe.forward(is_train=True)
    rng = np.random.default_rng(8)
    exe.backward([mx.nd.array(rng.standard_normal(o.shape), dtype="float64") for o in outs])
    grads = [exe.grad_dict[n] for n in names if n not in graph.fixed]
    return exe, [a.asnumpy() for a in (*outs, *grads)]


def within(graph: Composition, net: Any, budget: int) -> tuple[Any, list[Any]]:
    """`train` within `budget`, or within the least that is known to be enough."""
    try:
        return train(graph, net, budget)
    except mx.MemoryBudgetError as error:
        assert error.least_feasible_bytes > budget
        exe, got = train(graph, net, error.least_feasible_bytes)
        assert exe.memory_plan.peak_bytes <= error.least_feasible_bytes
        return exe, got


@settings(max_examples=30, derandomize=True, database=None, deadline=None)
@given(first_shapes, steps, st.floats(0, 1))
def test_compositions_give_what_pytorch_gives_under_any_budget(shape, program, share):
    graph = Composition(shape)
    for step in program:
        graph.step(*step)
    heads = graph.values[-2:]
    net = sym.Group([h.net for h in heads])
    with use_engine("threaded"):
        full, wanted = train(graph, net, None)
        plan = full.memory_plan
        tight = plan.lower_bound_bytes + int(share * (plan.peak_bytes - plan.lower_bound_bytes))
        _, again = within(graph, net, tight)
    with use_engine("naive"):
        _, naive = within(graph, net, tight)
    for a, b, c in zip(wanted, again, naive):
        same_bits(b, a, f"budget {tight}")
        same_bits(c, a, f"budget {tight}, naive engine")

    rng = np.random.default_rng(8)
    loss = sum((h.tensor * torch.tensor(rng.standard_normal(h.shape))).sum() for h in heads)
    loss.backward()
    names = [n for n in net.list_arguments() if n not in graph.fixed]
    expected = [h.tensor.detach().numpy() for h in heads]
    expected += [graph.leaves[n].grad.numpy() for n in names]
    for what, got, want in zip([*("output" for _ in heads), *names], wanted, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10, err_msg=what)
