"""Networks and samples for tests, and an oracle: each sample by itself, node by node, on autograd's tape."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

import mxlite as mx

sym = mx.sym
WIDTH, WORDS, CLASSES = 6, 9, 3


def dense(data: Any, units: int, name: str) -> Any:
    return sym.FullyConnected(data, num_hidden=units, name=name)


def loss_cell(width: int = WIDTH) -> mx.dynamic.Cell:
    logits = dense(sym.var("h"), CLASSES, "out")
    loss = -sym.pick(sym.log_softmax(logits), sym.var("label"), axis=1)
    return mx.dynamic.Cell("loss", loss, {"h": width}, {"label": ()})


def tree_network(width: int = WIDTH, **options: Any) -> mx.dynamic.Network:
    """A Tree-LSTM; a sample is (tree, class), a tree a word or a pair of trees."""
    words = sym.Embedding(sym.var("word"), input_dim=WORDS, output_dim=width, name="words")
    i, o, u = sym.SliceChannel(dense(words, 3 * width, "leaf"), num_outputs=3)
    c = sym.sigmoid(i) * sym.tanh(u)
    leaf = mx.dynamic.Cell("leaf", sym.Group([sym.sigmoid(o) * sym.tanh(c), c]), data={"word": ()})
    hl, cl, hr, cr = (sym.var(n) for n in ("hl", "cl", "hr", "cr"))
    i, fl, fr, o, u = sym.SliceChannel(dense(sym.concat(hl, hr, dim=1), 5 * width, "join"), num_outputs=5)
    c = sym.sigmoid(i) * sym.tanh(u) + sym.sigmoid(fl) * cl + sym.sigmoid(fr) * cr
    states = dict.fromkeys(("hl", "cl", "hr", "cr"), width)
    join = mx.dynamic.Cell("join", sym.Group([sym.sigmoid(o) * sym.tanh(c), c]), states)
    loss = loss_cell(width)

    def states_of(t: Any) -> Any:
        return leaf(t) if isinstance(t, int) else join(*states_of(t[0]), *states_of(t[1]))

    options = {"max_nodes": 64, "max_batch": 8} | options  # few sizes are made quickly
    net = mx.dynamic.Network(lambda s: loss(states_of(s[0])[0], s[1]), [leaf, join, loss], **options)
    initialize(net)
    return net


def initialize(net: mx.dynamic.Network) -> None:
    """Give all parameters random numbers, biases too."""
    net.initialize()
    rng = np.random.default_rng(3)
    for parameter in net.collect_params().values():
        parameter.set_data(mx.nd.array(rng.uniform(-0.7, 0.7, parameter.shape)))


def trees(count: int, most: int = 9, seed: int = 0) -> list[Any]:
    draw = random.Random(seed)

    def tree(words: int) -> Any:
        if words == 1:
            return draw.randrange(WORDS)
        left = draw.randrange(1, words)
        return tree(left), tree(words - left)

    return [(tree(draw.randint(1, most)), draw.randrange(CLASSES)) for _ in range(count)]


def gradients(net: mx.dynamic.Network) -> dict[str, np.ndarray]:
    return {n: p.grad().asnumpy().copy() for n, p in net.collect_params().items() if p.grad_req != "null"}


def alone(net: mx.dynamic.Network, samples: Sequence[Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Results, and gradients of their sum, computed one sample and one node at a time."""
    params, kinds, bits = net.collect_params(), net._tape.kinds, net._tape.bits
    before = gradients(net)

    def record(cell: mx.dynamic.Cell) -> Any:
        names = (*cell.states, *cell.data)
        block = mx.gluon.SymbolBlock(cell.symbol, [sym.var(n) for n in names], params)

        def row(value: Any, kind: Any) -> Any:
            if isinstance(value, mx.dynamic.Handle):
                return mx.nd.zeros((1, *kinds[value >> bits][0]))
            return value if isinstance(value, mx.nd.NDArray) else mx.nd.array([value], dtype=kind[1])

        def call(*operands: Any) -> Any:
            kinds_here = (*cell.states.values(), *cell.data.values())
            found = block(*map(row, operands, kinds_here))
            return tuple(found) if isinstance(found, list) else found

        return call

    recorders = [cell.record for cell in net.cells]
    results, total = [], {n: np.zeros_like(g) for n, g in before.items()}
    try:
        for cell in net.cells:
            cell.record = record(cell)
        for sample in samples:
            with mx.autograd.record():
                found = net._function(sample)
                found = list(found) if isinstance(found, (list, tuple)) else [found]
                whole = mx.nd.concat(*found, dim=0) if len(found) > 1 else found[0]
            params.zero_grad()
            whole.backward()
            results.append(whole.asnumpy())
            for name, g in gradients(net).items():
                total[name] += g
    finally:
        for cell, recorder in zip(net.cells, recorders):
            cell.record = recorder
        for name, g in before.items():
            params[name].grad()[:] = g
    return np.concatenate(results), total


def agrees(net: mx.dynamic.Network, samples: Sequence[Any], tolerance: float = 1e-5) -> None:
    """Assert that a mini-batch gives what its samples give alone, beside the largest number of each array."""
    results = net.forward_backward(samples).asnumpy()
    batched = gradients(net)
    expected, single = alone(net, samples)
    close(results, expected, tolerance, "results")
    assert batched.keys() == single.keys()
    for name in batched:
        close(batched[name], single[name], tolerance, name)


def close(found: np.ndarray, expected: np.ndarray, tolerance: float, what: str) -> None:
    assert found.shape == expected.shape, what
    scale = max(float(np.abs(expected).max(initial=0)), 1e-3)
    assert np.abs(found - expected).max(initial=0) <= tolerance * scale, what
