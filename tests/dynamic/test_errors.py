"""Errors name the cell and the operand, what was wanted and what was found."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx

from .oracle import dense, initialize, sym, tree_network, trees, WIDTH


def cell(symbol, **options):
    return mx.dynamic.Cell("cell", symbol, **{"states": {"x": WIDTH}, **options})


@pytest.mark.parametrize(
    ("symbol", "message"),
    [
        (lambda x: x - sym.mean(x, axis=0, keepdims=True).broadcast_like(x), "'mean.*mixes nodes"),
        (lambda x: sym.sum(x), "mixes nodes"),
        (lambda x: sym.transpose(x), "makes .* of 2 nodes and .* of 3: the first axis"),
        (lambda x: sym.BatchNorm(x), "BatchNorm .*keeps states"),
    ],
)
def test_a_cell_that_mixes_nodes_is_refused(symbol, message):
    with pytest.raises(mx.DefinitionError, match=message):
        cell(symbol(sym.var("x")))


def test_a_cell_whose_rows_depend_on_each_other_is_found_by_its_numbers():
    with pytest.raises(mx.DefinitionError, match=r"softmax .*depends on the other nodes"):
        cell(sym.softmax(dense(sym.var("x"), WIDTH, "fc"), axis=0))


def test_an_input_that_the_symbol_lacks_is_named():
    with pytest.raises(mx.UnknownNameError, match="'y' is no variable"):
        mx.dynamic.Cell("cell", sym.tanh(sym.var("x")), states={"x": 2, "y": 2})
    with pytest.raises(mx.UnknownNameError, match="'x' is named twice"):
        mx.dynamic.Cell("cell", sym.tanh(sym.var("x")), states={"x": 2}, data={"x": 2})
    with pytest.raises(mx.ArgumentError, match="'x' must be a shape"):
        mx.dynamic.Cell("cell", sym.tanh(sym.var("x")), states={"x": "wide"})


def test_a_cell_outside_of_a_network_cannot_be_called():
    with pytest.raises(mx.MXLiteError, match=r"'cell' is called outside of the function"):
        cell(sym.tanh(sym.var("x")))(1)


def network(of, **options):
    first = mx.dynamic.Cell("first", dense(sym.var("v"), WIDTH, "first"), data={"v": (2,)})
    short = mx.dynamic.Cell("short", dense(sym.var("x"), 2, "short"), {"x": WIDTH})
    net = mx.dynamic.Network(lambda s: of(first, short, s), [first, short], 8, **options)
    initialize(net)
    return net


V = np.ones(2, "float32")


@pytest.mark.parametrize(
    ("of", "error", "message"),
    [
        (lambda f, s, x: s(), mx.ArgumentError, "'short' of x> takes 1 operands, got 0"),
        (lambda f, s, x: s(V), mx.ArgumentError, "'x' must be a result of a cell"),
        (lambda f, s, x: s(0), mx.ArgumentError, "'x' must be a result of a cell, got 0"),
        (lambda f, s, x: s(99), mx.ArgumentError, "'x' must be a result of a cell in the same mini-batch"),
        (
            lambda f, s, x: s(s(f(V))),
            mx.ShapeError,
            r"'short': 'x' must be a row of \(6,\).*got one of \(2,\)",
        ),
        (lambda f, s, x: f(np.ones(3)), mx.ShapeError, r"'first': 'v' must be \(2,\) of float32"),
        (lambda f, s, x: None, mx.ArgumentError, "must return results of cells"),
        (lambda f, s, x: [f(V), s(f(V))], mx.ShapeError, "must return results of one shape"),
        (lambda f, s, x: [x.append(f(V)) or x[0]] * 2, mx.ArgumentError, "each result once"),
    ],
)
def test_a_wrong_call_is_refused_and_the_next_mini_batch_runs(of, error, message):
    wrong = [True]
    net = network(lambda f, s, x: of(f, s, x) if wrong[0] else s(f(V)))
    with pytest.raises(error, match=message):
        net.forward_backward([[]])
    wrong[0] = False
    assert net.forward_backward([[]]).shape == (1, 2)


def test_an_error_of_the_users_function_leaves_nothing_behind():
    net = tree_network(max_nodes=16)
    with pytest.raises(TypeError):
        net([((1, 2), 0), (3.5, 0)])
    assert net([((1, 2), 0)]).shape == (1,)


def test_options_of_a_network_are_checked():
    first = mx.dynamic.Cell("first", dense(sym.var("v"), WIDTH, "first"), data={"v": (2,)})
    for given, error, message in (
        ({}, mx.ArgumentError, "max_nodes or memory_budget"),
        ({"max_nodes": {"second": 3}}, mx.UnknownNameError, r"must name the cells \['first'\]"),
        ({"max_nodes": 0}, mx.RangeError, "at least 1"),
        ({"max_nodes": 3, "memory_budget": "lots"}, mx.BudgetError, "lots"),
    ):
        with pytest.raises(error, match=message):
            mx.dynamic.Network(lambda s: s, [first], **given)
    with pytest.raises(mx.ArgumentError, match="names of their own"):
        mx.dynamic.Network(lambda s: s, [first, first], 3)
    with pytest.raises(mx.ShapeError, match=r"No cell has a state of \(5,\)"):
        tree_network().zeros(5)


def test_backward_after_another_run_is_refused():
    net = tree_network(max_nodes=16)
    samples = trees(1)
    with mx.autograd.record():
        first = net(samples)
        net(samples)
    with pytest.raises(mx.MXLiteError, match="has run again since"):
        first.backward()


def test_a_parameter_that_is_written_between_forward_and_backward_is_refused():
    net = tree_network(max_nodes=16)
    with mx.autograd.record():
        losses = net(trees(1))
    net.collect_params()["out_bias"].set_data(mx.nd.zeros(3))
    with pytest.raises(mx.MXLiteError, match="has been written between"):
        losses.backward()
